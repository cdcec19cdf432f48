//! Place where tools work: an existing sandbox, a new one, or the project itself.
//!
//! ```text
//! settings, target -> spec -> sandbox, started or attached -> copy of the project -> tools
//!     -> end or leave
//! ```
//!
//! A new sandbox has a supervisor, so its work is kept if this process dies. `agent`, `mcp` and
//! `call` all use [`WorkSession::open`].

mod client_lock;
mod difference;
mod finish;
mod pool;
mod sandbox_facts;
mod start;
mod terminal;

pub use finish::{changes_as_patch, take_down};
pub use pool::{PoolConfig, PoolSource, PoolStatus, WarmPool, WarmSandbox};
pub use sandbox_facts::SandboxFacts;
pub use start::{notify_started, push_project, start_named, start_new};
pub use terminal::{Terminal, TerminalEvent, TerminalInput};

use crate::Error;
use crate::frontend::{Frontend, Notice};
use crate::secrets;
use crate::spec::{self, ResolvedSpec};
use crate::sync::kept::KeptChanges;
use client_lock::{ClientLock, LockOutcome};
use glovebox_agent::Placement;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Backend, Name, Registry, Sandbox, SandboxState, Supervisor, WorkspaceMode};
use glovebox_settings::{Origin, SandboxFlags, Settings, Surroundings};
use glovebox_spec::LimitKind;
use glovebox_tools::policy::{Journal, Policy, PolicyGate};
use glovebox_tools::{ChildSandboxes, ToolSession};
use std::path::Path;
use std::sync::Arc;

/// Context of an operation: its caller, and what it may use of the machine.
#[derive(Debug, Clone, Copy)]
pub struct WorkContext<'a> {
    /// Facts about this machine and the user's environment.
    pub host: &'a Surroundings,
    /// Registry of sandboxes.
    pub registry: &'a Arc<Registry>,
    /// Program that supervises sandboxes.
    pub supervisor: &'a Supervisor,
    /// User interface.
    pub frontend: &'a dyn Frontend,
}

/// Requested place for tools.
#[derive(Debug, Clone, Copy)]
pub enum WorkTarget<'a> {
    /// An existing running sandbox, unchanged.
    Running(&'a Name),
    /// A new sandbox over the project.
    New(NewSandbox<'a>),
    /// The project itself, without isolation.
    Local,
}

/// New sandbox for an operation.
#[derive(Debug, Clone, Copy)]
pub struct NewSandbox<'a> {
    /// Name of the sandbox.
    pub name: NewName<'a>,
    /// Time in milliseconds for which it outlives a killed process, if its files are kept when it
    /// stops.
    pub lease_ms: Option<u64>,
}

/// Name of a new sandbox.
#[derive(Debug, Clone, Copy)]
pub enum NewName<'a> {
    /// This name, which must be free.
    Given(&'a Name),
    /// A random name with this prefix.
    Random(&'a str),
    /// The name of a sandbox that a client's server has left, or a random one.
    OfClient {
        /// Prefix of the name.
        prefix: &'a str,
        /// Sandboxes that may be taken over.
        reuse: Reuse<'a>,
    },
}

/// Sandboxes that a client's server may take over, if they have the same settings and no client
/// works in them.
#[derive(Debug, Clone, Copy)]
pub enum Reuse<'a> {
    /// None.
    Never,
    /// The newest one.
    Newest,
    /// The newest of these.
    Among(&'a [Name]),
}

/// Sandbox in which tools work, or the project itself.
#[derive(Debug)]
pub struct WorkSession {
    sandbox: Arc<Sandbox>,
    host: Surroundings,
    registry: Arc<Registry>,
    supervisor: Supervisor,
    /// Factory for sandboxes beside this one; `None` for the project itself.
    children: Option<Arc<ChildSandboxes>>,
    kind: Kind,
    /// Fetcher of a remote copy's changes, in case its machine is lost.
    kept: Option<KeptChanges>,
    /// Lock of a client's server on the sandbox.
    lock: Option<ClientLock>,
    /// Sandboxes with the same settings in which other clients work.
    used: Vec<Name>,
    /// True if another server has left the sandbox to this one.
    is_taken_over: bool,
}

/// Ownership of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The sandbox existed before and continues to run.
    Running,
    /// The sandbox was created for this operation and has a supervisor.
    Supervised {
        /// True if its files are kept when it stops.
        keeps_files: bool,
    },
    /// Tools work without a sandbox.
    Local,
}

