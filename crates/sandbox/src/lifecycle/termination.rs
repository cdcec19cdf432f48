//! Ending a sandbox from another process than its owner: first by a request, then by signals.
//!
//! Signals are sent through pidfds that were verified to refer to the owner (the peer of its
//! socket, or a process that has the lock file open), never to a process id from a file.

use crate::control::socket::dial;
use crate::lifecycle::sweep;
use crate::link::{Link, greet};
use crate::process;
use crate::process::forced_end;
use crate::state::layout::Layout;
use crate::state::sandbox_dir::{SandboxDir, SandboxDirState, read_status};
use crate::state::status::{SandboxState, Status};
use crate::state::trash;
use crate::{Name, backend, fault};
use glovebox_proto::{Code, Fault, Request};
use rustix::fs::{AtFlags, CWD};
use rustix::net::sockopt::socket_peercred;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Result of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillOutcome {
    /// State before the kill; `gone` if there was no such sandbox.
    pub was: SandboxState,
    /// True if the owner did not end the sandbox itself and had to be killed.
    pub forced: bool,
}

/// Maximum time for an owner to end its sandbox when asked.
const ASK_WAIT: Duration = Duration::from_secs(6);
/// Maximum time for an owner to end after SIGTERM.
const TERM_WAIT: Duration = Duration::from_millis(500);
/// Maximum time for the kernel to end a killed process.
const KILL_WAIT: Duration = Duration::from_secs(10);
/// Maximum time for a sandbox to change from one state to the next.
const STARTING_WAIT: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Ends a sandbox and removes its files.
pub(crate) fn kill(layout: &Layout, name: &Name) -> Result<KillOutcome, Fault> {
    let dir = layout.sandbox(name.as_str());
    let mut killed = KillOutcome {
        was: SandboxState::Gone,
        forced: false,
    };
    let begin = Instant::now();
    loop {
        match SandboxDir::find(layout, name)? {
            SandboxDirState::Absent => return Ok(killed),
            SandboxDirState::Free(sandbox_dir) => {
                if killed.was == SandboxState::Gone {
                    killed.was = match read_status(&dir) {
                        Ok(Status {
                            state: state @ (SandboxState::Stopped | SandboxState::Parked),
                            ..
                        }) => state,
                        _ => SandboxState::Lost,
                    };
                }
                sweep::remove_dead(layout, sandbox_dir)?;
                return Ok(killed);
            }
            SandboxDirState::Held => {}
        }
        let status = read_status(&dir).ok();
        if killed.was == SandboxState::Gone {
            killed.was = match &status {
                Some(Status {
                    state: SandboxState::Ready,
                    ..
                }) => SandboxState::Ready,
                _ => SandboxState::Starting,
            };
        }
        if let Some(owner) = supervisor(&dir) {
            // The process ends last, after everything is removed.
            if !ask(&dir) || !process::wait_gone(&owner, ASK_WAIT) {
                killed.forced = true;
                end_process(&owner)?;
            }
            continue;
        }
        if let Some(status) = &status
            && !status.is_supervised
            && let Some(pidfd) = status.process.and_then(process::ProcessRef::open)
        {
            // The owner is a running command or a user's program. It is not ended; only its sandbox
            // is, and it notices that by its link.
            forced_end::end_all(&pidfd, status.process, &|| backend::kill_left_group(&dir))?;
            if !wait_free(layout, name, STARTING_WAIT)? {
                killed.forced = true;
                if let Some(place) = trash::discard(layout, &dir)? {
                    trash::remove(layout, &place)?;
                }
                return Ok(killed);
            }
            continue;
        }
        // The lock is held, but neither a supervisor nor a process of the sandbox was found: the
        // holder is still starting or removing it. After a while, find the holder itself.
        if begin.elapsed() >= STARTING_WAIT {
            let holders = holders(&dir);
            if holders.is_empty() {
                return Err(Fault::failed(
                    Code::Busy,
                    format!("the sandbox `{name}` is held by a process that cannot be found"),
                )
                .retryable());
            }
            for (pid, pidfd, is_supervisor) in holders {
                if !is_supervisor {
                    return Err(Fault::failed(
                        Code::Busy,
                        format!("the sandbox `{name}` is being made by process {pid}"),
                    )
                    .remedy(format!("try again, or end process {pid}"))
                    .retryable());
                }
                killed.forced = true;
                end_process(&pidfd)?;
            }
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Opens a pidfd of the process that listens on the sandbox's socket.
pub(crate) fn supervisor(dir: &Path) -> Option<OwnedFd> {
    let socket = dial(dir).ok()?;
    let peer = socket_peercred(&socket).ok()?;
    let pidfd = process::open(u32::try_from(peer.pid.as_raw_nonzero().get()).ok()?)?;
    // The connection was made before the pidfd. If the listener had died in between and its id had
    // been reused, the connection would have been reset.
    let is_open = !matches!(
        rustix::net::recv(
            &socket,
            &mut [0_u8; 1][..],
            rustix::net::RecvFlags::DONTWAIT | rustix::net::RecvFlags::PEEK
        ),
        Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET)
    );
    is_open.then_some(pidfd)
}

/// Asks the supervisor to end the sandbox. Returns false if it does not respond properly.
fn ask(dir: &Path) -> bool {
    let asked = || -> Result<(), Fault> {
        let lost = |errno| fault::io("connect to", dir, errno);
        let socket = dial(dir).map_err(lost)?;
        let writer = socket
            .try_clone()
            .map_err(|error| fault::io("connect to", dir, error))?;
        let deadline = Instant::now() + ASK_WAIT;
        let link = Link::new(greet(socket, writer, &[], deadline)?);
        let id = link.open(&Request::Shutdown)?;
        // The reply and the end of the link both mean that the supervisor obeys.
        let _ = link.recv(id, Some(deadline));
        Ok(())
    };
    asked().is_ok()
}

fn wait_free(layout: &Layout, name: &Name, wait: Duration) -> Result<bool, Fault> {
    let deadline = Instant::now() + wait;
    loop {
        if !matches!(SandboxDir::find(layout, name)?, SandboxDirState::Held) {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn end_process(pidfd: &OwnedFd) -> Result<(), Fault> {
    let broken = |errno| fault::plain_io("cannot end a supervisor", errno);
    process::signal(pidfd, Signal::TERM).map_err(broken)?;
    if process::wait_gone(pidfd, TERM_WAIT) {
        return Ok(());
    }
    process::signal(pidfd, Signal::KILL).map_err(broken)?;
    if process::wait_gone(pidfd, KILL_WAIT) {
        return Ok(());
    }
    Err(Fault::failed(
        Code::Io,
        "a supervisor does not end although it was killed",
    ))
}

/// Returns the processes that have the sandbox's lock file open, with true for each that is a
/// supervisor.
fn holders(dir: &Path) -> Vec<(u32, OwnedFd, bool)> {
    let mut found = Vec::new();
    let Ok(lock) = rustix::fs::statat(CWD, dir.join("lock"), AtFlags::SYMLINK_NOFOLLOW) else {
        return found;
    };
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return found;
    };
    for entry in entries.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if pid == std::process::id() {
            continue;
        }
        let Some(pidfd) = process::open(pid) else {
            continue;
        };
        let Ok(fds) = std::fs::read_dir(entry.path().join("fd")) else {
            continue;
        };
        let has_lock = fds.flatten().any(|fd| {
            rustix::fs::stat(fd.path())
                .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (lock.st_dev, lock.st_ino))
        });
        if has_lock {
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let is_supervisor = words
                .split(|byte| *byte == 0)
                .any(|word| word == b"__supervise");
            found.push((pid, pidfd, is_supervisor));
        }
    }
    found
}
