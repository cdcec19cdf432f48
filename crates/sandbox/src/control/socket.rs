//! The socket of a supervisor at which clients speak to its guest.

use crate::state::layout::open_dir;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

/// Opens a connection to the supervisor's socket.
///
/// The address goes through the directory's file descriptor, for paths may be longer than the 108
/// bytes an address holds (unix(7)).
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

/// The address of the socket in a sandbox's directory.
pub(crate) fn address(dir: &OwnedFd) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/socket", dir.as_raw_fd()))
}