impl WorkSession {
    /// Starts or attaches to the requested target. A new sandbox that does not receive its copy of
    /// the project is removed.
    ///
    /// # Errors
    /// Settings contradict each other, or the sandbox cannot be started or reached.
    pub fn open(
        caller: &WorkContext<'_>,
        settings: &Settings,
        project: &Path,
        target: WorkTarget<'_>,
    ) -> Result<Self, Error> {
        match target {
            WorkTarget::Running(name) => {
                let sandbox = caller.registry.connect(name)?;
                Ok(Self::on(caller, sandbox, Kind::Running))
            }
            WorkTarget::New(new) => Self::start(caller, settings, project, new),
            WorkTarget::Local => {
                let mut settings = settings.clone();
                lay_local(&mut settings);
                let resolved = resolve(caller, &settings, project)?;
                let sandbox = caller.registry.create(&resolved.spec, None)?;
                notify_started(caller.frontend, &sandbox, &settings);
                Ok(Self::on(caller, sandbox, Kind::Local))
            }
        }
    }

    fn start(
        caller: &WorkContext<'_>,
        settings: &Settings,
        project: &Path,
        new: NewSandbox<'_>,
    ) -> Result<Self, Error> {
        let (settings, mut resolved) = Self::resolve_new(caller, settings, project)?;
        let keeps_files = resolved.spec.keeps_files();
        // A sandbox whose files would be lost must not stop by itself.
        resolved.spec.lease_ms = new.lease_ms.filter(|_| keeps_files);
        let kind = Kind::Supervised { keeps_files };
        let mut used = Vec::new();
        if let NewName::OfClient { prefix, reuse } = new.name
            && !matches!(reuse, Reuse::Never)
        {
            let found = start::take_over(caller, &resolved.spec, prefix, reuse)?;
            if let Some((sandbox, lock)) = found.taken {
                notify_started(caller.frontend, &sandbox, &settings);
                let mut session = Self::on(caller, sandbox, kind);
                (session.lock, session.is_taken_over) = (Some(lock), true);
                return Ok(session);
            }
            used = found.used;
        }
        let name = match new.name {
            NewName::Given(name) => name.clone(),
            NewName::Random(prefix) | NewName::OfClient { prefix, .. } => Name::random(prefix),
        };
        // Before the sandbox exists: another server that finds it unlocked takes it.
        let lock = match new.name {
            NewName::OfClient { .. } => match ClientLock::take(caller.registry, &name)? {
                LockOutcome::Taken(lock) => Some(lock),
                LockOutcome::Used | LockOutcome::Leaving => None,
            },
            NewName::Given(_) | NewName::Random(_) => None,
        };
        let sandbox = start_new(caller.registry, &resolved.spec, &name, caller.supervisor)?;
        let mut session = Self::on(caller, sandbox, kind);
        (session.lock, session.used) = (lock, used);
        notify_started(caller.frontend, &session.sandbox, &settings);
        let pushed = push_project(caller.frontend, &session.sandbox, &settings, project);
        if let Err(error) = pushed {
            session.end(caller.frontend);
            return Err(error);
        }
        session.kept = KeptChanges::begin(&session.sandbox);
        Ok(session)
    }

    /// Resolves the settings of a new sandbox, with those of its toolset, and its specification.
    fn resolve_new(
        caller: &WorkContext<'_>,
        settings: &Settings,
        project: &Path,
    ) -> Result<(Settings, ResolvedSpec), Error> {
        let mut settings = settings.clone();
        let fitted = spec::fit_file_systems(&mut settings, project, caller.registry.state_dir())?;
        lay_toolset(&mut settings)?;
        let toolset = settings.tools.toolset().map_err(unknown_toolset)?;
        if toolset.is_read_only && settings.workspace_mode() == WorkspaceMode::Copy {
            let toolset = &toolset.name;
            caller.frontend.notify(&Notice::CopyIsWritable { toolset });
        }
        let mut resolved = resolve(caller, &settings, project)?;
        resolved.notes.extend(fitted);
        caller.frontend.notify(&Notice::Starting {
            resolved: &resolved,
            settings: &settings,
            project,
        });
        Ok((settings, resolved))
    }

