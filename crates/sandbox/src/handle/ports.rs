//! Connections to servers inside a sandbox, as byte streams of this process.
//!
//! Each is a request of its own to the guest, which connects to the server on the sandbox's loopback; so it works through
//! whatever carries a sandbox, and the sandbox's network stays as it is.

use crate::control::spawn;
use crate::handle::stream::{Input, Stream};
use crate::link::Incoming;
use crate::{Sandbox, fault};
use glovebox_proto::{Code, Fault, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Bytes read in one go.
const CHUNK_BYTES: usize = 64 << 10;
const STACK_BYTES: usize = 256 << 10;
/// How often it is looked, while a server says nothing, whether its client is still there.
const LOOK: Duration = Duration::from_secs(1);
/// How long a server may leave alone what a client that has gone had sent before.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// A connection to a server inside.
#[derive(Debug)]
pub struct PortConnection {
    stream: UnixStream,
    failure: PortFailure,
}

/// What a connection to a server inside broke off for. It can be kept when the stream is taken.
#[derive(Debug, Clone, Default)]
pub struct PortFailure(Arc<OnceLock<Fault>>);

impl PortConnection {
    /// The bytes, both ways, and what tells why they ended. The stream is blocking.
    pub fn into_parts(self) -> (UnixStream, PortFailure) {
        (self.stream, self.failure)
    }
}

impl PortFailure {
    /// Why it broke off: `not-found` when nothing listened. `None` while it has not, and after an orderly end. It is
    /// there before the stream shows its end.
    pub fn get(&self) -> Option<&Fault> {
        self.0.get()
    }
}

impl Sandbox {
    /// Connects to a port of the sandbox's loopback. The connection lasts until either end closes it; two threads of
    /// this process carry it, so whoever serves others bounds how many there are: `place` is dropped when both have
    /// ended, within seconds after the stream is closed whatever the server does.
    ///
    /// That nothing listens there shows as an end before the first byte, with [`PortFailure::get`] telling so.
    ///
    /// # Errors
    /// `link-lost` for a sandbox that has ended; `unavailable` without a thread or a socket.
    pub fn connect_port(
        &self,
        port: u16,
        place: impl Send + 'static,
    ) -> Result<PortConnection, Fault> {
        let (ours, theirs) = UnixStream::pair()
            .map_err(|error| fault::plain_io("cannot make a pair of sockets", error))?;
        let stream = self.open(Request::Connect { port })?;
        let failure = PortFailure::default();
        let told = failure.clone();
        spawn(move || {
            let tell = |fault: &Fault| {
                // The only one that is set.
                let _ = told.0.set(fault.clone());
            };
            // It has been told.
            let _ = carry(stream, theirs.as_fd(), tell);
            drop(theirs);
            drop(place);
        })
        .map_err(|error| fault::plain_io("cannot start a thread", error))?;
        let stream = ours;
        Ok(PortConnection { stream, failure })
    }

    /// Connects to a port of the sandbox's loopback and carries what `client`, a blocking stream socket, sends and
    /// receives, until the server or the client ends it.
    ///
    /// # Errors
    /// `not-found` when nothing listens there; `link-lost`.
    pub fn forward_port(&self, port: u16, client: BorrowedFd<'_>) -> Result<(), Fault> {
        carry(self.open(Request::Connect { port })?, client, |_| {})
    }
}

/// Carries both ways until one end is over. `tell` hears of a failure before `client` can notice it.
fn carry(
    mut stream: Stream,
    client: BorrowedFd<'_>,
    tell: impl FnOnce(&Fault),
) -> Result<(), Fault> {
    let input = stream.input();
    let is_all_sent = AtomicBool::new(false);
    thread::scope(|scope| {
        let sending = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || {
                send(client, &input);
                is_all_sent.store(true, Ordering::Relaxed);
            });
        let ended = match sending {
            Ok(_) => receive(&mut stream, client, &is_all_sent),
            Err(error) => Err(fault::plain_io("cannot start a thread", error)),
        };
        if let Err(fault) = &ended {
            tell(fault);
        }
        // Ends the other thread; what has been written still arrives.
        let how = if ended.is_ok() {
            Shutdown::Both
        } else {
            Shutdown::Read
        };
        let _ = rustix::net::shutdown(client, how);
        ended
    })
}

fn send(client: BorrowedFd<'_>, input: &Input) {
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        let sent = match rustix::io::read(client, &mut bytes) {
            Ok(0) => break drop(input.finish()),
            Ok(count) => input.send(bytes.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => Ok(()),
            Err(_) => break drop(input.cancel()),
        };
        if sent.is_err() {
            break;
        }
    }
}

fn receive(
    stream: &mut Stream,
    client: BorrowedFd<'_>,
    is_all_sent: &AtomicBool,
) -> Result<(), Fault> {
    let mut silent = Duration::ZERO;
    loop {
        let Some(incoming) = stream.recv_for(LOOK) else {
            silent += LOOK;
            // A server that minds neither the end of what it is sent nor that nobody listens could keep this side for
            // ever.
            let is_left = is_all_sent.load(Ordering::Relaxed) || silent >= LEFT_ALONE;
            if is_left && is_closed(client) {
                return stream.cancel();
            }
            continue;
        };
        silent = Duration::ZERO;
        match incoming {
            Incoming::Data { bytes, .. } => {
                if write_all(client, &bytes).is_err() {
                    // The client has gone; the server learns of it.
                    return stream.cancel();
                }
            }
            Incoming::Reply(Ok(Reply::Done)) => return Ok(()),
            Incoming::Reply(Ok(_)) => {
                return Err(Fault::lost(Code::Protocol, "an unexpected answer"));
            }
            Incoming::Reply(Err(fault)) => return Err(fault),
        }
    }
}

/// Whether a client neither sends nor takes anything any more.
fn is_closed(client: BorrowedFd<'_>) -> bool {
    // What is told without being asked for: a hang-up or an error (poll(2)).
    let mut fds = [PollFd::from_borrowed_fd(client, PollFlags::empty())];
    let at_once = Timespec::default();
    poll(&mut fds, Some(&at_once)).is_ok_and(|count| count > 0)
}

fn write_all(client: BorrowedFd<'_>, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::net::send(client, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
