//! Pump of the guest: one thread between the event loop's socket and the current connection to the
//! host.
//!
//! It keeps the bytes that the host has not acknowledged, and the time at which it last received
//! anything from the host.

use super::run_dir::RunDir;
use glovebox_proto::resume::{
    BufferSizes, Record, RecordDecoder, RecordError, Refusal, ResumeHello, ResumeSession,
    encode_record,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::time::{Duration, Instant};

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Maximum number of record bytes encoded at once, so that an ACK does not wait behind many.
const WIRE_BYTES: usize = 128 << 10;
/// Maximum time before bytes that the event loop has consumed are acknowledged.
const ACK_DELAY: Duration = Duration::from_secs(1);
/// Time for the first host to greet.
const FIRST_GREETING: Duration = Duration::from_mins(2);
/// Time for a further connection to greet.
const GREETING: Duration = Duration::from_secs(10);
/// Maximum number of connections that have not greeted.
const MAX_STRANGERS: usize = 8;
/// Maximum number of bytes of one read from a connection that has not greeted.
const GREETING_BYTES: usize = 4096;

/// The connection to the host.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    wire: Vec<u8>,
    /// Number of bytes of `wire` already sent.
    sent: usize,
    /// True if writing has failed; the last bytes of the peer may still arrive.
    is_writer_closed: bool,
}

/// Connection that has not sent its first record.
#[derive(Debug)]
struct Stranger {
    socket: OwnedFd,
    decoder: RecordDecoder,
    until: Instant,
}

/// Role of a polled descriptor.
#[derive(Debug, Clone, Copy)]
enum Source {
    Local,
    Listener,
    Connection,
    Stranger(usize),
}

/// Result of reading from a connection that has not greeted.
enum GreetingState {
    Incomplete,
    Complete(ResumeHello),
    Refused(Refusal),
    Closed,
}

/// State between the event loop and the host.
#[derive(Debug)]
pub(super) struct Pump {
    run_dir: RunDir,
    /// The pump's end of the event loop's socket pair.
    local: OwnedFd,
    session: ResumeSession,
    connection: Option<Connection>,
    strangers: Vec<Stranger>,
    buffer: Vec<u8>,
    /// Time at which the host last sent bytes, connected or lost its connection.
    heard_at: Instant,
    ack_at: Option<Instant>,
    /// Time at which the pump stops waiting for the host after the event loop has ended.
    leave_at: Option<Instant>,
    /// True if the event loop accepts no more bytes.
    is_local_closed: bool,
}

