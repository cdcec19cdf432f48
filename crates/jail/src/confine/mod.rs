//! A sandbox without namespaces, for environments that forbid them: Landlock, the system-call
//! filter, and a monitor.
//!
//! ```text
//! owner     sends a [`Setup`] over the link
//!   monitor   [`watch_over`]: unrestricted; makes and connects sockets, changes metadata, opens
//!             terminals, and ends the sandbox with the owner or with the guest
//!   guest     [`enter`]: restricted, as are its wardens and commands; serves on the link
//! ```
//!
//! The kernel confines files and processes by itself: Landlock decides about paths, signals and
//! tracing. It has no rule that tells a server of the sandbox from one of the machine, and for mode,
//! owner, times and attributes of a file it checks the owner alone. So the filter passes calls about
//! these to the monitor, which makes them for the caller on the sandbox's own loopback (`sockets`)
//! and in the sandbox's own trees (`metadata`). Resource limits are not enforced here.
//!
//! Invariant: any deviation ends the start; the guest never serves with a missing restriction.

mod answers;
mod arguments;
mod holders;
mod inside;
mod loopback;
mod memory;
mod metadata;
mod monitor;
mod privileges;
mod signing;
mod sockets;
mod way_out;

pub use inside::{ConfinedGuest, MonitorClient, enter};
pub use monitor::{OpenTerminal, watch_over};
pub use signing::can_sign_connections;

use crate::byte_path::BytePath;
use crate::channel;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// First argument that makes the guest program the monitor.
pub const MONITOR_MODE: &str = "confine";
/// First argument with which the monitor starts it as the guest.
pub const GUEST_MODE: &str = "confined";

/// The oldest Landlock ABI that scopes signals and abstract sockets (Linux 6.12).
pub const MIN_LANDLOCK_ABI: u32 = 6;

/// Paths that a sandbox may access in addition to the machine's programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Files and trees that may be read and executed.
    shown: Vec<BytePath>,
    /// Trees of the sandbox itself, by their real paths.
    writable: Vec<BytePath>,
    /// Working directory of commands.
    cwd: BytePath,
}

/// Returns the two ends of a socket on which a monitor passes connections to the egress proxy of
/// the sandbox's owner ([`Setup::send`]).
///
/// # Errors
/// Those of socketpair(2).
pub fn egress_channel() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl Setup {
    /// Creates the set-up. `writable` are directories of the sandbox itself; symbolic links in
    /// their paths are resolved here, because the monitor compares paths. `cwd` is one of them or
    /// below one.
    ///
    /// # Errors
    /// A directory does not exist.
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

    /// Sends the set-up to the monitor, which waits for it on the other end of `link`. On `egress`,
    /// a Unix SEQPACKET socket, the monitor passes connections that are not to the sandbox's own
    /// loopback: each message is an IPv4 address and a port as on the network, and carries the
    /// connection. Without it, such connections are refused.
    ///
    /// # Errors
    /// The monitor has ended.
    pub fn send(&self, link: BorrowedFd<'_>, egress: Option<BorrowedFd<'_>>) -> io::Result<()> {
        channel::send(link, self, egress.as_slice())
    }
}

/// Message from the monitor to the guest, sent once.
#[derive(Debug, Serialize, Deserialize)]
struct GuestOrder {
    setup: Setup,
    /// Process id of the monitor.
    monitor: i32,
    /// True if connections to the outside go to the owner's proxy.
    has_egress: bool,
}

/// Message from the guest to the monitor. Commands cannot send one.
#[derive(Debug, Serialize, Deserialize)]
enum GuestRequest {
    /// The restrictions apply. Carries the listener of the filter.
    Confined,
    /// Request for a terminal. The monitor opens it, because a right to `/dev/pts` would cover all
    /// terminals in it.
    OpenTerminal,
}

/// Reply to [`GuestRequest::OpenTerminal`]. Carries the two ends, unless `errno` is set.
#[derive(Debug, Serialize, Deserialize)]
struct TerminalReply {
    errno: i32,
}
