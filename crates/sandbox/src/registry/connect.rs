//! Connection to a supervised sandbox.

use crate::control::socket::dial;
use crate::handle::{Sandbox, SandboxCore, SandboxInfo};
use crate::link::{Link, greet};
use crate::state::layout::Layout;
use crate::state::sandbox_dir::{SandboxDir, SandboxDirState, read_spec, read_status};
use crate::state::status::SandboxState;
use crate::{Name, fault};
use glovebox_proto::{Class, Code, Fault};
use rustix::net::sockopt::socket_peercred;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of checks on a sandbox that is starting.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Maximum time for a supervisor's greeting.
const GREET_WAIT: Duration = Duration::from_secs(10);

/// Connects to a sandbox. Waits until `deadline` for one that is starting.
pub(crate) fn connect(layout: &Layout, name: &Name, deadline: Instant) -> Result<Sandbox, Fault> {
    let dir = layout.sandbox(name.as_str());
    loop {
        let why = match dial(&dir) {
            Ok(socket) => match meet(layout, &dir, name, socket) {
                Ok(sandbox) => return Ok(sandbox),
                // The sandbox was about to end; the lock below decides.
                Err(fault) if fault.class == Class::Lost && fault.code == Code::LinkLost => fault,
                Err(fault) => return Err(fault),
            },
            Err(errno) => fault::plain_io(format!("cannot connect to the sandbox `{name}`"), errno),
        };
        match SandboxDir::find(layout, name)? {
            SandboxDirState::Absent => return Err(fault::not_found(name)),
            SandboxDirState::Free(_) => return Err(not_running(name, &dir)),
            SandboxDirState::Held => {}
        }
        match read_status(&dir) {
            Ok(status) if !status.is_supervised => {
                return Err(Fault::failed(
                    Code::SandboxNotRunning,
                    format!(
                        "the sandbox `{name}` belongs to a running command and takes no others"
                    ),
                )
                .remedy("start a named one with `glovebox start NAME`"));
            }
            Ok(status) if status.state == SandboxState::Ready && Instant::now() >= deadline => {
                return Err(why);
            }
            Err(fault) if fault.code != Code::NotFound => return Err(fault),
            _ if Instant::now() >= deadline => {
                return Err(Fault::failed(
                    Code::SandboxNotRunning,
                    format!("the sandbox `{name}` is still starting"),
                )
                .retryable());
            }
            _ => {}
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

pub(super) fn not_running(name: &Name, dir: &Path) -> Fault {
    let status = read_status(dir).ok();
    // A sandbox that ended in order has a reason. A fork that was never started has none.
    let is_new = status
        .as_ref()
        .is_some_and(|status| status.state == SandboxState::Stopped && status.reason.is_none());
    let reason = match status.and_then(|status| status.reason) {
        Some(reason) => reason,
        None if is_new => "it has not been started yet".to_owned(),
        None => "its owner died".to_owned(),
    };
    let verb = if is_new {
        "starts it"
    } else {
        "brings it back"
    };
    Fault::lost(
        Code::SandboxNotRunning,
        format!("the sandbox `{name}` is not running: {reason}"),
    )
    .remedy(format!(
        "`glovebox start {name}` {verb}, `glovebox kill {name}` removes it"
    ))
}

fn meet(layout: &Layout, dir: &Path, name: &Name, socket: OwnedFd) -> Result<Sandbox, Fault> {
    let peer = socket_peercred(&socket)
        .map_err(|errno| fault::plain_io("cannot identify the supervisor", errno))?;
    if peer.uid != rustix::process::geteuid() {
        return Err(Fault::refused(
            Code::PermissionDenied,
            format!(
                "the supervisor of `{name}` runs as user {}",
                peer.uid.as_raw()
            ),
        ));
    }
    let writer = socket
        .try_clone()
        .map_err(|error| fault::plain_io("cannot copy a file descriptor", error))?;
    let greeted = greet(socket, writer, &[], Instant::now() + GREET_WAIT)?;
    let info = SandboxInfo {
        name: name.clone(),
        backend: read_spec(dir)?.backend,
        created_unix_ms: read_status(dir)?.created_unix_ms,
    };
    let core = Arc::new(SandboxCore::foreign(Link::new(greeted)));
    Ok(Sandbox::new(
        core,
        info,
        dir.to_owned(),
        layout.clone(),
        None,
    ))
}
