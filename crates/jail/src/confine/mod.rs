//! A sandbox without namespaces, for places that forbid them: Landlock, the system-call filter, and a monitor.
//!
//! ```text
//! owner     sends a [`Setup`] over the link
//!   monitor   [`watch_over`]: outside of the walls; answers calls that change metadata, opens terminals, and
//!             ends everything with the owner or with the guest
//!     guest     [`enter`]: inside, as are its wardens and commands; serves on the link
//! ```
//!
//! The kernel holds files, processes and sockets by itself: Landlock decides about paths, signals and tracing, the filter
//! lets no socket be made that could be connected. About mode, owner, times and attributes of a file the kernel
//! asks for the owner alone, so those calls go to the monitor, which makes them for the caller in the sandbox's own
//! trees. Limits are not held here.
//!
//! Invariant: what is not as it should be ends the start; nothing is served with a wall less.

mod inside;
mod metadata;
mod monitor;
mod privileges;

pub use inside::{ConfinedGuest, MonitorClient, enter};
pub use monitor::{OpenTerminal, watch_over};

use crate::byte_path::BytePath;
use crate::channel;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Word with which the guest's program becomes the monitor.
pub const MONITOR_MODE: &str = "confine";
/// Word with which the monitor starts it as the guest.
pub const GUEST_MODE: &str = "confined";

/// The oldest Landlock ABI that scopes signals and abstract sockets (Linux 6.12).
pub const MIN_LANDLOCK_ABI: u32 = 6;

/// What a sandbox may reach beside the programs of the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Files and trees that may be read and executed.
    shown: Vec<BytePath>,
    /// Trees of the sandbox's own, by their real paths.
    writable: Vec<BytePath>,
    /// Where commands start.
    cwd: BytePath,
}

impl Setup {
    /// `writable` are directories of the sandbox's own; links in their paths are resolved here, since the monitor
    /// compares paths. `cwd` is one of them or below one.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn new(shown: Vec<PathBuf>, writable: &[PathBuf], cwd: &Path) -> io::Result<Self> {
        let real = writable
            .iter()
            .map(|path| path.canonicalize().map(BytePath::from))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            shown: shown.into_iter().map(BytePath::from).collect(),
            writable: real,
            cwd: cwd.canonicalize()?.into(),
        })
    }

    /// Sends it to the monitor, which waits for it on the other end of `link`.
    ///
    /// # Errors
    /// The monitor is gone.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        channel::send(link, self, &[])
    }
}

/// From the monitor to the guest, once.
#[derive(Debug, Serialize, Deserialize)]
struct GuestOrder {
    setup: Setup,
    /// Process id of the monitor.
    monitor: i32,
}

/// From the guest to the monitor. Commands have no way to send one.
#[derive(Debug, Serialize, Deserialize)]
enum GuestRequest {
    /// The walls stand; with it comes the listener of the filter.
    Confined,
    /// A terminal is wanted: devices are opened outside, since a right to `/dev/pts` would be one to all of it.
    OpenTerminal,
}

/// Answer to [`GuestRequest::OpenTerminal`]; with it come the two ends, if there are some.
#[derive(Debug, Serialize, Deserialize)]
struct TerminalReply {
    errno: i32,
}
