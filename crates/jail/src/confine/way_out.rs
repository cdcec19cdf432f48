//! The way out of a sandbox: connections that are not to its own loopback go to the egress proxy of
//! its owner, which decides about them.
//!
//! The monitor listens at an address of the sandbox, connects the sandbox's socket to that listener,
//! accepts the other end and passes it to the owner together with the address that was asked for. A
//! connection of another process of the machine to the listener is dropped, because it does not come
//! from the port of the sandbox's socket.

use super::signing::SigningKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

/// Number of connections of others that may wait to be dropped.
const BACKLOG: i32 = 4096;
/// Maximum time in which a connection to this process's own listener is established.
const PATIENCE: Duration = Duration::from_secs(1);

/// Listener of a sandbox's way out, and the socket to its owner.
#[derive(Debug)]
pub(super) struct WayOut {
    listener: OwnedFd,
    /// Address of the listener.
    address: SocketAddrV4,
    owner: OwnedFd,
}

impl WayOut {
    /// Opens the way out at an address of the sandbox, whose sockets sign with `key`. `owner` is a
    /// SEQPACKET socket.
    ///
    /// # Errors
    /// Those of socket(2), setsockopt(2), bind(2) and listen(2).
    pub(super) fn open(address: Ipv4Addr, owner: OwnedFd, key: &SigningKey) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        // The sandbox's sockets sign, and take signed packets alone.
        key.sign(listener.as_fd(), AddressFamily::INET)?;
        rustix::net::bind(&listener, &SocketAddrV4::new(address, 0))?;
        rustix::net::listen(&listener, BACKLOG)?;
        let SocketAddr::V4(address) = local_address(listener.as_fd())? else {
            return Err(Errno::AFNOSUPPORT);
        };
        Ok(Self {
            listener,
            address,
            owner,
        })
    }

    /// Returns the address that a socket connects to.
    pub(super) const fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Passes the other end of `socket`, whose connection to [`Self::address`] has begun, to the
    /// owner. Blocks for at most about a second.
    ///
    /// # Errors
    /// `TIMEDOUT`, `CONNREFUSED`, and `AGAIN` if the owner has too many connections. The socket is
    /// not connected to the owner then.
    pub(super) fn pass_on(
        &self,
        socket: BorrowedFd<'_>,
        wanted: SocketAddrV4,
    ) -> Result<(), Errno> {
        let deadline = Instant::now() + PATIENCE;
        await_event(socket, PollFlags::OUT, deadline)?;
        if rustix::net::getpeername(socket).is_err() {
            return Err(Errno::CONNREFUSED);
        }
        let source = local_address(socket)?;
        let other_end = loop {
            match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(end) if is_from(end.as_fd(), source) => break end,
                // Of another process, or ended already.
                Ok(_) | Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(Errno::AGAIN) => await_event(self.listener.as_fd(), PollFlags::IN, deadline)?,
                Err(errno) => return Err(errno),
            }
            if Instant::now() > deadline {
                return Err(Errno::TIMEDOUT);
            }
        };
        let [a, b, c, d] = wanted.ip().octets();
        let [high, low] = wanted.port().to_be_bytes();
        let message = [a, b, c, d, high, low];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [other_end.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let parts = [IoSlice::new(&message)];
        rustix::net::sendmsg(&self.owner, &parts, &mut ancillary, flags).map(drop)
    }
}

/// Returns true if a connection comes from this address.
fn is_from(end: BorrowedFd<'_>, source: SocketAddr) -> bool {
    let peer = rustix::net::getpeername(end).ok().flatten();
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    peer == Some(source)
}

/// Returns the local address of a socket, in the form of IPv4.
fn local_address(socket: BorrowedFd<'_>) -> Result<SocketAddr, Errno> {
    let address = rustix::net::getsockname(socket)?;
    let address = SocketAddr::try_from(address).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

fn await_event(fd: BorrowedFd<'_>, event: PollFlags, deadline: Instant) -> Result<(), Errno> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    match poll(&mut [PollFd::from_borrowed_fd(fd, event)], Some(&left)) {
        Ok(0) => Err(Errno::TIMEDOUT),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
