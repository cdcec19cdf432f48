//! The loopback of one sandbox: two addresses of 127.0.0.0/8, and the ports that its sockets are
//! bound to.
//!
//! A server of the machine that listens on 0.0.0.0 is reached at every address of 127.0.0.0/8, those
//! of a sandbox included, unless a more specific listener has the port. What keeps the sandbox's
//! packets from it is their signature (`signing`). What keeps the server from the sandbox's port, so
//! that both can work, is a **guard**: a second socket, bound to the same address and port, of which
//! no process of the sandbox has a descriptor. While the guard does not allow reuse, the kernel lets
//! no other socket listen at the port, except in groups with SO_REUSEPORT. It allows reuse only for
//! the moment in which the sandbox's own socket is bound or begins to listen, and a port counts as
//! listening only if the sandbox's socket was seen to listen after that moment.
//!
//! Invariant: a port has one socket as long as it has a guard, so there is no second moment after
//! the port was found to be listening.

use super::arguments::Side;
use super::holders::Holder;
use crate::sys::socket_option;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_reuseaddr, socket_acceptconn, socket_reuseaddr,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Maximum number of sandboxes in one network namespace.
const MAX_LEASES: u32 = 1 << 14;

/// A port, as the sandbox names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PortKey {
    side: Side,
    port: u16,
}

#[derive(Debug)]
struct Port {
    guard: OwnedFd,
    /// Port number of the machine. It differs from that of the key if the machine had the latter in
    /// use.
    actual: u16,
    /// Inode number of the socket that is bound to the port.
    inode: u64,
    holder: Holder,
    is_listening: bool,
}

/// Addresses and ports of a sandbox.
#[derive(Debug)]
pub(super) struct Loopback {
    /// Keeps other sandboxes from the addresses.
    _lease: OwnedFd,
    address: Ipv4Addr,
    ports: BTreeMap<PortKey, Port>,
}

impl Loopback {
    /// Leases addresses that no other sandbox of this network namespace has.
    ///
    /// # Errors
    /// `ADDRNOTAVAIL` if all are in use, and those of socket(2).
    pub(super) fn lease() -> Result<Self, Errno> {
        // A name of the abstract namespace is shared by exactly those processes that share the
        // addresses, and is free again when this process has ended, whatever its end.
        let flags = SocketFlags::CLOEXEC;
        let lease = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        for number in 0..MAX_LEASES {
            let name = format!("glovebox-loopback-{number}");
            let name = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
            match rustix::net::bind(&lease, &name) {
                Ok(()) => {
                    return Ok(Self {
                        _lease: lease,
                        address: first_address(number),
                        ports: BTreeMap::new(),
                    });
                }
                Err(Errno::ADDRINUSE) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::ADDRNOTAVAIL)
    }

    /// Returns the address of a side.
    pub(super) fn address(&self, side: Side) -> Ipv4Addr {
        match side {
            Side::V4 => self.address,
            Side::V6 => Ipv4Addr::from_bits(self.address.to_bits() + 1),
        }
    }

    /// Returns the address at which the way out listens.
    pub(super) fn way_out_address(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() + 2)
    }

    /// Binds a socket of the sandbox. Port 0 means a free one. Where the machine has the port in
    /// use, another one takes its place.
    ///
    /// Precondition: [`Self::find`] finds no such port.
    ///
    /// # Errors
    /// Those of bind(2).
    pub(super) fn bind(
        &mut self,
        socket: BorrowedFd<'_>,
        side: Side,
        port: u16,
        inode: u64,
        holder: Holder,
    ) -> Result<PortKey, Errno> {
        let guard = match self.open_guard(side, port) {
            Err(Errno::ADDRINUSE | Errno::ACCESS) if port != 0 => self.open_guard(side, 0)?,
            opened => opened?,
        };
        let actual = local_port(&guard)?;
        let address = self.address(side);
        with_reuse(socket, || bind_address(socket, address, actual))?;
        set_socket_reuseaddr(&guard, false)?;
        let port = if port == 0 { actual } else { port };
        let key = PortKey { side, port };
        self.ports.insert(
            key,
            Port {
                guard,
                actual,
                inode,
                holder,
                is_listening: false,
            },
        );
        Ok(key)
    }

