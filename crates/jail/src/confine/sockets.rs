//! Sockets of the sandbox, made, bound and connected by the monitor.
//!
//! The monitor makes each socket, keeps a copy, and gives the process a descriptor of it. A later
//! call names a descriptor: the monitor looks up the inode number of its socket and acts on its own
//! copy. A process that exchanges the descriptor or the address meanwhile has no effect, because
//! both are read once and the act is on a socket of the sandbox.
//!
//! While the monitor has a copy of a connection, the peer would see no end of it. So the copy is
//! dropped when the connection is established, and that of a listener when it listens. Copies that
//! no process holds any more are dropped from time to time.
//!
//! Stream sockets reach the sandbox's own loopback and, if it has one, its owner's egress proxy.

use super::arguments::{Address, MAX_ADDRESS_BYTES, Side, parse_address, side_of_v4, side_of_v6};
use super::holders::{Holder, find_socket, find_unheld};
use super::loopback::{Loopback, PortKey, address_for, bind_source};
use super::memory::Memory;
use super::signing::{SigningKey, can_sign_connections};
use super::way_out::WayOut;
use crate::sys::notify::{self, Notification};
use crate::sys::socket_option;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, sockopt};
use rustix::process::Resource;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Maximum number of sockets and ports of a sandbox, if the limit on descriptors allows them.
const MAX_SOCKETS: u64 = 4096;
/// States of a connection that is being established (tcp_states.h of the kernel).
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;
/// Port of name servers.
const NAME_PORT: u16 = 53;
/// Bits of a socket's type that are no flags.
const TYPE_BITS: i32 = 0xf;

/// Sockets of a sandbox that are neither connected nor listening.
#[derive(Debug)]
pub(super) struct Sockets {
    /// By the inode number. It cannot be reused while the copy is open.
    table: HashMap<u64, Socket>,
    loopback: Loopback,
    /// `None` if the kernel cannot sign connections. There are no network sockets then.
    key: Option<SigningKey>,
    way_out: Option<WayOut>,
    /// Maximum number of sockets and ports.
    max: usize,
}

#[derive(Debug)]
struct Socket {
    copy: OwnedFd,
    family: AddressFamily,
    /// Port that the process bound it to.
    bound: Option<PortKey>,
    /// True if it has an address of the sandbox as its source.
    has_source: bool,
    connecting: Option<Attempt>,
    holder: Holder,
}

/// A connection that is being established.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    to: PortKey,
    /// Call that waits for the result. `None` if the socket does not block.
    waiting: Option<u64>,
}

/// Result of a call about a socket.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The caller is to be answered with this.
    Done(Result<(), Errno>),
    /// The caller has its answer.
    Answered,
    /// The caller is answered later.
    Waiting,
}

impl Socket {
    /// Begins to connect to an address of the machine. Returns the kernel's answer, which is
    /// success or `INPROGRESS`, and true if the process's own socket blocks.
    fn begin_connecting(
        &mut self,
        source: Ipv4Addr,
        target: SocketAddrV4,
    ) -> Result<(Result<(), Errno>, bool), Errno> {
        let copy = self.copy.as_fd();
        let target = address_for(copy, target)?;
        if !self.has_source {
            bind_source(copy, source)?;
            self.has_source = true;
        }
        let flags = rustix::fs::fcntl_getfl(copy)?;
        let is_blocking = !flags.contains(OFlags::NONBLOCK);
        // A full queue of the server must not keep the monitor waiting. The flag belongs to the
        // socket, so the process can clear it, but then only its own sandbox waits.
        if is_blocking {
            rustix::fs::fcntl_setfl(copy, flags | OFlags::NONBLOCK)?;
        }
        let connected = rustix::net::connect(copy, &target);
        if is_blocking {
            rustix::fs::fcntl_setfl(copy, flags)?;
        }
        match connected {
            Ok(()) | Err(Errno::INPROGRESS) => Ok((connected, is_blocking)),
            Err(errno) => Err(errno),
        }
    }
}

