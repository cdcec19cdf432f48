//! Starts the sandbox of an operation and sends its copy of the project.

use super::client_lock::{self, ClientLock, LockOutcome};
use super::{Reuse, WorkContext, difference, resolve};
use crate::Error;
use crate::frontend::{Frontend, Notice};
use crate::note::Note;
use crate::secrets;
use crate::spec::{renew_credential, renew_upstream};
use crate::sync::copied;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::WorkspaceMode;
use glovebox_sandbox::{
    Name, Registry, RegistryEntry, Sandbox, SandboxSpec, SandboxState, StartOutcome, Supervisor,
};
use glovebox_settings::{Origin, Settings};
use std::cmp::Reverse;
use std::path::Path;
use std::time::{Duration, Instant};

/// Starts a sandbox with a supervisor of its own. The name must be free.
///
/// # Errors
/// A refusal if the name is taken; the sandbox cannot be started.
pub fn start_new(
    registry: &Registry,
    spec: &SandboxSpec,
    name: &Name,
    supervisor: &Supervisor,
) -> Result<Sandbox, Error> {
    let taken = || {
        let fault = Fault::refused(
            Code::AlreadyExists,
            format!("there is a sandbox `{name}` already"),
        );
        fault.remedy(format!(
            "run in it with `glovebox exec {name} -- COMMAND`, or choose another name"
        ))
    };
    if registry.entry(name)?.is_some() {
        return Err(taken().into());
    }
    match registry.start(spec, name, supervisor)? {
        (_, StartOutcome::Created) => Ok(registry.connect(name)?),
        (_, StartOutcome::Existing | StartOutcome::Resumed) => Err(taken().into()),
    }
}

/// Starts the sandbox of this name, finds it running with the same settings, or restarts it with
/// its files. `notes` are reported together with those of its specification.
///
/// # Errors
/// A refusal that names each setting that differs from those of the running sandbox, or the other
/// project; the sandbox cannot be started.
pub fn start_named(
    caller: &WorkContext<'_>,
    settings: &Settings,
    project: &Path,
    name: &Name,
    notes: Vec<Note>,
) -> Result<(RegistryEntry, StartOutcome), Error> {
    let registry = caller.registry;
    if let Some(started) = start_remote_again(caller, settings, name)? {
        return Ok(started);
    }
    let mut resolved = resolve(caller, settings, project)?;
    resolved.notes.extend(notes);
    caller.frontend.notify(&Notice::Starting {
        resolved: &resolved,
        settings,
        project,
    });
    if let Some(entry) = registry.entry(name)?
        && matches!(
            entry.state,
            SandboxState::Stopped | SandboxState::Parked | SandboxState::Lost
        )
        && let Ok(has) = registry.spec(name)
    {
        difference::check_project(name, &has, &resolved)?;
    }
    let (entry, started) = registry.start(&resolved.spec, name, caller.supervisor)?;
    if started == StartOutcome::Existing {
        let variables: Vec<String> = settings
            .env
            .iter()
            .map(|var| var.value.name.to_string_lossy().into_owned())
            .collect();
        difference::check(name, &registry.spec(name)?, &resolved, &variables)?;
    } else if let Ok(sandbox) = registry.connect(name) {
        notify_started(caller.frontend, &sandbox, settings);
    }
    Ok((entry, started))
}

/// Restarts a stopped sandbox whose files are at a service: there, whatever the present settings
/// say. `None` for any other.
fn start_remote_again(
    caller: &WorkContext<'_>,
    settings: &Settings,
    name: &Name,
) -> Result<Option<(RegistryEntry, StartOutcome)>, Error> {
    let registry = caller.registry;
    let is_ended = |entry: &RegistryEntry| {
        let states = [
            SandboxState::Stopped,
            SandboxState::Parked,
            SandboxState::Lost,
        ];
        states.contains(&entry.state)
    };
    if !registry.entry(name)?.is_some_and(|entry| is_ended(&entry)) {
        return Ok(None);
    }
    let mut spec = registry.spec(name)?;
    if !spec.backend.capabilities().keeps_files {
        return Ok(None);
    }
    let backend = &settings.backend;
    if backend.value != spec.backend && matches!(backend.origin, Origin::Flag(_)) {
        let fault = Fault::refused(
            Code::Conflict,
            format!(
                "the files of `{name}` are at the backend `{}`",
                spec.backend
            ),
        );
        return Err(fault
            .remedy(format!("`glovebox start {name}` goes on with them"))
            .into());
    }
    secrets::read(&mut spec.secrets, caller.host)?;
    renew_credential(&mut spec, caller.host)?;
    renew_upstream(&mut spec, caller.host);
    let started = registry.start(&spec, name, caller.supervisor)?;
    if let Ok(sandbox) = registry.connect(name) {
        notify_started(caller.frontend, &sandbox, settings);
    }
    Ok(Some(started))
}

/// Maximum time that a server waits for a sandbox that another server is leaving.
const LEAVE_WAIT: Duration = Duration::from_secs(10);
/// Maximum time that it waits for a sandbox with a client: the other server may not have noticed
/// yet that its client is gone.
const NOTICE_WAIT: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(50);

