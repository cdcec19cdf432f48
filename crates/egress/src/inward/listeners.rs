//! Ports of a sandbox that its proxy listens on, and the sockets that are left for more.

use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener};

/// Connections that may wait to be accepted, per port.
const BACKLOG: i32 = 1024;

/// Ports and sockets.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// Stream sockets of the sandbox that are not bound.
    spare: Vec<OwnedFd>,
    /// Those that every address of the sandbox is listened on at.
    ports: BTreeSet<u16>,
}

impl Listeners {
    pub(crate) const fn new(spare: Vec<OwnedFd>) -> Self {
        Self {
            spare,
            ports: BTreeSet::new(),
        }
    }

    /// Those of the ports that nothing listens on.
    pub(crate) fn missing(&self, ports: &BTreeSet<u16>) -> Vec<u16> {
        ports.difference(&self.ports).copied().collect()
    }

    /// Whether it listens on this one.
    pub(crate) fn is_open(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// How many more ports there can be.
    pub(crate) fn spare(&self) -> usize {
        self.spare.len()
    }

    /// Listens there. Ports above 1023 may be in use by a command; below, no command can have one (they lack the
    /// capability), so that nobody is in the way.
    pub(crate) fn listen(&mut self, address: SocketAddrV4) -> io::Result<TcpListener> {
        let socket = self
            .spare
            .pop()
            .ok_or_else(|| io::Error::other("there is no socket left for another port"))?;
        if let Err(errno) = rustix::net::bind(&socket, &SocketAddr::V4(address)) {
            // It is as it was.
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
