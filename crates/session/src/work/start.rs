//! A sandbox of one piece of work is started, and gets its copy of the project.

use super::{WorkContext, difference, resolve};
use crate::Error;
use crate::frontend::{Frontend, Notice};
use crate::note::Note;
use crate::secrets;
use crate::spec::renew_credential;
use crate::sync::copied;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::WorkspaceMode;
use glovebox_sandbox::{
    Name, Registry, RegistryEntry, Sandbox, SandboxSpec, SandboxState, StartOutcome, Supervisor,
};
use glovebox_settings::{Origin, Settings};
use std::cmp::Reverse;
use std::path::Path;

/// Starts a sandbox that stays, under a supervisor of its own. The name must be free.
///
/// # Errors
/// A refusal when there is such a sandbox already; whatever keeps it from starting.
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

/// Starts the sandbox of this name, finds it running with the same settings, or starts it again with the files it had.
/// `notes` are told beside those of its spec.
///
/// # Errors
/// A refusal that names each setting that differs from those of a sandbox that runs, or another project; whatever keeps
/// it from starting.
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

/// Starts a stopped sandbox again whose files are at a service: where they are, whatever the settings say now. `None`
/// for any other.
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
    let started = registry.start(&spec, name, caller.supervisor)?;
    if let Ok(sandbox) = registry.connect(name) {
        notify_started(caller.frontend, &sandbox, settings);
    }
    Ok(Some(started))
}

/// Starts the newest stopped sandbox again whose name begins with `prefix`, with these very settings; `None` where
/// there is none that nobody uses.
pub(super) fn start_stopped(
    caller: &WorkContext<'_>,
    spec: &SandboxSpec,
    prefix: &str,
) -> Result<Option<Name>, Error> {
    let registry = caller.registry;
    let is_ours = |entry: &RegistryEntry| {
        let name = entry.name.as_str().strip_prefix(prefix);
        name.is_some_and(|rest| rest.starts_with('-'))
            && matches!(entry.state, SandboxState::Stopped | SandboxState::Lost)
            && registry.spec(&entry.name).is_ok_and(|made| made == *spec)
    };
    let mut stopped: Vec<RegistryEntry> = registry.list()?.into_iter().filter(is_ours).collect();
    stopped.sort_by_key(|entry| Reverse(entry.created_unix_ms));
    for entry in stopped {
        // Another client may be quicker, and one that cannot start again stays for `glovebox pull`.
        let started = registry.start(spec, &entry.name, caller.supervisor);
        if let Ok((_, StartOutcome::Resumed)) = started {
            return Ok(Some(entry.name));
        }
    }
    Ok(None)
}

/// Tells what holds around a sandbox that has started.
pub fn notify_started(frontend: &dyn Frontend, sandbox: &Sandbox, settings: &Settings) {
    // One that ended meanwhile fails where it is used.
    if let Ok(report) = sandbox.report() {
        let report = &report;
        frontend.notify(&Notice::Started { report, settings });
    }
}

/// Sends the project into a new sandbox whose workspace is a copy; into any other nothing is sent.
///
/// # Errors
/// Whatever keeps the project from being sent, and the user's wish to stop.
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