/// Result of looking for a sandbox that another server has left.
pub(super) struct TakeOver {
    /// The sandbox and its lock; `None` if there is none.
    pub(super) taken: Option<(Sandbox, ClientLock)>,
    /// Sandboxes with the same settings in which other clients work.
    pub(super) used: Vec<Name>,
}

/// Takes over the newest sandbox with this prefix and these settings in which no client works. A
/// stopped one is restarted; one whose server was killed is taken while it runs. Waits for one that
/// is being left.
pub(super) fn take_over(
    caller: &WorkContext<'_>,
    spec: &SandboxSpec,
    prefix: &str,
    reuse: Reuse<'_>,
) -> Result<TakeOver, Error> {
    client_lock::remove_stale(caller.registry);
    let begin = Instant::now();
    loop {
        let mut used = Vec::new();
        let mut is_leaving = false;
        for entry in find_candidates(caller.registry, spec, prefix, reuse)? {
            match take_sandbox(caller, spec, &entry)? {
                Candidate::Taken(taken) => {
                    return Ok(TakeOver {
                        taken: Some(*taken),
                        used,
                    });
                }
                // Its work is newer than that of all the following ones.
                Candidate::Leaving => {
                    is_leaving = true;
                    break;
                }
                Candidate::Used => used.push(entry.name),
                Candidate::Broken => {}
            }
        }
        let wait = match (is_leaving, used.is_empty()) {
            (true, _) => LEAVE_WAIT,
            (false, false) => NOTICE_WAIT,
            (false, true) => Duration::ZERO,
        };
        if begin.elapsed() >= wait {
            return Ok(TakeOver { taken: None, used });
        }
        std::thread::sleep(POLL);
    }
}

/// Returns the sandboxes that may be taken over, newest first.
fn find_candidates(
    registry: &Registry,
    spec: &SandboxSpec,
    prefix: &str,
    reuse: Reuse<'_>,
) -> Result<Vec<RegistryEntry>, Error> {
    let may_be_taken = |name: &Name| match reuse {
        Reuse::Never => false,
        Reuse::Newest => true,
        Reuse::Among(names) => names.contains(name),
    };
    let is_ours = |entry: &RegistryEntry| {
        let rest = entry.name.as_str().strip_prefix(prefix);
        let can_be_taken = match entry.state {
            SandboxState::Stopped | SandboxState::Lost => true,
            SandboxState::Ready => ClientLock::was_taken(registry, &entry.name),
            _ => false,
        };
        rest.is_some_and(|rest| rest.starts_with('-'))
            && can_be_taken
            && may_be_taken(&entry.name)
            && registry.spec(&entry.name).is_ok_and(|made| made == *spec)
    };
    let mut found: Vec<RegistryEntry> = registry.list()?.into_iter().filter(is_ours).collect();
    found.sort_by_key(|entry| Reverse(entry.created_unix_ms));
    Ok(found)
}

/// Result of an attempt to take over one sandbox.
enum Candidate {
    Taken(Box<(Sandbox, ClientLock)>),
    Used,
    Leaving,
    /// The sandbox cannot be restarted, and is kept for `glovebox pull`.
    Broken,
}

fn take_sandbox(
    caller: &WorkContext<'_>,
    spec: &SandboxSpec,
    entry: &RegistryEntry,
) -> Result<Candidate, Error> {
    let registry = caller.registry;
    // Locked before it starts: another server that finds it running and unlocked takes it.
    let lock = match ClientLock::take(registry, &entry.name)? {
        LockOutcome::Taken(lock) => lock,
        LockOutcome::Used => return Ok(Candidate::Used),
        LockOutcome::Leaving => return Ok(Candidate::Leaving),
    };
    if entry.state != SandboxState::Ready
        && registry
            .start(spec, &entry.name, caller.supervisor)
            .is_err()
    {
        return Ok(Candidate::Broken);
    }
    Ok(match registry.connect(&entry.name) {
        Ok(sandbox) => Candidate::Taken(Box::new((sandbox, lock))),
        // The sandbox is ending, because the lease of its killed server has expired.
        Err(_) if entry.state == SandboxState::Ready => Candidate::Leaving,
        Err(_) => Candidate::Broken,
    })
}

/// Reports the isolation of a sandbox that has started.
pub fn notify_started(frontend: &dyn Frontend, sandbox: &Sandbox, settings: &Settings) {
    // A sandbox that has ended meanwhile fails at its first use.
    if let Ok(report) = sandbox.report() {
        let report = &report;
        frontend.notify(&Notice::Started { report, settings });
    }
}

/// Sends the project into a new sandbox whose workspace is a copy. Does nothing for others.
///
/// # Errors
/// The project cannot be sent, or the user stops the push.
pub fn push_project(
    frontend: &dyn Frontend,
    sandbox: &Sandbox,
    settings: &Settings,
    project: &Path,
) -> Result<(), Error> {
    if settings.workspace_mode() != WorkspaceMode::Copy {
        return Ok(());
    }
    let pushed = {
        let mut watch = frontend.watch_progress();
        copied::push(sandbox, project, settings, &mut *watch)?
    };
    frontend.notify(&Notice::Pushed(&pushed));
    Ok(())
}