    /// Reconnects to the sandbox of an earlier operation, and starts it if it has stopped; `None`
    /// if it no longer exists.
    ///
    /// # Errors
    /// The sandbox cannot be started.
    pub fn resume(caller: &WorkContext<'_>, name: &Name) -> Result<Option<Self>, Error> {
        let Some(entry) = caller.registry.entry(name)? else {
            return Ok(None);
        };
        let mut spec = caller.registry.spec(name)?;
        let running = match entry.state {
            SandboxState::Ready => connect_running(caller.registry, name)?,
            _ => None,
        };
        let keeps_files = spec.keeps_files();
        let sandbox = if let Some(sandbox) = running {
            sandbox
        } else {
            secrets::read(&mut spec.secrets, caller.host)?;
            spec::renew_credential(&mut spec, caller.host)?;
            spec::renew_upstream(&mut spec, caller.host);
            caller.registry.start(&spec, name, caller.supervisor)?;
            caller.registry.connect(name)?
        };
        let kind = Kind::Supervised { keeps_files };
        let mut session = Self::on(caller, sandbox, kind);
        session.kept = KeptChanges::begin(&session.sandbox);
        Ok(Some(session))
    }

    /// Restarts the sandbox with `settings`, with its files unchanged. Does nothing if the sandbox
    /// was not created for this operation or the specification is the same.
    ///
    /// # Errors
    /// Settings contradict each other, or the sandbox cannot be stopped or started.
    pub fn renew(
        self,
        caller: &WorkContext<'_>,
        settings: &Settings,
        project: &Path,
    ) -> Result<Self, Error> {
        if !matches!(self.kind, Kind::Supervised { .. }) {
            return Ok(self);
        }
        let name = self.sandbox.info().name.clone();
        let mut resolved = resolve(caller, settings, project)?;
        let before = self.registry.spec(&name)?;
        resolved.spec.lease_ms = before.lease_ms;
        if before == resolved.spec {
            return Ok(self);
        }
        // Waits for a fetch in progress, which needs the running sandbox.
        drop(self.kept);
        self.sandbox
            .stop("it is started again with other settings")?;
        drop(self.sandbox);
        self.registry
            .start(&resolved.spec, &name, &self.supervisor)?;
        let sandbox = Arc::new(self.registry.connect(&name)?);
        let session = Self {
            kept: KeptChanges::begin(&sandbox),
            sandbox,
            ..self
        };
        notify_started(caller.frontend, &session.sandbox, settings);
        Ok(session)
    }

    fn on(caller: &WorkContext<'_>, sandbox: Sandbox, kind: Kind) -> Self {
        let registry = Arc::clone(caller.registry);
        let supervisor = caller.supervisor.clone();
        let children = (kind != Kind::Local).then(|| {
            Arc::new(ChildSandboxes::new(
                Arc::clone(&registry),
                supervisor.clone(),
            ))
        });
        Self {
            sandbox: Arc::new(sandbox),
            host: caller.host.clone(),
            registry,
            supervisor,
            children,
            kind,
            kept: None,
            lock: None,
            used: Vec::new(),
            is_taken_over: false,
        }
    }

    /// Returns the sandboxes with the same settings in which other clients worked when this one was
    /// created.
    pub fn used_by_others(&self) -> &[Name] {
        &self.used
    }

    /// Returns true if another server has left the sandbox, with its work, to this one.
    pub const fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// Tells servers that start now to wait for the sandbox, which is about to be left.
    pub fn tell_leaving(&self) {
        if let Some(lock) = &self.lock {
            lock.tell_leaving();
        }
    }

    /// Returns the placement of the tools.
    pub const fn placement(&self) -> Placement {
        match self.kind {
            Kind::Local => Placement::Local,
            Kind::Running | Kind::Supervised { .. } => Placement::Sandbox,
        }
    }