impl Pump {
    /// Prepares to serve a host that greets over `first` or connects at `run_dir`.
    pub(super) fn new(run_dir: RunDir, first: OwnedFd, local: OwnedFd) -> Result<Self, Errno> {
        for fd in [&first, &local] {
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        let now = Instant::now();
        Ok(Self {
            run_dir,
            local,
            session: ResumeSession::guest(BufferSizes::default()),
            connection: None,
            strangers: vec![Stranger {
                socket: first,
                decoder: RecordDecoder::new(),
                until: now + FIRST_GREETING,
            }],
            buffer: vec![0; READ_BYTES],
            heard_at: now,
            ack_at: None,
            leave_at: None,
            is_local_closed: false,
        })
    }

    /// Carries bytes until the session is over. Dropping the pump then closes the event loop's
    /// socket.
    pub(super) fn run(mut self) {
        while !self.is_over() {
            let Some(ready) = self.wait() else {
                return;
            };
            for (source, flags) in ready {
                let result = match source {
                    Source::Local if flags != PollFlags::OUT => {
                        self.read_local();
                        Ok(())
                    }
                    // Writing is attempted in every turn.
                    Source::Local => Ok(()),
                    Source::Listener => {
                        self.accept();
                        Ok(())
                    }
                    Source::Connection => self.read_connection(),
                    Source::Stranger(number) => self.read_stranger(number),
                };
                if result.is_err() {
                    // The host broke the rules; it would not understand an answer.
                    return;
                }
            }
            let now = Instant::now();
            self.strangers.retain(|stranger| stranger.until > now);
            self.write_local();
            self.request_ack();
            self.write_connection();
        }
    }

    /// Returns the time without bytes from the host after which the session is over.
    fn keep(&self) -> Duration {
        if self.session.has_met() {
            self.session.keep()
        } else {
            FIRST_GREETING
        }
    }

    fn is_over(&self) -> bool {
        let now = Instant::now();
        let is_all_sent = (self.connection.as_ref())
            .is_some_and(|connection| connection.sent == connection.wire.len());
        self.session.is_finished() && is_all_sent
            || now >= self.heard_at + self.keep()
            || self.leave_at.is_some_and(|leave| now >= leave)
    }

    /// Waits for readiness or the next deadline. `None` if poll(2) fails.
    fn wait(&mut self) -> Option<Vec<(Source, PollFlags)>> {
        let mut sources = Vec::with_capacity(3 + self.strangers.len());
        let mut fds = Vec::with_capacity(sources.capacity());
        let mut watch = |source, fd, flags| {
            sources.push(source);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        };
        let mut local = PollFlags::empty();
        local.set(PollFlags::IN, self.session.outgoing_room() > 0);
        local.set(
            PollFlags::OUT,
            !self.session.incoming().is_empty() && !self.is_local_closed,
        );
        // Without a requested event the descriptor is omitted: its hang-up would be reported in
        // every turn.
        if !local.is_empty() {
            watch(Source::Local, self.local.as_fd(), local);
        }
        if self.strangers.len() < MAX_STRANGERS {
            let listener = self.run_dir.listener().as_fd();
            watch(Source::Listener, listener, PollFlags::IN);
        }
        if let Some(connection) = &self.connection {
            let has_output = connection.sent < connection.wire.len() || self.session.has_output();
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, has_output && !connection.is_writer_closed);
            watch(Source::Connection, connection.socket.as_fd(), flags);
        }
        for (number, stranger) in self.strangers.iter().enumerate() {
            watch(
                Source::Stranger(number),
                stranger.socket.as_fd(),
                PollFlags::IN,
            );
        }
        let mut next = self.heard_at + self.keep();
        let others = self.strangers.iter().map(|stranger| stranger.until);
        for at in others.chain(self.ack_at).chain(self.leave_at) {
            next = next.min(at);
        }
        let left = next.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        let ready = sources
            .into_iter()
            .zip(&fds)
            .map(|(source, fd)| (source, fd.revents()))
            .filter(|(_, flags)| !flags.is_empty());
        // Reversed, so that removing a stranger does not change the numbers of those still to be
        // handled.
        let mut ready: Vec<_> = ready.collect();
        ready.reverse();
        Some(ready)
    }

    fn accept(&mut self) {
        if let Some(socket) = self.run_dir.accept() {
            self.strangers.push(Stranger {
                socket,
                decoder: RecordDecoder::new(),
                until: Instant::now() + GREETING,
            });
        }
    }

    /// Reads from a connection that has not greeted. If its greeting is valid, it becomes the
    /// connection to the host.
    fn read_stranger(&mut self, number: usize) -> Result<(), SessionOver> {
        let Some(stranger) = self.strangers.get_mut(number) else {
            return Ok(());
        };
        let hello = match read_greeting(stranger) {
            GreetingState::Incomplete => return Ok(()),
            GreetingState::Complete(hello) => hello,
            GreetingState::Refused(refusal) => {
                refuse(&self.strangers.remove(number).socket, refusal);
                return Ok(());
            }
            GreetingState::Closed => {
                self.strangers.remove(number);
                return Ok(());
            }
        };
        let Stranger {
            socket, decoder, ..
        } = self.strangers.remove(number);
        if let Err(refusal) = self.session.accept(&hello, decoder) {
            refuse(&socket, refusal);
            return Ok(());
        }
        // This closes a previous connection, which the host has given up.
        self.connection = Some(Connection {
            socket,
            wire: Vec::new(),
            sent: 0,
            is_writer_closed: false,
        });
        self.heard_at = Instant::now();
        self.session.receive(&[]).map_err(|_| SessionOver)
    }

