//! Sockets in a sandbox's own network that exist before any command runs: the one that receives DNS
//! queries, and those with which the sandbox's owner serves as egress proxy.
//!
//! A socket belongs to the network namespace it was made in, regardless of the process that uses
//! it. So no process of the owner runs inside, and no process inside can be made to connect
//! elsewhere.

use super::{Context as _, FailedStep, Report};
use crate::channel;
use crate::sys::once;
use glovebox_spec::PROXY;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Port for DNS queries. Programs use it if `/etc/resolv.conf` gives an address without a port.
pub const RESOLVER_PORT: u16 = 53;
/// Address of the sandbox's loopback interface in addition to 127.0.0.1. Programs that check
/// whether there is a network at all (getaddrinfo(3) with AI_ADDRCONFIG) ignore 127.0.0.1.
const ADDRESS: Ipv4Addr = *PROXY.ip();
/// Netmask of [`ADDRESS`]. It makes every address of 198.18.0.0/15 an address of the sandbox.
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 254, 0, 0);
/// The first of the stand-in addresses for host names.
pub const FIRST_STAND_IN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Number of stream sockets for the owner: one for each port that it listens on, and one for
/// [`PROXY`].
pub const SPARE_SOCKETS: usize = 33;
/// Maximum number of captured addresses of other machines.
pub const MAX_CAPTURED: usize = 64;
/// Netmask of a captured address, which covers only itself.
const SINGLE: Ipv4Addr = Ipv4Addr::BROADCAST;

/// Makes the sockets in the network namespace of this thread and sends them to the host.
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

/// Makes an address of another machine an address of the sandbox, in the network namespace of
/// `socket`. Connections to it then arrive at the egress proxy's sockets. Each captured address
/// needs a different `number`, from 0 on. The owner of a sandbox can capture addresses too, from
/// outside: the user that made a user namespace has all capabilities in it (user_namespaces(7)).
///
/// # Errors
/// Those of the kernel; ENOSPC beyond [`MAX_CAPTURED`].
pub fn capture(socket: BorrowedFd<'_>, number: usize, address: Ipv4Addr) -> Result<(), Errno> {
    let alias = u8::try_from(number + 2).map_err(|_| Errno::NOSPC)?;
    if number >= MAX_CAPTURED {
        return Err(Errno::NOSPC);
    }
    once::add_loopback_address(socket, alias, address, SINGLE)
}

/// Returns the socket for DNS queries, in the sandbox's own network namespace. For commands it is
/// port 53 of the machine. It is bound before any command runs, which could take the port.
pub(super) fn bind_resolver() -> Result<OwnedFd, FailedStep> {
    let step = "bind port 53 for questions for names";
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
        .cannot(step)?;
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, RESOLVER_PORT);
    rustix::net::bind(&socket, &address).cannot(step)?;
    Ok(socket)
}