    /// Returns the sandbox, or the guest of the project itself.
    pub const fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// Returns the registry of sandboxes.
    pub const fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the program that supervises and commits.
    pub const fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Returns the name of the sandbox; `None` without one that outlives this process.
    pub fn name(&self) -> Option<&Name> {
        (self.kind != Kind::Local).then(|| &self.sandbox.info().name)
    }

    /// Returns the sandbox if it may be stopped and later resumed with its files. `None` for one
    /// without a lease, which the user has named and which must keep running.
    pub fn stoppable(&self) -> Option<Arc<Sandbox>> {
        let spec = self.registry.spec(self.name()?).ok()?;
        let can_stop = spec.lease_ms.is_some() && spec.keeps_files();
        can_stop.then(|| Arc::clone(&self.sandbox))
    }

    /// Returns the tools of this place. The caller adds the gate that permits calls.
    pub fn tools(&self) -> ToolSession {
        let tools = ToolSession::new(Arc::clone(&self.sandbox));
        match &self.children {
            Some(children) => tools.with_children(Arc::clone(children)),
            None => tools,
        }
    }

    /// Returns the tools under the policy of `settings`, with a journal of decisions.
    ///
    /// # Errors
    /// The toolset does not exist.
    pub fn permitted_tools(&self, settings: &Settings) -> Result<ToolSession, Error> {
        let gate = self.gate(self.policy(settings)?);
        Ok(self.tools().with_permit(Arc::new(gate)))
    }

    /// Returns the policy of `settings` for this place.
    ///
    /// # Errors
    /// The toolset does not exist.
    pub fn policy(&self, settings: &Settings) -> Result<Policy, Error> {
        let policy = settings.tools.policy().map_err(unknown_toolset)?;
        if self.kind == Kind::Local && policy.toolset().is_read_only {
            // Without isolation nothing keeps a command from writing.
            return Ok(policy.only_reading());
        }
        Ok(policy)
    }

    /// Returns a gate that permits calls according to `policy` and records each decision.
    pub fn gate(&self, policy: Policy) -> PolicyGate {
        PolicyGate::new(policy).writing(Arc::new(journal(&self.registry)))
    }

    /// Returns the changes as a patch for `git apply`.
    ///
    /// # Errors
    /// The changes cannot be collected, or the patch exceeds `max_bytes`.
    pub fn changes_as_patch(&self, max_bytes: usize) -> Result<Vec<u8>, Error> {
        changes_as_patch(&self.sandbox, max_bytes)
    }

    /// Removes the sandbox with everything in it.
    pub fn end(self, frontend: &dyn Frontend) {
        if self.kind == Kind::Local {
            take_down(frontend, self.sandbox);
            return;
        }
        let name = self.sandbox.info().name.clone();
        if let Err(fault) = self.remove() {
            let (name, fault) = (&name, &fault);
            frontend.notify(&Notice::RemovalFailed { name, fault });
        }
    }

    fn remove(self) -> Result<(), Fault> {
        // The copy is removed while the guest still answers; the kill would leave it.
        drop(self.kept);
        crate::sync::copied::clean(&self.sandbox);
        let name = self.sandbox.info().name.clone();
        drop(self.sandbox);
        self.registry.kill(&name).map(drop)
    }
}

/// Connects to a sandbox that its files describe as ready; `None` if its owner has died.
fn connect_running(registry: &Registry, name: &Name) -> Result<Option<Sandbox>, Fault> {
    match registry.connect(name) {
        // The socket of a killed owner closes a moment before its lock is released.
        Err(fault) if fault.code == Code::SandboxNotRunning => Ok(None),
        connected => connected.map(Some),
    }
}

/// Resolves the specification of a sandbox for tools.
fn resolve(
    caller: &WorkContext<'_>,
    settings: &Settings,
    project: &Path,
) -> Result<ResolvedSpec, Error> {
    let wall_ms = spec::deadline_ms(settings);
    spec::resolve_supervised_spec(settings, caller.host, project, wall_ms)
}

/// Returns the error for an unknown toolset.
pub fn unknown_toolset(message: String) -> Error {
    Error::usage(message, "`glovebox tools` shows the toolsets")
}

/// Returns the journal of decisions on tool calls, in the registry's state directory.
pub fn journal(registry: &Registry) -> Journal {
    Journal::new(registry.state_dir().join("decisions.jsonl"))
}

