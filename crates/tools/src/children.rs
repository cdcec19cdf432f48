//! Sandboxes that a session makes beside its own ("children").
//!
//! A child is made from the session's own spec, which the tools only narrow. Its spec names the
//! parent sandbox, and the child ends together with the parent unless it is to be kept. A session
//! reaches its own children and no other sandbox: every other name is reported as not found.

use glovebox_proto::{Code, Fault, visible};
use glovebox_sandbox::{
    Name, Parent, Registry, RegistryEntry, Sandbox, SandboxSpec, SandboxState, Supervisor,
};
use std::sync::Arc;

/// Maximum number of children of one session at a time.
pub(crate) const MAX_CHILDREN: usize = 4;

/// Registry and supervisor with which a session makes children. A session without it cannot use the
/// tools that manage sandboxes.
#[derive(Debug)]
pub struct ChildSandboxes {
    registry: Arc<Registry>,
    supervisor: Supervisor,
}

/// Child sandbox.
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
    /// Makes children in this registry. Each gets a supervisor of its own.
    pub const fn new(registry: Arc<Registry>, supervisor: Supervisor) -> Self {
        Self {
            registry,
            supervisor,
        }
    }

    /// Returns the number of children of this sandbox that start or run.
    ///
    /// # Errors
    /// If the state directory cannot be read.
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

    /// Returns the children of this sandbox, sorted by name.
    pub(crate) fn list(&self, of: &Sandbox) -> Result<Vec<Child>, Fault> {
        let mut found = Vec::new();
        for entry in self.registry.list()? {
            // A sandbox whose files cannot be read counts as no child.
            if let Ok(spec) = self.registry.spec(&entry.name)
                && is_child(&spec, of)
            {
                found.push(Child { entry, spec });
            }
        }
        Ok(found)
    }

    /// Returns the checked name of a child.
    ///
    /// # Errors
    /// `sandbox-not-found`, also for a sandbox that exists and is not a child.
    pub(crate) fn find(&self, of: &Sandbox, name: &str) -> Result<Name, Fault> {
        // TRUST: a model chose the name. It is parsed before it is looked up.
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

    /// Returns the session's own spec, from which a child's is narrowed.
    pub(crate) fn spec(&self, of: &Sandbox) -> Result<SandboxSpec, Fault> {
        self.registry.spec(&of.info().name)
    }

    /// Starts a child. The caller has narrowed `spec`.
    ///
    /// # Errors
    /// `too-many-sandboxes`, and the faults of the start.
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
        // No lease: the child lives until its parent ends.
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

    /// Connects to a child.
    pub(crate) fn connect(&self, of: &Sandbox, name: &str) -> Result<Sandbox, Fault> {
        self.registry.connect(&self.find(of, name)?)
    }

    /// Terminates a child and removes its files.
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
