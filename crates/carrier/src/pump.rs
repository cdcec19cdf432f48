//! Pump on the host: a thread with poll(2) between the local socket and the current pipe to the
//! guest.
//!
//! Opening a pipe blocks, so separate threads do that. Meanwhile the pump accepts local bytes up to
//! its limit.

use crate::connect::{Attempt, Connect, ConnectFailure, Pipe, PipeEnd};
use crate::fault::system_fault;
use crate::status::{LinkShared, Outage};
use crate::times::{Sizes, Times};
use glovebox_proto::resume::{BufferSizes, Identity, ResumeError, ResumeSession};
use glovebox_proto::{Class, Code, Fault, FrameCounter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// Bytes of records that are made at once. A larger number would delay an ACK or a PING.
const WIRE_BYTES: usize = 128 << 10;
/// Time that a guest has to end its jobs and itself after the end of its input.
const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// Time for which a pipe that accepts no bytes is still read: its last bytes may tell why.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Parameters of a pump.
pub(crate) struct PumpCx {
    pub(crate) connect: Arc<dyn Connect>,
    pub(crate) times: Times,
    pub(crate) sizes: Sizes,
    /// Time by which the guest must have answered for the first time.
    pub(crate) deadline: Instant,
    pub(crate) identity: Identity,
    /// Other end of the caller's socket.
    pub(crate) local: OwnedFd,
    pub(crate) shared: Arc<LinkShared>,
}

/// Open pipe, with the bytes that are on their way into it.
struct OpenPipe {
    reader: OwnedFd,
    writer: OwnedFd,
    end: Box<dyn PipeEnd>,
    wire: Vec<u8>,
    /// Number of bytes of `wire` that were written.
    sent: usize,
    /// Time at which a write failed; `None` while the pipe accepts bytes.
    writer_closed_at: Option<Instant>,
    /// Number of bytes received over it.
    received: u64,
    opened_at: Instant,
    heard_at: Instant,
    pinged_at: Instant,
}

/// State of opening a pipe.
#[derive(Debug, Clone, Copy)]
enum Connecting {
    Idle,
    /// A thread is opening a pipe.
    Running,
    /// The next attempt begins at this time.
    Pausing(Instant),
}

/// Reason for the end of the pump.
enum PumpEnd {
    /// Guest and caller have finished, or the caller stopped waiting.
    Closed,
    Lost(Fault),
}

/// Bytes and state between the caller and the guest.
pub(crate) struct Pump {
    connect: Arc<dyn Connect>,
    times: Times,
    sizes: Sizes,
    deadline: Instant,
    local: OwnedFd,
    shared: Arc<LinkShared>,
    session: ResumeSession,
    sent_frames: FrameCounter,
    received_frames: FrameCounter,
    pipe: Option<OpenPipe>,
    connecting: Connecting,
    opened: Receiver<Result<Pipe, ConnectFailure>>,
    opener: Sender<Result<Pipe, ConnectFailure>>,
    outage: Option<Outage>,
    /// Number of attempts and pipes that failed in this outage.
    failures: u32,
    /// Reason of the last failure of a pipe or an attempt.
    reason: Option<String>,
    buffer: Vec<u8>,
    ack_at: Option<Instant>,
    /// Time at which the pump stops waiting for the guest's end.
    leave_at: Option<Instant>,
    /// True if the caller has closed its end for reading.
    is_local_closed: bool,
}

impl Pump {
    pub(crate) fn new(cx: PumpCx, first: Pipe) -> Result<Self, Fault> {
        let sizes = BufferSizes {
            unacknowledged: cx.sizes.buffer,
            record: cx.sizes.record,
        };
        let keep = cx.times.window + cx.times.keep;
        let (opener, opened) = channel();
        set_nonblocking(&cx.local)?;
        let mut pump = Self {
            session: ResumeSession::host(cx.identity, keep, sizes),
            sent_frames: FrameCounter::default(),
            received_frames: FrameCounter::default(),
            connect: cx.connect,
            times: cx.times,
            sizes: cx.sizes,
            deadline: cx.deadline,
            local: cx.local,
            shared: cx.shared,
            pipe: None,
            connecting: Connecting::Idle,
            opened,
            opener,
            outage: None,
            failures: 0,
            reason: None,
            buffer: vec![0; READ_BYTES],
            ack_at: None,
            leave_at: None,
            is_local_closed: false,
        };
        pump.use_pipe(first)
            .map_err(|error| session_fault(&error))?;
        Ok(pump)
    }

    /// Carries bytes until the guest has ended or is lost, or the caller closes the link.
    pub(crate) fn run(mut self) {
        let end = loop {
            if let Err(end) = self.turn() {
                break end;
            }
        };
        let mut status = self.shared.status();
        status.outage = None;
        if let PumpEnd::Lost(fault) = end {
            // Before the local socket closes: its end makes the caller read the reason.
            status.lost = Some(fault);
        }
    }

    fn turn(&mut self) -> Result<(), PumpEnd> {
        self.open_pipe_if_needed();
        self.write_local();
        self.request_acks_and_pings();
        self.write_pipe();
        self.check_end()?;
        let ready = self.wait()?;
        if ready.wake {
            let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
            while let Ok(result) = self.opened.try_recv() {
                self.take_opened(result)?;
            }
            self.close_if_asked();
        }
        if ready.local {
            self.read_local();
        }
        if ready.pipe {
            self.read_pipe()?;
        }
        self.check_pipe();
        Ok(())
    }

    /// Ends the pump if nothing is left to do or to wait for.
    fn check_end(&self) -> Result<(), PumpEnd> {
        let now = Instant::now();
        let is_all_sent = (self.pipe.as_ref()).is_some_and(|pipe| pipe.sent == pipe.wire.len());
        if self.session.is_finished() && is_all_sent
            || self.leave_at.is_some_and(|leave| now >= leave)
        {
            return Err(PumpEnd::Closed);
        }
        if now < self.give_up_at() {
            return Ok(());
        }
        Err(PumpEnd::Lost(if self.session.has_met() {
            let window = self.times.window.as_secs_f32();
            self.lost(&format!("did not come back within {window} s"))
        } else {
            self.not_started("it did not answer in time")
        }))
    }

    /// Returns the time at which the link is given up if nothing changes.
    fn give_up_at(&self) -> Instant {
        match self.outage {
            _ if !self.session.has_met() => self.deadline,
            Some(outage) => outage.until,
            None => Instant::now() + self.times.window,
        }
    }

    fn lost(&self, what: &str) -> Fault {
        let reason = self.reason.as_ref();
        let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        Fault::lost(
            Code::LinkLost,
            format!("the connection to the guest {what}{reason}"),
        )
    }

    fn not_started(&self, what: &str) -> Fault {
        let reason = self.reason.as_deref().unwrap_or(what);
        Fault::failed(
            Code::CarrierFailed,
            format!("the guest did not start: {reason}"),
        )
    }

    // Opening pipes.

    /// Starts to open a pipe if there is none, or if the current one has carried its maximum.
    fn open_pipe_if_needed(&mut self) {
        let is_needed = match &self.pipe {
            None => true,
            Some(pipe) => {
                let is_worn = self
                    .sizes
                    .rotate
                    .is_some_and(|rotate| pipe.received >= rotate);
                is_worn && self.session.is_open() && self.leave_at.is_none()
            }
        };
        let is_time = match self.connecting {
            Connecting::Idle => true,
            Connecting::Running => false,
            Connecting::Pausing(at) => Instant::now() >= at,
        };
        if !is_needed || !is_time {
            return;
        }
        let deadline = (Instant::now() + self.times.open).min(self.give_up_at());
        let connect = Arc::clone(&self.connect);
        let (opener, shared) = (self.opener.clone(), Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name("carrier connect".to_owned());
        let result = thread.spawn(move || {
            // If the link has ended meanwhile, the send fails and drops the pipe, which closes it.
            let _ = opener.send(connect.connect(Attempt::Again, deadline));
            shared.wake();
        });
        match result {
            Ok(_) => self.connecting = Connecting::Running,
            Err(error) => self.pause(format!("cannot start a thread: {error}"), None),
        }
    }

    fn take_opened(&mut self, result: Result<Pipe, ConnectFailure>) -> Result<(), PumpEnd> {
        self.connecting = Connecting::Idle;
        match result {
            Ok(pipe) => self.use_pipe(pipe).map_err(|error| self.over(&error)),
            Err(ConnectFailure::Retry { fault, after }) => {
                self.pause(fault.message, after);
                Ok(())
            }
            Err(ConnectFailure::Final(fault)) => Err(PumpEnd::Lost(if self.session.has_met() {
                Fault {
                    class: Class::Lost,
                    ..fault
                }
            } else {
                fault
            })),
        }
    }

    fn pause(&mut self, reason: String, after: Option<Duration>) {
        let pause = self.times.backoff.pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.reason = Some(reason);
        let pause = pause.max(after.unwrap_or_default());
        self.connecting = Connecting::Pausing(Instant::now() + pause);
    }

    /// Begins to use a pipe, and closes the previous one.
    fn use_pipe(&mut self, pipe: Pipe) -> Result<(), ResumeError> {
        let Pipe {
            reader,
            writer,
            early,
            end,
        } = pipe;
        for fd in [&reader, &writer] {
            if let Err(fault) = set_nonblocking(fd) {
                self.break_pipe(fault.message);
                return Ok(());
            }
        }
        let now = Instant::now();
        self.pipe = Some(OpenPipe {
            reader,
            writer,
            end,
            wire: Vec::new(),
            sent: 0,
            writer_closed_at: None,
            received: early.len() as u64,
            opened_at: now,
            heard_at: now,
            pinged_at: now,
        });
        self.session.begin_pipe();
        self.receive(&early, 0)
    }

    /// Processes received bytes: `early`, then the first `count` bytes of the buffer.
    fn receive(&mut self, early: &[u8], count: usize) -> Result<(), ResumeError> {
        let was_open = self.session.is_open();
        self.session.receive(early)?;
        self.session.receive(&self.buffer[..count])?;
        if self.session.is_open() && !was_open && self.outage.take().is_some() {
            self.shared.status().outage = None;
            self.shared.meter.add_reconnect();
        }
        if self.session.is_open() {
            self.failures = 0;
        }
        Ok(())
    }

    /// Closes the current pipe, and pauses before the next attempt.
    fn break_pipe(&mut self, why: String) {
        let pipe = self.pipe.take();
        let reason = pipe.and_then(|pipe| pipe.end.reason()).unwrap_or(why);
        self.session.end_pipe();
        self.ack_at = None;
        if self.outage.is_none() {
            let since = Instant::now();
            let until = since + self.times.window;
            self.outage = Some(Outage { since, until });
            if self.session.has_met() {
                self.shared.status().outage = self.outage;
            }
        }
        if matches!(self.connecting, Connecting::Running) {
            self.reason = Some(reason);
        } else {
            self.pause(reason, None);
        }
    }

    /// Closes a pipe that was silent for too long.
    fn check_pipe(&mut self) {
        let Some(pipe) = &self.pipe else {
            return;
        };
        let now = Instant::now();
        if now >= self.pipe_ends_at(pipe) {
            self.break_pipe(if pipe.writer_closed_at.is_some() {
                "it takes no more bytes".to_owned()
            } else if self.session.is_open() {
                let silent = self.times.silent.as_secs_f32();
                format!("nothing came for {silent} s")
            } else {
                "the guest did not answer".to_owned()
            });
        }
    }

    fn pipe_ends_at(&self, pipe: &OpenPipe) -> Instant {
        if let Some(closed_at) = pipe.writer_closed_at {
            closed_at + LAST_WORDS
        } else if self.session.is_open() {
            pipe.heard_at + self.times.silent
        } else if !self.session.has_met() {
            // The guest may just be starting behind this pipe. Another pipe would not lead to it.
            self.deadline
        } else {
            pipe.opened_at + self.times.open
        }
    }

    /// Returns the end of the pump for an error in the records.
    fn over(&self, error: &ResumeError) -> PumpEnd {
        PumpEnd::Lost(if self.session.has_met() {
            session_fault(error)
        } else {
            self.not_started(&error.to_string())
        })
    }

    // Carrying bytes.

    fn read_pipe(&mut self) -> Result<(), PumpEnd> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        match rustix::io::read(&pipe.reader, &mut self.buffer[..]) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(0) => self.break_pipe("it was closed".to_owned()),
            Err(errno) => self.break_pipe(format!("it broke: {errno}")),
            Ok(count) => {
                pipe.heard_at = Instant::now();
                pipe.received += count as u64;
                self.receive(&[], count)
                    .map_err(|error| self.over(&error))?;
            }
        }
        Ok(())
    }

    fn write_pipe(&mut self) {
        let Some(pipe) = &mut self.pipe else {
            return;
        };
        while pipe.writer_closed_at.is_none() {
            if pipe.sent == pipe.wire.len() {
                pipe.wire.clear();
                pipe.sent = 0;
                self.session.fill_wire(&mut pipe.wire, WIRE_BYTES);
                if pipe.wire.is_empty() {
                    return;
                }
            }
            match rustix::io::write(&pipe.writer, &pipe.wire[pipe.sent..]) {
                Ok(count) => pipe.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => pipe.writer_closed_at = Some(Instant::now()),
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
            Ok(0) | Err(_) => self.end_outgoing(),
            Ok(count) => {
                let bytes = &self.buffer[..count];
                let frames = self.sent_frames.count(bytes);
                self.shared.meter.add_sent(frames, count);
                self.session.push_outgoing(bytes);
            }
        }
    }

    fn end_outgoing(&mut self) {
        self.session.end_outgoing();
        self.leave_at.get_or_insert(Instant::now() + CLOSE_WAIT);
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
                Ok(count) => {
                    let frames = self.received_frames.count(&bytes[..count]);
                    self.shared.meter.add_received(frames, count);
                    self.session.consume(count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.is_local_closed = true,
            }
        }
        if self.session.is_incoming_ended() {
            // A guest that has ended reads nothing. The end of the output lets it exit.
            self.end_outgoing();
        }
    }

    fn close_if_asked(&mut self) {
        if self.shared.is_closing.load(Ordering::Acquire) && self.leave_at.is_none() {
            // Bytes that the caller wrote before can still be read. The end follows them.
            let _ = shutdown(&self.local, Shutdown::Read);
            self.leave_at = Some(Instant::now() + CLOSE_WAIT);
        }
    }

    fn request_acks_and_pings(&mut self) {
        let now = Instant::now();
        if !self.session.has_unacknowledged_input() {
            self.ack_at = None;
        } else if *self.ack_at.get_or_insert(now + self.times.ack) <= now {
            self.session.request_ack();
            self.ack_at = None;
        }
        if let Some(pipe) = &mut self.pipe
            && self.session.is_open()
            && now >= ping_at(pipe, self.times)
        {
            pipe.pinged_at = now;
            self.session.request_ping();
        }
    }

    // Waiting.

    fn wait(&self) -> Result<Ready, PumpEnd> {
        let mut local = PollFlags::empty();
        local.set(PollFlags::IN, self.session.outgoing_room() > 0);
        local.set(
            PollFlags::OUT,
            !self.session.incoming().is_empty() && !self.is_local_closed,
        );
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        if let Some(pipe) = &self.pipe {
            fds.push(PollFd::new(&pipe.reader, PollFlags::IN));
            let has_output = pipe.sent < pipe.wire.len() || self.session.has_output();
            if has_output && pipe.writer_closed_at.is_none() {
                fds.push(PollFd::new(&pipe.writer, PollFlags::OUT));
            }
        }
        // A socket without events is left out: poll(2) would report its hangup again and again.
        if !local.is_empty() {
            fds.push(PollFd::new(&self.local, local));
        }
        let left = self.next_timer().saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                let message = format!("cannot wait for the guest: {errno}");
                return Err(PumpEnd::Lost(Fault::lost(Code::Io, message)));
            }
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Ok(Ready {
            wake: is_ready(&fds[0]),
            pipe: self.pipe.is_some() && is_ready(&fds[1]),
            local: !local.is_empty()
                && (fds.last()).is_some_and(|fd| {
                    fd.revents()
                        .intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
                }),
        })
    }

    /// Returns the time at which something is due even if nothing arrives.
    fn next_timer(&self) -> Instant {
        let mut next = self.give_up_at();
        let mut sooner = |at: Instant| next = next.min(at);
        self.leave_at.into_iter().for_each(&mut sooner);
        self.ack_at.into_iter().for_each(&mut sooner);
        if let Connecting::Pausing(at) = self.connecting
            && self.pipe.is_none()
        {
            sooner(at);
        }
        if let Some(pipe) = &self.pipe {
            sooner(self.pipe_ends_at(pipe));
            if self.session.is_open() {
                sooner(ping_at(pipe, self.times));
            }
        }
        next
    }
}

/// Descriptors that are ready.
struct Ready {
    wake: bool,
    pipe: bool,
    local: bool,
}

fn ping_at(pipe: &OpenPipe, times: Times) -> Instant {
    pipe.heard_at.max(pipe.pinged_at) + times.ping
}

/// Returns the fault for an error in the records.
fn session_fault(error: &ResumeError) -> Fault {
    match error {
        ResumeError::Refused(_) | ResumeError::AnotherPeer => Fault::lost(
            Code::LinkLost,
            format!("the guest cannot be reached again: {error}"),
        ),
        _ => Fault::lost(
            Code::Protocol,
            format!("the guest broke the protocol of the carrier: {error}"),
        ),
    }
}

fn set_nonblocking(fd: &OwnedFd) -> Result<(), Fault> {
    let set = || fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK);
    set().map_err(|errno| system_fault("set up a connection", errno))
}