impl Sockets {
    /// Leases a loopback for the sandbox, which has no sockets yet. `egress` leads to the owner's
    /// proxy.
    ///
    /// # Errors
    /// Those of [`Loopback::lease`] and [`WayOut::open`].
    pub(super) fn new(egress: Option<OwnedFd>) -> Result<Self, Errno> {
        let mut limit = rustix::process::getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        // The limit was inherited, and most sandboxes need few.
        let _ = rustix::process::setrlimit(Resource::Nofile, limit);
        let descriptors = rustix::process::getrlimit(Resource::Nofile).current;
        let max = descriptors.map_or(MAX_SOCKETS, |max| (max / 4).min(MAX_SOCKETS));
        let loopback = Loopback::lease()?;
        let address = loopback.way_out_address();
        let key = can_sign_connections()
            .then(SigningKey::random)
            .transpose()?;
        let way_out = match (&key, egress) {
            (Some(key), Some(owner)) => Some(WayOut::open(address, owner, key)?),
            _ => None,
        };
        Ok(Self {
            table: HashMap::new(),
            loopback,
            key,
            way_out,
            max: max as usize,
        })
    }

    /// Carries out a call.
    pub(super) fn make(
        &mut self,
        name: &str,
        listener: BorrowedFd<'_>,
        call: &Notification,
    ) -> Outcome {
        let done = match name {
            "socket" => match self.open(listener, call) {
                Ok(()) => return Outcome::Answered,
                Err(errno) => Err(errno),
            },
            "bind" => self.bind(listener, call),
            "listen" => self.listen(listener, call),
            "connect" => match self.connect(listener, call) {
                Ok(false) => return Outcome::Waiting,
                Ok(true) => Ok(()),
                Err(errno) => Err(errno),
            },
            _ => Err(Errno::NOSYS),
        };
        Outcome::Done(done)
    }

