//! Ports of a sandbox that its proxy listens on, and the unused sockets for further ports.

use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener};

/// Maximum number of connections that wait to be accepted, for each port.
const BACKLOG: i32 = 1024;

/// Open ports and unused sockets of one sandbox.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// Unbound stream sockets in the sandbox's network namespace.
    spare: Vec<OwnedFd>,
    /// Ports that are open at every address of the sandbox.
    ports: BTreeSet<u16>,
    /// True if connections to every port arrive without a listener.
    is_every_port_open: bool,
}

impl Listeners {
    pub(crate) const fn new(spare: Vec<OwnedFd>) -> Self {
        Self {
            spare,
            ports: BTreeSet::new(),
            is_every_port_open: false,
        }
    }

    /// Returns the value for a sandbox whose connections are passed on, whatever their port.
    pub(crate) const fn every_port() -> Self {
        Self {
            spare: Vec::new(),
            ports: BTreeSet::new(),
            is_every_port_open: true,
        }
    }

    /// Returns the ports of `ports` on which the proxy does not listen.
    pub(crate) fn missing(&self, ports: &BTreeSet<u16>) -> Vec<u16> {
        let ports = ports.iter().copied();
        ports.filter(|port| !self.is_open(*port)).collect()
    }

    /// Returns true if the proxy listens on `port` at every address.
    pub(crate) fn is_open(&self, port: u16) -> bool {
        self.is_every_port_open || self.ports.contains(&port)
    }

    /// Returns the number of unused sockets, each of which can open a further port.
    pub(crate) fn spare(&self) -> usize {
        self.spare.len()
    }

    /// Binds an unused socket to `address` and listens. A port above 1023 may be taken by a program
    /// inside. A lower port cannot: programs inside lack `CAP_NET_BIND_SERVICE`.
    pub(crate) fn listen(&mut self, address: SocketAddrV4) -> io::Result<TcpListener> {
        let socket = self
            .spare
            .pop()
            .ok_or_else(|| io::Error::other("there is no socket left for another port"))?;
        if let Err(errno) = rustix::net::bind(&socket, &SocketAddr::V4(address)) {
            // The failed bind has not changed the socket, so that another port can use it.
            self.spare.push(socket);
            return Err(errno.into());
        }
        rustix::net::listen(&socket, BACKLOG)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        if address.ip().is_unspecified() {
            self.ports.insert(address.port());
        }
        Ok(listener)
    }
}