    /// Makes the socket that is bound to a port listen.
    ///
    /// # Errors
    /// Those of listen(2). `INVAL` if the socket does not listen afterwards.
    pub(super) fn listen(
        &mut self,
        key: PortKey,
        socket: BorrowedFd<'_>,
        backlog: i32,
    ) -> Result<(), Errno> {
        let port = self.ports.get_mut(&key).ok_or(Errno::INVAL)?;
        set_socket_reuseaddr(&port.guard, true)?;
        let listening = with_reuse(socket, || rustix::net::listen(socket, backlog));
        // If this failed, the port would be unguarded, and it does not count as listening.
        set_socket_reuseaddr(&port.guard, false)?;
        listening?;
        // The order matters: a listener of the machine that came in the moment before cannot exist
        // beside this one, and none can come any more.
        port.is_listening = socket_acceptconn(socket)?;
        if port.is_listening {
            Ok(())
        } else {
            Err(Errno::INVAL)
        }
    }

    /// Returns the port that a socket of the sandbox is bound to under this number.
    pub(super) fn find(&self, side: Side, port: u16) -> Option<PortKey> {
        let key = PortKey { side, port };
        if self.ports.contains_key(&key) {
            return Some(key);
        }
        // Programs that look up the number of their own socket know this one.
        self.ports
            .iter()
            .find(|(key, entry)| key.side == side && entry.actual == port)
            .map(|(key, _)| *key)
    }

    /// Returns the address of the machine at which a port of the sandbox listens. `None` if it does
    /// not.
    pub(super) fn listening(&self, key: PortKey) -> Option<SocketAddrV4> {
        let port = self.ports.get(&key).filter(|port| port.is_listening)?;
        Some(SocketAddrV4::new(self.address(key.side), port.actual))
    }

    /// Returns true if a socket was made to listen here and its port is not released.
    pub(super) fn is_listener(&self, inode: u64) -> bool {
        self.ports
            .values()
            .any(|port| port.inode == inode && port.is_listening)
    }

    /// Returns the socket that a port belongs to, and its last known holder.
    pub(super) fn socket(&self, key: PortKey) -> Option<(u64, Holder)> {
        self.ports.get(&key).map(|port| (port.inode, port.holder))
    }

    /// Returns all ports with their sockets and the last known holders of these.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (PortKey, u64, Holder)> {
        self.ports
            .iter()
            .map(|(key, port)| (*key, port.inode, port.holder))
    }

    /// Returns the number of ports.
    pub(super) fn len(&self) -> usize {
        self.ports.len()
    }

    /// Gives up a port with its guard.
    pub(super) fn release(&mut self, key: PortKey) {
        self.ports.remove(&key);
    }

    /// Opens a guard that allows reuse, for the sandbox's own socket.
    fn open_guard(&self, side: Side, port: u16) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let guard = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        set_socket_reuseaddr(&guard, true)?;
        bind_address(guard.as_fd(), self.address(side), port)?;
        Ok(guard)
    }
}

/// Binds a socket that will connect to an address, and leaves its port to connect(2).
///
/// # Errors
/// Those of bind(2).
pub(super) fn bind_source(socket: BorrowedFd<'_>, address: Ipv4Addr) -> Result<(), Errno> {
    socket_option::bind_port_on_connect(socket)?;
    bind_address(socket, address, 0)
}

/// Returns an address in the form that the socket takes.
///
/// # Errors
/// Those of getsockopt(2) and setsockopt(2).
pub(super) fn address_for(
    socket: BorrowedFd<'_>,
    address: SocketAddrV4,
) -> Result<SocketAddr, Errno> {
    if sockopt::socket_domain(socket)? != AddressFamily::INET6 {
        return Ok(address.into());
    }
    // The addresses of a sandbox are IPv4 ones, of which ::1 has only one. This fails once the
    // socket is bound, when it is set already.
    let _ = set_ipv6_v6only(socket, false);
    let mapped = address.ip().to_ipv6_mapped();
    Ok(SocketAddrV6::new(mapped, address.port(), 0, 0).into())
}

fn bind_address(socket: BorrowedFd<'_>, address: Ipv4Addr, port: u16) -> Result<(), Errno> {
    let address = address_for(socket, SocketAddrV4::new(address, port))?;
    rustix::net::bind(socket, &address)
}

/// Does something while a socket allows reuse of its address, then restores the socket's setting.
fn with_reuse(
    socket: BorrowedFd<'_>,
    act: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let was_allowed = socket_reuseaddr(socket)?;
    set_socket_reuseaddr(socket, true)?;
    let done = act();
    if !was_allowed {
        set_socket_reuseaddr(socket, false)?;
    }
    done
}

fn local_port(socket: &OwnedFd) -> Result<u16, Errno> {
    let address = rustix::net::getsockname(socket)?;
    let address = SocketAddr::try_from(address).map_err(|_| Errno::INVAL)?;
    Ok(address.port())
}

/// Returns the first of the addresses that belong to a lease. Each has four.
const fn first_address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x7f40_0000 + 4 * number + 1)
}