    fn read_connection(&mut self) -> Result<(), SessionOver> {
        let Some(connection) = &self.connection else {
            return Ok(());
        };
        match rustix::io::read(&connection.socket, &mut self.buffer[..]) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Ok(0) | Err(_) => {
                self.drop_connection();
                Ok(())
            }
            Ok(count) => {
                self.heard_at = Instant::now();
                let bytes = &self.buffer[..count];
                self.session.receive(bytes).map_err(|_| SessionOver)
            }
        }
    }

    fn drop_connection(&mut self) {
        self.connection = None;
        self.session.end_pipe();
        self.ack_at = None;
        self.heard_at = Instant::now();
    }

    fn write_connection(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        while !connection.is_writer_closed {
            if connection.sent == connection.wire.len() {
                connection.wire.clear();
                connection.sent = 0;
                self.session.fill_wire(&mut connection.wire, WIRE_BYTES);
                if connection.wire.is_empty() {
                    return;
                }
            }
            match rustix::io::write(&connection.socket, &connection.wire[connection.sent..]) {
                Ok(count) => connection.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => connection.is_writer_closed = true,
            }
        }
    }

    fn read_local(&mut self) {
        let room = self.session.outgoing_room().min(self.buffer.len());
        if room == 0 {
            return;
        }
        match rustix::io::read(&self.local, &mut self.buffer[..room]) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(0) | Err(_) => {
                self.session.end_outgoing();
                // The host has received the last answers or reconnects for them. Nothing runs that
                // it could want besides them.
                self.leave_at = Some(Instant::now() + self.keep());
            }
            Ok(count) => self.session.push_outgoing(&self.buffer[..count]),
        }
    }

    fn write_local(&mut self) {
        loop {
            let bytes = self.session.incoming();
            if bytes.is_empty() {
                break;
            }
            if self.is_local_closed {
                let count = bytes.len();
                self.session.consume(count);
                continue;
            }
            match rustix::io::write(&self.local, bytes) {
                Ok(count) => self.session.consume(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.is_local_closed = true,
            }
        }
        if self.session.is_incoming_ended() && !self.is_local_closed {
            // End of input tells the event loop to end every job and itself.
            let _ = shutdown(&self.local, Shutdown::Write);
            self.is_local_closed = true;
        }
    }

    fn request_ack(&mut self) {
        if !self.session.has_unacknowledged_input() {
            self.ack_at = None;
            return;
        }
        let now = Instant::now();
        if *self.ack_at.get_or_insert(now + ACK_DELAY) <= now {
            self.session.request_ack();
            self.ack_at = None;
        }
    }
}

/// The host broke the rules of the session.
#[derive(Debug)]
struct SessionOver;

fn read_greeting(stranger: &mut Stranger) -> GreetingState {
    let mut buffer = [0; GREETING_BYTES];
    match rustix::io::read(&stranger.socket, &mut buffer) {
        Err(Errno::AGAIN | Errno::INTR) => return GreetingState::Incomplete,
        Ok(0) | Err(_) => return GreetingState::Closed,
        Ok(count) => stranger.decoder.push(&buffer[..count]),
    }
    // TRUST: until the key is verified, the bytes may come from any process of this user id. Only
    // one record is decoded, and its size is bounded.
    match stranger.decoder.next_record() {
        Ok(None) => GreetingState::Incomplete,
        Ok(Some(Record::Hello(hello))) => GreetingState::Complete(hello),
        Err(RecordError::Version(_)) => GreetingState::Refused(Refusal::Version),
        Ok(Some(_)) | Err(_) => GreetingState::Closed,
    }
}

/// Tells a connection why it is closed. A new socket has room for these few bytes.
fn refuse(socket: &OwnedFd, refusal: Refusal) {
    let mut wire = Vec::new();
    encode_record(&Record::Refuse(refusal), &mut wire);
    let _ = rustix::io::write(socket, &wire);
}
