//! The sandboxes that a session makes beside its own.
//!
//! Each is made from the session's own spec, which it can only narrow, knows whom it was made for, and
//! ends with that one unless it is to be kept. A session reaches its own children and no other sandbox:
//! for any other name the answer is that there is none.

use glovebox_proto::{Code, Fault, visible};
use glovebox_sandbox::{
    Name, Parent, Registry, RegistryEntry, Sandbox, SandboxSpec, SandboxState, Supervisor,
};
use std::sync::Arc;

/// Sandboxes of one session at a time.
pub(crate) const MAX_CHILDREN: usize = 4;

/// What is needed to make sandboxes. Sessions without it have none of these tools.
#[derive(Debug)]
pub struct ChildSandboxes {
    registry: Arc<Registry>,
    supervisor: Supervisor,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) entry: RegistryEntry,
    pub(crate) spec: SandboxSpec,
}

impl Child {
    pub(crate) fn is_kept(&self) -> bool {
        self.spec
            .parent
            .as_ref()
            .is_some_and(|parent| parent.is_survived)
    }
}

impl ChildSandboxes {
    /// Sandboxes of this registry, each under a supervisor of its own.
    pub const fn new(registry: Arc<Registry>, supervisor: Supervisor) -> Self {
        Self {
            registry,
            supervisor,
        }
    }

    /// How many children of this sandbox live.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn count(&self, of: &Sandbox) -> Result<usize, Fault> {
        let children = self.list(of)?;
        Ok(children
            .iter()
            .filter(|child| {
                matches!(
                    child.entry.state,
                    SandboxState::Starting | SandboxState::Ready
                )
            })
            .count())
    }

    /// The children of this sandbox, by name.
    pub(crate) fn list(&self, of: &Sandbox) -> Result<Vec<Child>, Fault> {
        let mut found = Vec::new();
        for entry in self.registry.list()? {
            // One whose files cannot be read belongs to nobody here.
            if let Ok(spec) = self.registry.spec(&entry.name)
                && is_child(&spec, of)
            {
                found.push(Child { entry, spec });
            }
        }
        Ok(found)
    }

    /// The child of this name.
    ///
    /// # Errors
    /// `sandbox-not-found`, whoever else may have a sandbox of that name.
    pub(crate) fn find(&self, of: &Sandbox, name: &str) -> Result<Name, Fault> {
        // TRUST: a model chose the word; it is a checked name before it is looked up.
        Name::parse(name)
            .ok()
            .filter(|name| {
                self.registry
                    .spec(name)
                    .is_ok_and(|spec| is_child(&spec, of))
            })
            .ok_or_else(|| {
                Fault::failed(
                    Code::SandboxNotFound,
                    format!(
                        "this session has made no sandbox `{}`",
                        visible::line_of_text(name)
                    ),
                )
                .remedy("Sandboxes lists those there are, Spawn makes one")
            })
    }

    /// The spec a child begins with.
    pub(crate) fn spec(&self, of: &Sandbox) -> Result<SandboxSpec, Fault> {
        self.registry.spec(&of.info().name)
    }

    /// Makes a child. `spec` is no wider than that of its parent.
    pub(crate) fn start(
        &self,
        of: &Sandbox,
        mut spec: SandboxSpec,
        label: &str,
        is_survived: bool,
    ) -> Result<Name, Fault> {
        if self.list(of)?.len() >= MAX_CHILDREN {
            return Err(Fault::refused(
                Code::TooManySandboxes,
                format!("this session has {MAX_CHILDREN} sandboxes beside its own already"),
            )
            .remedy("end one with SandboxKill"));
        }
        // Whose end it waits for decides how long it lives.
        spec.lease_ms = None;
        spec.parent = Some(Parent {
            name: of.info().name.clone(),
            created_unix_ms: of.info().created_unix_ms,
            is_survived,
        });
        let name = Name::random(label);
        self.registry.start(&spec, &name, &self.supervisor)?;
        Ok(name)
    }

    /// A way into a child.
    pub(crate) fn connect(&self, of: &Sandbox, name: &str) -> Result<Sandbox, Fault> {
        self.registry.connect(&self.find(of, name)?)
    }

    /// Ends a child, with its files.
    pub(crate) fn kill(&self, of: &Sandbox, name: &str) -> Result<Name, Fault> {
        let name = self.find(of, name)?;
        self.registry.kill(&name)?;
        Ok(name)
    }
}

fn is_child(spec: &SandboxSpec, of: &Sandbox) -> bool {
    let info = of.info();
    spec.parent.as_ref().is_some_and(|parent| {
        parent.name == info.name && parent.created_unix_ms == info.created_unix_ms
    })
}
