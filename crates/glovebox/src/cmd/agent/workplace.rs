//! The place where an agent's tools work, for a user at a terminal.

use crate::cmd::run::supervisor;
use crate::cmd::{Cx, TerminalFrontend};
use crate::exit::CommandError;
use crate::streams::{Signals, StopWatch};
use glovebox_agent::Placement;
use glovebox_sandbox::Name;
use glovebox_session::agent::{AgentWorkplace, EarlierSession};
use glovebox_session::work::WorkContext;
use glovebox_settings::Settings;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Starts the workplace, with a sandbox called `name` if that is given.
pub(crate) fn open(
    cx: &Cx,
    settings: &Settings,
    project: &Path,
    placement: Placement,
    name: Option<&Name>,
    signals: &Signals,
) -> Result<AgentWorkplace, CommandError> {
    let caller = WorkContext {
        host: &cx.host,
        registry: &Arc::new(cx.registry(settings)?),
        supervisor: &supervisor()?,
        frontend: &TerminalFrontend::stoppable(cx, signals, false),
    };
    let place = AgentWorkplace::open(&caller, settings, project, placement, name)?;
    Ok(place)
}

/// Returns the workplace of an earlier session, or a new one, and true if it is new.
pub(crate) fn reopen(
    cx: &Cx,
    settings: &Settings,
    earlier: &EarlierSession,
    signals: &Signals,
) -> Result<(AgentWorkplace, bool), CommandError> {
    let caller = WorkContext {
        host: &cx.host,
        registry: &Arc::new(cx.registry(settings)?),
        supervisor: &supervisor()?,
        frontend: &TerminalFrontend::stoppable(cx, signals, false),
    };
    Ok(earlier.reopen_place(&caller, settings)?)
}

/// Returns the workplace with a sandbox for `settings` and the same files.
pub(super) fn renew(
    cx: &Cx,
    place: AgentWorkplace,
    settings: &Settings,
    project: &Path,
) -> Result<AgentWorkplace, CommandError> {
    let caller = WorkContext {
        host: &cx.host,
        registry: &Arc::clone(place.work.registry()),
        supervisor: &supervisor()?,
        frontend: &TerminalFrontend::new(cx),
    };
    Ok(place.renew(&caller, settings, project)?)
}

/// Starts the MCP servers of the settings, unless the user interrupts.
pub(crate) fn start_servers(
    cx: &Cx,
    place: &mut AgentWorkplace,
    settings: &Settings,
    project: &Path,
    signals: &Signals,
) -> Result<(), CommandError> {
    let caller = WorkContext {
        host: &cx.host,
        registry: &Arc::clone(place.work.registry()),
        supervisor: &supervisor()?,
        frontend: &TerminalFrontend::new(cx),
    };
    let cancel = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&cancel);
    signals.work(StopWatch(Box::new(move |_| {
        stop.store(true, Ordering::Relaxed);
    })));
    let started = place.start_servers(&caller, settings, project, &cancel);
    signals.rest();
    Ok(started?)
}
