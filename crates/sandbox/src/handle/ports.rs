//! Connections to servers inside a sandbox, as byte streams of this process.
//!
//! Each connection is a request to the guest, which connects to the server on the sandbox's
//! loopback. It therefore works over every link to a sandbox, and the sandbox's network is not
//! changed.

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

/// Size of the read buffer, in bytes.
const CHUNK_BYTES: usize = 64 << 10;
const STACK_BYTES: usize = 256 << 10;
/// Interval of checks whether the client is still there while the server sends nothing.
const LOOK: Duration = Duration::from_secs(1);
/// Time without data from the server after which a client that is gone ends the connection, even if
/// the server still has input to read.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// Connection to a server inside a sandbox.
#[derive(Debug)]
pub struct PortConnection {
    stream: UnixStream,
    failure: PortFailure,
}

/// Failure of a connection to a server inside. It can be kept after the stream was taken.
#[derive(Debug, Clone, Default)]
pub struct PortFailure(Arc<OnceLock<Fault>>);

impl PortConnection {
    /// Returns the stream, which is blocking, and the handle that tells why it ended.
    pub fn into_parts(self) -> (UnixStream, PortFailure) {
        (self.stream, self.failure)
    }
}

impl PortFailure {
    /// Returns the failure: `not-found` if nothing listens on the port. `None` while the connection
    /// is open and after an orderly end. The failure is set before the stream ends.
    pub fn get(&self) -> Option<&Fault> {
        self.0.get()
    }
}

impl Sandbox {
    /// Connects to a port of the sandbox's loopback. The connection lasts until either end closes
    /// it. Two threads of this process carry it, so a server bounds their number with `place`,
    /// which is dropped when both have ended: within seconds after the stream is closed, whatever
    /// the server inside does.
    ///
    /// If nothing listens on the port, the stream ends before the first byte and
    /// [`PortFailure::get`] returns the reason.
    ///
    /// # Errors
    /// `link-lost` if the sandbox has ended; `unavailable` if no thread or socket can be created.
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
                // Called at most once, so the cell is empty.
                let _ = told.0.set(fault.clone());
            };
            // `tell` has recorded the failure.
            let _ = carry(stream, theirs.as_fd(), tell);
            drop(theirs);
            drop(place);
        })
        .map_err(|error| fault::plain_io("cannot start a thread", error))?;
        let stream = ours;
        Ok(PortConnection { stream, failure })
    }

    /// Connects to a port of the sandbox's loopback and copies data from and to `client`, a
    /// blocking stream socket, until the server or the client closes it.
    ///
    /// # Errors
    /// `not-found` if nothing listens on the port; `link-lost`.
    pub fn forward_port(&self, port: u16, client: BorrowedFd<'_>) -> Result<(), Fault> {
        carry(self.open(Request::Connect { port })?, client, |_| {})
    }
}

/// Copies data in both directions until one end closes. Calls `tell` with a failure before `client`
/// can notice it.
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
        // Ends the other thread. Bytes that were written to the client still arrive.
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
            // Otherwise a server that ignores the end of its input and sends nothing would keep
            // these threads for ever.
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
                    // The cancellation tells the server that the client is gone.
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

/// Returns true if a client has closed both directions.
fn is_closed(client: BorrowedFd<'_>) -> bool {
    // poll(2) reports a hang-up and an error without being asked for any event.
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
