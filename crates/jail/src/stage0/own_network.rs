//! Sockets of a sandbox's own network that are there before any command: where programs ask for names, and what the
//! owner of a sandbox gets so that it can be the way out.
//!
//! A socket belongs to the network namespace it was made in, whoever uses it. So nothing of the owner runs inside, and
//! nothing inside can be asked to connect anywhere.

use super::{Context as _, FailedStep, Report};
use crate::channel;
use crate::sys::once;
use glovebox_spec::PROXY;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Where programs send their questions for names when `/etc/resolv.conf` gives an address without a port.
pub const RESOLVER_PORT: u16 = 53;
/// An address that the sandbox's loopback interface has besides 127.0.0.1. Programs that look whether there is a network at all (getaddrinfo(3) with AI_ADDRCONFIG) do
/// not count the loopback's own.
const ADDRESS: Ipv4Addr = *PROXY.ip();
/// Its mask. With it every address of 198.18.0.0/15 is one of the sandbox itself.
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 254, 0, 0);
/// The first of the addresses that can stand in for names.
pub const FIRST_STAND_IN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Stream sockets for the owner: one for each port that it listens on, and one for [`PROXY`].
pub const SPARE_SOCKETS: usize = 33;
/// Most addresses of other machines that can be the sandbox's own.
pub const MAX_CAPTURED: usize = 64;
/// What such an address covers: itself.
const SINGLE: Ipv4Addr = Ipv4Addr::BROADCAST;

/// Makes the sockets in the network namespace of this thread, and hands them over.
pub(super) fn hand_over(control: &OwnedFd, captured: &[Ipv4Addr]) -> Result<(), FailedStep> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .cannot("make a socket of the sandbox's network")?;
    once::add_loopback_address(socket.as_fd(), 1, ADDRESS, NETMASK)
        .cannot("give the sandbox addresses that stand in for names")?;
    for (number, address) in captured.iter().take(MAX_CAPTURED).enumerate() {
        capture(socket.as_fd(), number, *address)
            .cannot("give the sandbox the addresses that are listed")?;
    }
    let step = "make the sockets of the way out";
    let mut sockets = vec![bind_resolver()?];
    for _ in 0..SPARE_SOCKETS {
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        );
        sockets.push(socket.cannot(step)?);
    }
    let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
    channel::send(control, &Report::Egress, &fds)
        .map_err(|_| FailedStep::new("hand over the way out", Errno::PIPE))
}

/// Makes an address of another machine one of the sandbox's own, in the network namespace that `socket` is of: what its
/// programs connect to there arrives at the sockets of the way out. `number` tells apart such addresses, from 0 on. The
/// owner of a sandbox can do that too, from outside: the user that made a user namespace has all capabilities over it
/// (user_namespaces(7)).
///
/// # Errors
/// What the kernel says; ENOSPC beyond [`MAX_CAPTURED`].
pub fn capture(socket: BorrowedFd<'_>, number: usize, address: Ipv4Addr) -> Result<(), Errno> {
    let alias = u8::try_from(number + 2).map_err(|_| Errno::NOSPC)?;
    if number >= MAX_CAPTURED {
        return Err(Errno::NOSPC);
    }
    once::add_loopback_address(socket, alias, address, SINGLE)
}

/// The socket for questions for names, of the sandbox's own network namespace: to its commands this is port 53 of
/// the machine. It is bound before any command can have it.
pub(super) fn bind_resolver() -> Result<OwnedFd, FailedStep> {
    let step = "bind port 53 for questions for names";
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
        .cannot(step)?;
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, RESOLVER_PORT);
    rustix::net::bind(&socket, &address).cannot(step)?;
    Ok(socket)
}