/// Applies the toolset to the settings: with a read-only one, commands cannot write to the project
/// either; one with a network of its own sets that.
///
/// # Errors
/// The toolset does not exist.
pub fn lay_toolset(settings: &mut Settings) -> Result<(), Error> {
    settings
        .lay_toolset_network()
        .map_err(|message| Error::usage(message, "correct the table of the toolset"))?;
    let toolset = settings.tools.toolset().map_err(unknown_toolset)?;
    if toolset.is_read_only
        && matches!(
            settings.workspace_mode(),
            WorkspaceMode::Overlay | WorkspaceMode::Live
        )
    {
        settings.workspace.value = Some(WorkspaceMode::ReadOnly);
    }
    Ok(())
}

/// Changes the settings for work on the user's own machine: no isolation, and only the limits that
/// the user asked for.
pub fn lay_local(settings: &mut Settings) {
    let is_unasked = |kind: &LimitKind| settings.limits.get(*kind).origin == Origin::Default;
    let flags = SandboxFlags {
        backend: Some(Backend::HOST),
        limits: LimitKind::ALL
            .into_iter()
            .filter(|kind| settings.limits.value(*kind).is_some())
            .filter(is_unasked)
            .map(|kind| (kind, None))
            .collect(),
        ..SandboxFlags::default()
    };
    settings.lay_flags(&flags);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeaveOutcome;
    use glovebox_sandbox::RegistryConfig;
    use glovebox_workspace::Watch;
    use std::cell::RefCell;
    use std::ops::ControlFlow;
    use std::sync::atomic::AtomicBool;

    /// Keeps what was said.
    #[derive(Debug, Default)]
    struct Notices(RefCell<Vec<String>>);

    impl Frontend for Notices {
        fn notify(&self, notice: &Notice<'_>) {
            let line = match notice {
                Notice::Started { report, .. } => {
                    let limits = report.absent_limits();
                    let kinds: Vec<_> = limits.map(|limit| limit.kind.as_str()).collect();
                    format!("started without {}", kinds.join(", "))
                }
                other => format!("{other:?}"),
            };
            self.0.borrow_mut().push(line);
        }

        fn watch_progress(&self) -> Box<Watch<'_>> {
            Box::new(|_| ControlFlow::Continue(()))
        }
    }

    #[test]
    fn work_without_a_sandbox_follows_the_settings_and_says_what_does_not_hold() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let host = Surroundings::fixed(dir.path(), &project, &[]);
        let registry = Registry::open(RegistryConfig {
            state_dir: dir.path().join("state"),
            max_sandboxes: 4,
            seed_maker: Some(glovebox_workspace::SEED_MAKER),
        });
        let notices = Notices::default();
        let caller = WorkContext {
            host: &host,
            registry: &Arc::new(registry.unwrap()),
            supervisor: &Supervisor {
                exe: "/no/such/program".into(),
            },
            frontend: &notices,
        };
        let mut settings = Settings::default();
        settings.lay_flags(&SandboxFlags {
            limits: vec![(LimitKind::Memory, Some(1 << 30))],
            ..SandboxFlags::default()
        });
        settings.tools.choose("plan", &Origin::Default).unwrap();
        let work = WorkSession::open(&caller, &settings, &project, WorkTarget::Local).unwrap();
        assert_eq!(work.placement(), Placement::Local);
        assert_eq!(work.name(), None);
        assert_eq!(*notices.0.borrow(), ["started without memory"]);

        let tools = work.permitted_tools(&settings).unwrap();
        let call = |tool, arguments| tools.call(tool, arguments, &AtomicBool::new(false));
        let command = serde_json::json!({ "command": "touch made" });
        let refused = call("Bash", command).unwrap_err();
        assert_eq!(refused.class, glovebox_proto::Class::Refused);
        let listed = call("List", serde_json::json!({})).unwrap();
        assert!(!listed.is_error, "{}", listed.text);
        assert!(!project.join("made").exists());

        assert_eq!(work.leave(true).unwrap(), LeaveOutcome::Removed);
        drop(tools);
        work.end(&notices);
        assert_eq!(notices.0.borrow().len(), 1);
        assert!(caller.registry.list().unwrap().is_empty());
    }
}