    /// Makes a socket and gives it to the caller.
    fn open(&mut self, listener: BorrowedFd<'_>, call: &Notification) -> Result<(), Errno> {
        let [family, kind, protocol] = [0, 1, 2].map(|index| call.args[index] as i32);
        let flags = kind & !TYPE_BITS;
        if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
            return Err(Errno::INVAL);
        }
        let (family, kind) = match (family, kind & TYPE_BITS, protocol) {
            (libc::AF_INET, libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                (AddressFamily::INET, SocketType::STREAM)
            }
            (libc::AF_INET6, libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                (AddressFamily::INET6, SocketType::STREAM)
            }
            (libc::AF_INET | libc::AF_INET6, _, _) => return Err(Errno::PROTONOSUPPORT),
            (libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE) => {
                (AddressFamily::NETLINK, SocketType::RAW)
            }
            (libc::AF_NETLINK, libc::SOCK_DGRAM, libc::NETLINK_ROUTE) => {
                (AddressFamily::NETLINK, SocketType::DGRAM)
            }
            _ => return Err(Errno::AFNOSUPPORT),
        };
        if self.count() >= self.max {
            self.sweep(listener);
        }
        if self.count() >= self.max {
            return Err(Errno::MFILE);
        }
        let mut own_flags = SocketFlags::CLOEXEC;
        own_flags.set(SocketFlags::NONBLOCK, flags & libc::SOCK_NONBLOCK != 0);
        let protocol: Option<Protocol> = None;
        let copy = rustix::net::socket_with(family, kind, own_flags, protocol)?;
        if family != AddressFamily::NETLINK {
            // Before the process has the socket: nothing may be sent without a signature.
            let key = self.key.as_ref().ok_or(Errno::AFNOSUPPORT)?;
            key.sign(copy.as_fd(), family)?;
        }
        let inode = rustix::fs::fstat(&copy)?.st_ino;
        let is_close_on_exec = flags & libc::SOCK_CLOEXEC != 0;
        notify::give(listener, call.id, copy.as_fd(), is_close_on_exec)?;
        let socket = Socket {
            copy,
            family,
            bound: None,
            has_source: false,
            connecting: None,
            holder: Holder::default(),
        };
        self.table.insert(inode, socket);
        Ok(())
    }

    fn bind(&mut self, listener: BorrowedFd<'_>, call: &Notification) -> Result<(), Errno> {
        let (inode, address) = read_arguments(listener, call)?;
        let own_v6 = self.loopback.address(Side::V6);
        let socket = self.find(inode, call)?;
        let copy = socket.copy.as_fd();
        if socket.bound.is_some() || socket.connecting.is_some() {
            return Err(Errno::INVAL);
        }
        let (side, port) = match (socket.family, address) {
            (AddressFamily::NETLINK, Address::Netlink { port, groups }) => {
                socket_option::bind_netlink(copy, port, groups)?;
                // A socket of netlink is used as it is from now on.
                self.table.remove(&inode);
                return Ok(());
            }
            (AddressFamily::INET, Address::V4(address)) => {
                (side_of_v4(*address.ip(), own_v6), address.port())
            }
            (AddressFamily::INET6, Address::V6(address, port)) => {
                let any = if sockopt::ipv6_v6only(copy)? {
                    Side::V6
                } else {
                    Side::V4
                };
                (side_of_v6(address, own_v6, any), port)
            }
            _ => return Err(Errno::AFNOSUPPORT),
        };
        let side = side.ok_or(Errno::ADDRNOTAVAIL)?;
        self.bind_port(listener, inode, side, port)
    }

    fn bind_port(
        &mut self,
        listener: BorrowedFd<'_>,
        inode: u64,
        side: Side,
        port: u16,
    ) -> Result<(), Errno> {
        if port != 0
            && let Some(key) = self.loopback.find(side, port)
            && (self.is_held(key) || !self.release(listener, key))
        {
            return Err(Errno::ADDRINUSE);
        }
        if self.count() >= self.max {
            self.sweep(listener);
        }
        if self.count() >= self.max {
            return Err(Errno::NOBUFS);
        }
        let socket = self.table.get_mut(&inode).ok_or(Errno::INVAL)?;
        let copy = socket.copy.as_fd();
        let key = self.loopback.bind(copy, side, port, inode, socket.holder)?;
        socket.bound = Some(key);
        socket.has_source = true;
        Ok(())
    }

    fn listen(&mut self, listener: BorrowedFd<'_>, call: &Notification) -> Result<(), Errno> {
        let inode = find_socket(call.thread, call.args[0] as i32)?;
        if !notify::is_waiting(listener, call.id) {
            return Err(Errno::SRCH);
        }
        if !self.table.contains_key(&inode) && self.loopback.is_listener(inode) {
            // Servers of several processes do this in each of them.
            return Ok(());
        }
        let socket = self.find(inode, call)?;
        if socket.family == AddressFamily::NETLINK {
            return Err(Errno::OPNOTSUPP);
        }
        if socket.connecting.is_some() {
            return Err(Errno::INVAL);
        }
        if socket.bound.is_none() {
            // The kernel would bind it to all addresses of the machine.
            self.bind_port(listener, inode, Side::V4, 0)?;
        }
        let socket = self.table.get(&inode).ok_or(Errno::INVAL)?;
        let key = socket.bound.ok_or(Errno::INVAL)?;
        let backlog = call.args[1] as i32;
        self.loopback.listen(key, socket.copy.as_fd(), backlog)?;
        // With a copy here, its clients would wait for ever once its process has ended.
        self.table.remove(&inode);
        Ok(())
    }

    /// Connects a socket. Returns false if the caller has to wait for the result.
    fn connect(&mut self, listener: BorrowedFd<'_>, call: &Notification) -> Result<bool, Errno> {
        let (inode, address) = read_arguments(listener, call)?;
        let own_v6 = self.loopback.address(Side::V6);
        let socket = self.find(inode, call).map_err(|errno| match errno {
            // It is connected, since its copy was dropped.
            Errno::INVAL => Errno::ISCONN,
            errno => errno,
        })?;
        let copy = socket.copy.as_fd();
        if socket.connecting.is_some() {
            if address == Address::Unspecified {
                let _ = self.abort(listener, inode);
                return Ok(true);
            }
            return Err(Errno::ALREADY);
        }
        let (side, wanted, port) = match (socket.family, address) {
            (AddressFamily::NETLINK, Address::Netlink { port, groups }) => {
                socket_option::connect_netlink(copy, port, groups)?;
                self.table.remove(&inode);
                return Ok(true);
            }
            (AddressFamily::INET, Address::V4(address)) => {
                let side = side_of_v4(*address.ip(), own_v6);
                (side, Some(*address.ip()), address.port())
            }
            (AddressFamily::INET6, Address::V6(address, port)) => {
                let side = side_of_v6(address, own_v6, Side::V6);
                // `::1` is nothing outside, and `to_ipv4_mapped` has nothing for it.
                (side, address.to_ipv4_mapped(), port)
            }
            _ => return Err(Errno::AFNOSUPPORT),
        };
        let found = side.map(|side| self.find_live_listener(listener, side, port));
        match (found, wanted) {
            (Some(Ok((key, target))), _) => self.connect_to(inode, key, target, call.id),
            // A name server on the loopback is the machine's, in place of which the proxy answers.
            (Some(Err(_)), _) if port == NAME_PORT && self.way_out.is_some() => {
                self.connect_out(inode, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
            }
            (Some(Err(errno)), _) => Err(errno),
            (None, Some(wanted)) if self.way_out.is_some() => {
                self.connect_out(inode, SocketAddrV4::new(wanted, port))
            }
            (None, _) => Err(Errno::NETUNREACH),
        }
    }

    /// Connects a socket to the owner's proxy, which decides whether the program reaches `wanted`.
    fn connect_out(&mut self, inode: u64, wanted: SocketAddrV4) -> Result<bool, Errno> {
        let source = self.loopback.address(Side::V4);
        let way_out = self.way_out.as_ref().ok_or(Errno::NETUNREACH)?;
        let socket = self.table.get_mut(&inode).ok_or(Errno::INVAL)?;
        let is_blocking = socket.begin_connecting(source, way_out.address())?.1;
        let copy = socket.copy.as_fd();
        if let Err(errno) = way_out.pass_on(copy, wanted) {
            // Nothing is at the other end, so nothing was sent.
            let _ = rustix::net::connect_unspec(copy);
            return Err(errno);
        }
        self.table.remove(&inode);
        if is_blocking {
            Ok(true)
        } else {
            Err(Errno::INPROGRESS)
        }
    }

    /// Returns the port of the sandbox that a connection leads to. A listener that no process holds
    /// any more is given up: the kernel refuses no signed connection to a port without a listener,
    /// it leaves the client waiting.
    fn find_live_listener(
        &mut self,
        listener: BorrowedFd<'_>,
        side: Side,
        port: u16,
    ) -> Result<(PortKey, SocketAddrV4), Errno> {
        loop {
            let (key, target) = self.find_listening(side, port)?;
            if self.is_held(key) {
                return Ok((key, target));
            }
            if !self.release(listener, key) {
                return Err(Errno::CONNREFUSED);
            }
        }
    }

    /// Returns the port of the sandbox that a connection leads to.
    fn find_listening(&self, side: Side, port: u16) -> Result<(PortKey, SocketAddrV4), Errno> {
        let of_side = |side| {
            let key = self.loopback.find(side, port)?;
            Some((key, self.loopback.listening(key)?))
        };
        let found = match side {
            Side::V4 => of_side(Side::V4),
            // A server on `::` has the address of IPv4.
            Side::V6 => of_side(Side::V6).or_else(|| of_side(Side::V4)),
        };
        found.ok_or(Errno::CONNREFUSED)
    }

    fn connect_to(
        &mut self,
        inode: u64,
        key: PortKey,
        target: SocketAddrV4,
        id: u64,
    ) -> Result<bool, Errno> {
        let source = self.loopback.address(Side::V4);
        let socket = self.table.get_mut(&inode).ok_or(Errno::INVAL)?;
        let (connected, is_blocking) = socket.begin_connecting(source, target)?;
        let waiting = is_blocking.then_some(id);
        socket.connecting = Some(Attempt { to: key, waiting });
        let result = match self.settle(inode) {
            None if is_blocking => return Ok(false),
            Some(result) if is_blocking => result,
            _ => connected,
        };
        result.map(|()| true)
    }

    /// Looks whether an attempt to connect has ended. Returns its result then; for a socket that
    /// does not block, the process reads the error itself.
    fn settle(&mut self, inode: u64) -> Option<Result<(), Errno>> {
        let socket = self.table.get_mut(&inode)?;
        let attempt = socket.connecting?;
        if is_attempting(&socket.copy) {
            return None;
        }
        if rustix::net::getpeername(&socket.copy).is_ok() {
            self.table.remove(&inode);
            return Some(Ok(()));
        }
        socket.connecting = None;
        if attempt.waiting.is_none() {
            return Some(Ok(()));
        }
        let error = sockopt::socket_error(&socket.copy).and_then(|error| error);
        Some(Err(error.err().unwrap_or(Errno::CONNREFUSED)))
    }

    /// Returns the copies that become writable when an attempt to connect has ended.
    pub(super) fn connecting(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let sockets = self.table.values();
        sockets
            .filter(|socket| socket.connecting.is_some())
            .map(|socket| socket.copy.as_fd())
    }

    /// Answers the calls whose attempt to connect has ended.
    pub(super) fn settle_all(&mut self, listener: BorrowedFd<'_>) {
        let sockets = self.table.iter();
        let connecting: Vec<(u64, Attempt)> = sockets
            .filter_map(|(inode, socket)| Some((*inode, socket.connecting?)))
            .collect();
        for (inode, attempt) in connecting {
            if let Some(result) = self.settle(inode)
                && let Some(id) = attempt.waiting
            {
                // The caller may have been killed.
                let _ = notify::answer(listener, id, result);
            }
        }
    }

    /// Ends an attempt to connect, if there is one. Returns false if the kernel goes on with it.
    fn abort(&mut self, listener: BorrowedFd<'_>, inode: u64) -> bool {
        let Some(socket) = self.table.get_mut(&inode) else {
            return true;
        };
        let Some(attempt) = socket.connecting else {
            return true;
        };
        // Success is read from the state.
        let _ = rustix::net::connect_unspec(&socket.copy);
        if is_attempting(&socket.copy) {
            return false;
        }
        socket.connecting = None;
        if let Some(id) = attempt.waiting {
            // The caller may have been killed.
            let _ = notify::answer(listener, id, Err(Errno::CONNREFUSED));
        }
        true
    }

    /// Returns true if a process still has the socket of a port open.
    fn is_held(&self, key: PortKey) -> bool {
        find_unheld(self.loopback.socket(key).into_iter()).is_empty()
    }

    /// Gives up a port whose socket no process holds. Returns false if it has to stay.
    fn release(&mut self, listener: BorrowedFd<'_>, key: PortKey) -> bool {
        let sockets = self.table.iter();
        let concerned: Vec<u64> = sockets
            .filter(|(_, socket)| {
                socket.bound == Some(key)
                    || socket.connecting.is_some_and(|attempt| attempt.to == key)
            })
            .map(|(inode, _)| *inode)
            .collect();
        // The kernel would keep the callers waiting: it answers no signed packet to a port without a
        // listener.
        for inode in &concerned {
            if !self.abort(listener, *inode) {
                return false;
            }
        }
        self.table.retain(|_, socket| socket.bound != Some(key));
        self.loopback.release(key);
        true
    }

    /// Drops what no process holds any more.
    pub(super) fn sweep(&mut self, listener: BorrowedFd<'_>) {
        let copies = self.table.iter();
        // An attempt to connect ends by itself.
        let copies = copies.filter(|(_, socket)| socket.connecting.is_none());
        let copies = copies.map(|(inode, socket)| (*inode, socket.holder));
        let bound = self.loopback.sockets();
        let bound = bound.map(|(_, inode, holder)| (inode, holder));
        let unheld = find_unheld(copies.chain(bound));
        let ports: Vec<PortKey> = self
            .loopback
            .sockets()
            .filter(|(_, inode, _)| unheld.contains(inode))
            .map(|(key, _, _)| key)
            .collect();
        for key in ports {
            let _ = self.release(listener, key);
        }
        for inode in unheld {
            if self
                .table
                .get(&inode)
                .is_some_and(|socket| socket.connecting.is_none())
            {
                self.table.remove(&inode);
            }
        }
    }

    /// Returns true if there is something that [`Self::sweep`] may drop.
    pub(super) fn has_any(&self) -> bool {
        self.count() > 0
    }

    fn count(&self) -> usize {
        self.table.len() + self.loopback.len()
    }

    /// Returns a socket by its inode number, and remembers who named it.
    fn find(&mut self, inode: u64, call: &Notification) -> Result<&Socket, Errno> {
        let socket = self.table.get_mut(&inode).ok_or(Errno::INVAL)?;
        socket.holder = Holder {
            thread: call.thread,
            descriptor: call.args[0] as i32,
        };
        Ok(socket)
    }
}

/// Returns true if a socket waits for the answer of the other side. A state that cannot be read
/// counts as such.
fn is_attempting(socket: &OwnedFd) -> bool {
    socket_option::tcp_state(socket.as_fd())
        .map_or(true, |state| matches!(state, SYN_SENT | SYN_RECEIVED))
}

/// Reads the socket and the address of a call.
fn read_arguments(listener: BorrowedFd<'_>, call: &Notification) -> Result<(u64, Address), Errno> {
    let inode = find_socket(call.thread, call.args[0] as i32)?;
    let len = usize::try_from(call.args[2] as i32)
        .ok()
        .filter(|len| *len <= MAX_ADDRESS_BYTES);
    let len = len.ok_or(Errno::INVAL)?;
    let bytes = Memory::open(call.thread)?.bytes(call.args[1], len)?;
    // While the thread waits, its id cannot be reused. So everything that was read was the
    // caller's.
    if !notify::is_waiting(listener, call.id) {
        return Err(Errno::SRCH);
    }
    Ok((inode, parse_address(&bytes)?))
}
