//! Connections of the host to servers of the sandbox: copies bytes between the link and a socket.
//!
//! The socket is created by the guest, so that it belongs to the sandbox's network whichever that
//! is. It connects only to the loopback address. A tunnel does as much as credit, the link and the
//! kernel allow now, and is called again when one of them allows more.

use crate::effect::Effect;
use crate::fault;
use crate::link::Link;
use glovebox_proto::{
    Channel, Code, Fault, RecvWindow, Reply, RequestId, SendWindow, WireError, limits,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum number of bytes moved at once.
const CHUNK_BYTES: usize = limits::MAX_DATA_BYTES as usize;
/// Reads from one tunnel before other tunnels get their turn.
const READS_PER_TURN: usize = 4;

/// Connection to a server of the sandbox.
#[derive(Debug)]
pub(crate) struct Tunnel {
    socket: OwnedFd,
    port: u16,
    /// True if it connects to the IPv6 address.
    is_second: bool,
    /// True until the connection is established.
    is_connecting: bool,
    is_readable: bool,
    is_writable: bool,
    output: SendWindow,
    input: RecvWindow,
    queue: VecDeque<u8>,
    /// True if the host has sent its end mark.
    is_closing: bool,
}

impl Tunnel {
    /// Starts a connection to a port of the loopback address, first with IPv4, then with IPv6.
    ///
    /// # Errors
    /// `not-found` if no server listens there.
    pub(crate) fn connect(port: u16) -> Result<Self, Fault> {
        Self::open(port, false)
            .or_else(|_| Self::open(port, true))
            .map_err(|errno| refused(port, errno))
    }

    fn open(port: u16, is_second: bool) -> Result<Self, Errno> {
        let (family, address) = if is_second {
            (
                AddressFamily::INET6,
                SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
            )
        } else {
            (
                AddressFamily::INET,
                SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            )
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        Ok(Self {
            socket,
            port,
            is_second,
            is_connecting: true,
            is_readable: false,
            is_writable: false,
            output: SendWindow::new(),
            input: RecvWindow::new(),
            queue: VecDeque::new(),
            is_closing: false,
        })
    }

    pub(crate) const fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Handles an event of the socket. Returns true if the socket was replaced and must be watched
    /// anew.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub(crate) fn socket_changed(&mut self) -> Result<bool, Fault> {
        if self.is_connecting {
            let errno = match rustix::net::sockopt::socket_error(&self.socket) {
                Ok(Ok(())) if rustix::net::getpeername(&self.socket).is_err() => return Ok(false),
                Ok(Ok(())) => None,
                Ok(Err(errno)) | Err(errno) => Some(errno),
            };
            if let Some(errno) = errno {
                if self.is_second {
                    return Err(refused(self.port, errno));
                }
                // Input that the host has sent meanwhile is queued for the second attempt.
                let second = Self::open(self.port, true).map_err(|_| refused(self.port, errno))?;
                self.socket = second.socket;
                self.is_second = true;
                return Ok(true);
            }
            self.is_connecting = false;
        }
        self.is_readable = true;
        self.is_writable = true;
        Ok(false)
    }

    /// Takes bytes from the host; the window bounds how many can accumulate.
    pub(crate) fn arrived(&mut self, bytes: &[u8], is_last: bool) -> Result<(), WireError> {
        self.input.arrived(bytes.len() as u32)?;
        if self.is_closing {
            return Err(WireError::BadHeader("data after the end mark"));
        }
        self.queue.extend(bytes);
        self.is_closing = is_last;
        Ok(())
    }

    pub(crate) fn credit(&mut self, bytes: u32) -> Result<(), WireError> {
        self.output.credit(bytes)
    }

    /// Moves as many bytes as possible in both directions.
    pub(crate) fn advance(
        &mut self,
        id: RequestId,
        link: &mut Link,
        scratch: &mut Vec<u8>,
    ) -> Effect<Infallible> {
        if self.is_connecting {
            return Effect::Wait;
        }
        if let Err(errno) = self.write(id, link) {
            return Effect::Answer(Box::new(Err(broken_off(errno))));
        }
        scratch.resize(CHUNK_BYTES, 0);
        for _ in 0..READS_PER_TURN {
            let room = (self.output.room() as usize).min(CHUNK_BYTES);
            if !self.is_readable || room == 0 || link.is_congested() {
                return Effect::Wait;
            }
            let buffer = scratch.get_mut(..room).unwrap_or_default();
            match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Effect::Answer(Box::new(Ok(Reply::Done))),
                Ok((count, _)) => {
                    link.data(
                        id,
                        Channel::Content,
                        buffer.get(..count).unwrap_or_default(),
                    );
                    self.output.spend(count as u32);
                }
                Err(Errno::AGAIN) => self.is_readable = false,
                Err(Errno::INTR) => {}
                Err(errno) => return Effect::Answer(Box::new(Err(broken_off(errno)))),
            }
        }
        Effect::Again
    }

    fn write(&mut self, id: RequestId, link: &mut Link) -> Result<(), Errno> {
        while self.is_writable && !self.queue.is_empty() {
            let (bytes, _) = self.queue.as_slices();
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.queue.drain(..count);
                    if let Some(credit) = self.input.consumed(count as u32) {
                        link.credit(id, Channel::Input, credit);
                    }
                }
                Err(Errno::AGAIN) => self.is_writable = false,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if self.is_writable && self.is_closing && self.queue.is_empty() {
            self.is_writable = false;
            // This fails if the server has closed its side meanwhile, which is no error.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
        Ok(())
    }
}

fn broken_off(errno: Errno) -> Fault {
    fault::system(errno, "the connection broke off")
}

fn refused(port: u16, errno: Errno) -> Fault {
    match errno {
        Errno::CONNREFUSED => Fault::failed(
            Code::NotFound,
            format!("nothing listens on port {port} of the sandbox"),
        )
        .remedy("`glovebox ports NAME` lists what listens there"),
        errno => fault::system(errno, &format!("cannot connect to port {port}")),
    }
}
