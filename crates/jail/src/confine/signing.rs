//! Signatures on the connections of a sandbox (RFC 2385, `TCP_MD5SIG` of tcp(7)).
//!
//! The sockets of a sandbox have addresses of the machine's loopback. A server of the machine that
//! listens on 0.0.0.0 gets every packet to a port at which the sandbox no longer listens: one that
//! is sent again, data of a connection of which only a SYN cookie was left, or what sockets send
//! after the sandbox has ended. So every packet is signed with a random key of the sandbox. A socket
//! without the key drops it, and the sandbox's sockets drop packets of others. The sandbox cannot
//! take the key off: the filter refuses the option.

use crate::sys::socket_option::{self, KEY_BYTES};
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::rand::{GetRandomFlags, getrandom};

/// Key of one sandbox.
pub(super) struct SigningKey([u8; KEY_BYTES]);

impl SigningKey {
    /// Makes a random key.
    ///
    /// # Errors
    /// Those of getrandom(2).
    pub(super) fn random() -> Result<Self, Errno> {
        let mut key = [0; KEY_BYTES];
        // Reads of up to 256 bytes are never short (getrandom(2)).
        getrandom(&mut key, GetRandomFlags::empty())?;
        Ok(Self(key))
    }

    /// Makes a socket sign its packets, and drop those without this signature.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub(super) fn sign(&self, socket: BorrowedFd<'_>, family: AddressFamily) -> Result<(), Errno> {
        socket_option::sign(socket, family, &self.0)
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SigningKey")
    }
}

/// Returns true if the kernel can sign connections. Without it a sandbox has no network sockets.
pub fn can_sign_connections() -> bool {
    let can_sign = |family| {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        SigningKey::random()?.sign(socket.as_fd(), family)
    };
    can_sign(AddressFamily::INET).is_ok()
        // A machine without IPv6 has no such sockets.
        && matches!(
            can_sign(AddressFamily::INET6),
            Ok(()) | Err(Errno::AFNOSUPPORT)
        )
}
