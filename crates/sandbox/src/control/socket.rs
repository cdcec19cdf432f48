//! Socket of a supervisor for clients of its guest.

use crate::state::layout::open_dir;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

/// Connects to the supervisor's socket.
///
/// The address leads through the directory's descriptor, because a path may be longer than the 108
/// bytes of an address (unix(7)).
pub(crate) fn dial(dir: &Path) -> Result<OwnedFd, Errno> {
    let dir = open_dir(dir)?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    connect(&socket, &address(&dir)?)?;
    Ok(socket)
}

/// Returns the address of the socket in a sandbox's directory.
pub(crate) fn address(dir: &OwnedFd) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/socket", dir.as_raw_fd()))
}
