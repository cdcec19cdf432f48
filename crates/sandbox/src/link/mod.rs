//! Link to a guest: many concurrent requests over one byte stream, without a thread of its own.
//!
//! A thread that waits while no other thread reads becomes the *leader*: it reads the stream itself
//! and puts frames of other requests into their queues. A single caller thus pays for one write and
//! one read, without a switch between threads. A leader that has received its reply stops leading,
//! and a waiting thread takes over.
//!
//! Rules that prevent deadlocks:
//! - No lock is held while waiting for the peer. `outgoing` and `shared` are held briefly and never
//!   both; `incoming` is locked by the leader only.
//! - A thread that waits for the peer to take bytes also reads if no other thread does, so two full
//!   pipes cannot wait for each other.
//! - A thread that stops waiting while there is no leader wakes one that still waits.
//!
//! Everything from the guest is untrusted. `proto` bounds the frames, and a frame that does not fit
//! an open request ends the link.

mod exchange;
mod handshake;
mod incoming;
mod outgoing;
mod reading;
mod shared;
mod spin;

pub(crate) use exchange::{SendState, StreamSet};
pub(crate) use handshake::{GuestLink, greet, set_nonblocking};
pub use incoming::Incoming;
pub(crate) use outgoing::Outgoing;

use exchange::Exchange;
use glovebox_proto::limits::{MAX_DATA_BYTES, MAX_OPEN_REQUESTS};
use glovebox_proto::{
    Channel, Code, Decoder, Fault, FrameKind, Header, Hello, Request, RequestId, WireError, encode,
};
use outgoing::HIGH_WATER_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use shared::LinkState;
use spin::{SpinOutcome, spin_until};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which a thread that waits to write checks whether it must read as well.
const WRITE_WAIT_SLICE: Duration = Duration::from_millis(10);

/// Time to keep reading after a request was dropped, so that the guest learns of the cancellation.
const CANCEL_WAIT: Duration = Duration::from_millis(100);

/// Live link to a guest.
#[derive(Debug)]
pub(crate) struct Link {
    reader: OwnedFd,
    writer: OwnedFd,
    hello: Hello,
    incoming: Mutex<Decoder>,
    outgoing: Mutex<Outgoing>,
    shared: Mutex<LinkState>,
}

/// Reason for which a wait ended without a result.
#[derive(Debug)]
pub(crate) enum WaitFailure {
    /// The deadline has passed.
    TimedOut,
    /// The link is lost.
    Lost(Fault),
}

/// Locks a mutex even if it is poisoned: every critical section keeps its data consistent at each
/// step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Error of a deadline that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadlinePassed;

/// Returns the time left, for poll(2). `None` waits without limit.
pub(crate) fn until(deadline: Option<Instant>) -> Result<Option<Timespec>, DeadlinePassed> {
    let Some(deadline) = deadline else {
        return Ok(None);
    };
    let left = deadline
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
        .ok_or(DeadlinePassed)?;
    Ok(Some(Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: i64::from(left.subsec_nanos()),
    }))
}

/// Converts a violation of the protocol to the fault that all requests of the link get.
pub(crate) fn wire_fault(error: &WireError) -> Fault {
    let fault = Fault::lost(
        Code::Protocol,
        format!("the guest broke the protocol: {error}"),
    );
    match error {
        WireError::Version { .. } => {
            fault.remedy("kill the sandbox and start it again with this version of glovebox")
        }
        _ => fault,
    }
}

impl Link {
    /// Creates a link over a stream whose peer has sent its greeting.
    pub(crate) fn new(greeted: GuestLink) -> Self {
        let GuestLink {
            reader,
            writer,
            decoder,
            hello,
        } = greeted;
        Self {
            reader,
            writer,
            hello,
            incoming: Mutex::new(decoder),
            outgoing: Mutex::new(Outgoing::default()),
            shared: Mutex::default(),
        }
    }

    /// Returns the stream for another reader. No request may be open.
    pub(crate) fn into_greeted(self) -> GuestLink {
        let Self {
            reader,
            writer,
            hello,
            incoming,
            ..
        } = self;
        let decoder = incoming
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        GuestLink {
            reader,
            writer,
            decoder,
            hello,
        }
    }

    /// Returns the reason for which the link was lost. `None` if it is alive.
    pub(crate) fn lost(&self) -> Option<Fault> {
        lock(&self.shared).lost.clone()
    }

    /// Declares the link lost and wakes all waiting threads. A later reason does not replace the
    /// first.
    pub(crate) fn lose(&self, fault: Fault) {
        let mut shared = lock(&self.shared);
        shared.lost.get_or_insert(fault);
        for waiter in &shared.waiters {
            waiter.thread.unpark();
        }
    }

    /// Sends a request. Its id stays reserved until [`Self::release`].
    pub(crate) fn open(&self, request: &Request) -> Result<u32, Fault> {
        self.open_as(request, Exchange::new(StreamSet::of(request)), None)
    }

    /// Sends a request with its whole input, at most [`MAX_DATA_BYTES`].
    pub(crate) fn open_with_input(&self, request: &Request, input: &[u8]) -> Result<u32, Fault> {
        let mut exchange = Exchange::new(StreamSet::of(request));
        let wanted = input.len() as u32;
        let booked = exchange.spend(wanted);
        debug_assert!(
            wanted <= MAX_DATA_BYTES && booked == SendState::Room(wanted),
            "the input of a request that takes any fits into one frame"
        );
        exchange.finish_input();
        self.open_as(request, exchange, Some(input))
    }

    /// As [`Self::open`], but collects the content for [`Self::gathered`]. More than `max_bytes` is
    /// a violation of the protocol.
    pub(crate) fn open_gathering(&self, request: &Request, max_bytes: u64) -> Result<u32, Fault> {
        let mut exchange = Exchange::new(StreamSet::of(request));
        exchange.gather(max_bytes);
        self.open_as(request, exchange, None)
    }

    /// Returns the collected content of a request whose reply has arrived.
    pub(crate) fn gathered(&self, id: u32) -> Vec<u8> {
        let mut shared = lock(&self.shared);
        let exchange = shared.exchanges.get_mut(&id);
        exchange.map_or_else(Vec::new, Exchange::gathered)
    }

    /// Sends a request. `input` is its whole input, for which room was reserved in `exchange`.
    fn open_as(
        &self,
        request: &Request,
        mut exchange: Exchange,
        input: Option<&[u8]>,
    ) -> Result<u32, Fault> {
        request.validate()?;
        let payload = encode(request)?;
        let id = {
            let mut shared = lock(&self.shared);
            if let Some(fault) = &shared.lost {
                return Err(fault.clone());
            }
            if shared.exchanges.len() >= MAX_OPEN_REQUESTS {
                return Err(Fault::failed(
                    Code::Busy,
                    format!("{MAX_OPEN_REQUESTS} requests are open already"),
                )
                .retryable());
            }
            let id = shared.free_id();
            exchange.spin_deadline = shared.spin_policy.until(request);
            shared.exchanges.insert(id, exchange);
            id
        };
        let header = Header::control(FrameKind::Request, RequestId(id), payload.len() as u32);
        let input = input.map(|input| {
            let len = input.len() as u32;
            let header = Header::data(RequestId(id), Channel::Input, len, true);
            (header, input)
        });
        if let Err(fault) = self.send((header, &payload), input) {
            lock(&self.shared).exchanges.remove(&id);
            return Err(fault);
        }
        Ok(id)
    }

    /// Waits for the next event of a request. `None` as deadline waits without limit.
    pub(crate) fn recv(&self, id: u32, deadline: Option<Instant>) -> Result<Incoming, WaitFailure> {
        let (event, credit) =
            self.wait(id, deadline, |shared| match shared.exchanges.get_mut(&id) {
                Some(exchange) => exchange.take(),
                // Happens only if the caller has released the id.
                None => Some((
                    Incoming::Reply(Err(crate::fault::internal(
                        "the request has been answered before",
                    ))),
                    None,
                )),
            })?;
        if let Some((channel, bytes)) = credit {
            self.give_credit(id, channel, bytes);
        }
        Ok(event)
    }

    /// Sends input. Blocks while there is no credit and the request is open.
    pub(crate) fn send_input(&self, id: u32, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let wanted = bytes.len().min(MAX_DATA_BYTES as usize) as u32;
            let outbound = self
                .wait(id, None, |shared| {
                    let outbound = shared
                        .exchanges
                        .get_mut(&id)
                        .map(|exchange| exchange.spend(wanted));
                    (outbound != Some(SendState::Room(0))).then_some(outbound)
                })
                .map_err(WaitFailure::into_fault)?;
            let count = match outbound {
                Some(SendState::Room(count)) => count as usize,
                Some(SendState::Finished) => {
                    return Err(Fault::failed(
                        Code::InvalidArgument,
                        "the request takes no more input",
                    ));
                }
                Some(SendState::Answered) | None => {
                    return Err(Fault::failed(
                        Code::JobEnded,
                        "the request has ended and takes no more input",
                    ));
                }
            };
            let (now, later) = bytes.split_at(count);
            let header = Header::data(RequestId(id), Channel::Input, count as u32, false);
            self.send((header, now), None)?;
            bytes = later;
        }
        Ok(())
    }

    /// Ends the input of a request.
    pub(crate) fn finish_input(&self, id: u32) -> Result<(), Fault> {
        let is_news = lock(&self.shared)
            .exchanges
            .get_mut(&id)
            .is_some_and(Exchange::finish_input);
        if is_news {
            let end = Header::data(RequestId(id), Channel::Input, 0, true);
            self.send((end, &[]), None)?;
        }
        Ok(())
    }

    /// Sends the guest a cancellation of a request. The reply still comes.
    pub(crate) fn cancel(&self, id: u32) -> Result<(), Fault> {
        let is_open = lock(&self.shared)
            .exchanges
            .get(&id)
            .is_some_and(|exchange| !exchange.is_answered());
        if is_open {
            self.send_control(Header::control(FrameKind::Cancel, RequestId(id), 0), &[])?;
        }
        Ok(())
    }

    /// Releases an id. If the request is still open it is cancelled, and the id becomes free with
    /// the guest's reply.
    pub(crate) fn release(&self, id: u32) {
        let is_open = {
            let mut shared = lock(&self.shared);
            match shared.exchanges.get_mut(&id) {
                Some(exchange) if !exchange.is_answered() => {
                    // Data that is still unread is discarded. Its credit is returned, or the guest
                    // would wait for it and never reply.
                    exchange.is_abandoned = true;
                    true
                }
                _ => {
                    shared.exchanges.remove(&id);
                    false
                }
            }
        };
        if is_open {
            self.return_unread(id);
            // Fails only if the link is lost, which needs no cancellation.
            let _ = self.send_control(Header::control(FrameKind::Cancel, RequestId(id), 0), &[]);
            // A guest whose output is blocked by a full stream may not read the cancellation until
            // a thread here reads, and there may be no other. Usually the reply arrives at once.
            let deadline = Instant::now() + CANCEL_WAIT;
            let _ = self.wait(id, Some(deadline), |shared| {
                (!shared.exchanges.contains_key(&id)).then_some(())
            });
        }
    }

    fn return_unread(&self, id: u32) {
        let mut credits = Vec::new();
        if let Some(exchange) = lock(&self.shared).exchanges.get_mut(&id) {
            while let Some((_, credit)) = exchange.take() {
                credits.extend(credit);
            }
        }
        for (channel, bytes) in credits {
            self.give_credit(id, channel, bytes);
        }
    }

    fn give_credit(&self, id: u32, channel: Channel, bytes: u32) {
        // Fails only if the link is lost, which the next wait reports.
        let _ = self.send_control(Header::credit(RequestId(id), channel), &bytes.to_le_bytes());
    }

    /// Sends a frame without waiting at the high-water mark.
    fn send_control(&self, header: Header, payload: &[u8]) -> Result<(), Fault> {
        let is_flushed = {
            let mut outgoing = lock(&self.outgoing);
            outgoing
                .send(&self.writer, header, payload)
                .map(|()| outgoing.is_empty())
        };
        match is_flushed {
            Ok(true) => Ok(()),
            Ok(false) => self.drain(0),
            Err(errno) => Err(self.broken(errno)),
        }
    }

    /// Sends a frame and optionally a second one. Waits for room before, and until both have been
    /// written.
    fn send(
        &self,
        (header, payload): (Header, &[u8]),
        then: Option<(Header, &[u8])>,
    ) -> Result<(), Fault> {
        loop {
            let mut outgoing = lock(&self.outgoing);
            if outgoing.len() <= HIGH_WATER_BYTES {
                let sent = match then {
                    Some(then) => outgoing.send_both(&self.writer, (header, payload), then),
                    None => outgoing.send(&self.writer, header, payload),
                };
                let is_gone = sent.map(|()| outgoing.is_empty());
                drop(outgoing);
                return match is_gone {
                    Ok(true) => Ok(()),
                    Ok(false) => self.drain(0),
                    Err(errno) => Err(self.broken(errno)),
                };
            }
            drop(outgoing);
            self.drain(HIGH_WATER_BYTES)?;
        }
    }

    /// Waits until at most `level` bytes are still to be written. Reads meanwhile if no other
    /// thread does.
    fn drain(&self, level: usize) -> Result<(), Fault> {
        let mut is_leading = false;
        let result = loop {
            let flushed = {
                let mut outgoing = lock(&self.outgoing);
                outgoing.flush(&self.writer).map(|()| outgoing.len())
            };
            match flushed {
                Ok(len) if len <= level => break Ok(()),
                Ok(_) => {}
                Err(errno) => break Err(self.broken(errno)),
            }
            {
                let mut shared = lock(&self.shared);
                if let Some(fault) = &shared.lost {
                    break Err(fault.clone());
                }
                is_leading = is_leading || !shared.has_leader;
                shared.has_leader |= is_leading;
            }
            let slice = Instant::now() + WRITE_WAIT_SLICE;
            if let Err(fault) = self.poll_and_read(is_leading, true, Some(slice)) {
                self.lose(fault);
            }
        };
        if is_leading {
            lock(&self.shared).leave();
        }
        result
    }

    /// Waits until `check` returns a value. Reads as leader if no other thread does.
    fn wait<T>(
        &self,
        request: u32,
        deadline: Option<Instant>,
        mut check: impl FnMut(&mut LinkState) -> Option<T>,
    ) -> Result<T, WaitFailure> {
        let mut is_leading = false;
        let mut token = None;
        let mut shared = lock(&self.shared);
        let result = loop {
            if let Some(found) = check(&mut shared) {
                break Ok(found);
            }
            if let Some(fault) = &shared.lost {
                break Err(WaitFailure::Lost(fault.clone()));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break Err(WaitFailure::TimedOut);
            }
            if is_leading || !shared.has_leader {
                is_leading = true;
                shared.has_leader = true;
                shared.forget(token.take());
                let exchange = shared.exchanges.get(&request);
                let spin_deadline = exchange.and_then(|exchange| exchange.spin_deadline);
                drop(shared);
                if let Some(until) = spin_deadline
                    && spin_until(&self.reader, until) == SpinOutcome::Contended
                {
                    lock(&self.shared).spin_policy.note_contention();
                }
                if let Err(fault) = self.poll_and_read(true, false, deadline) {
                    self.lose(fault);
                }
            } else {
                if token.is_none() {
                    token = Some(shared.remember(request));
                }
                drop(shared);
                match left {
                    Some(left) => std::thread::park_timeout(left),
                    None => std::thread::park(),
                }
            }
            shared = lock(&self.shared);
        };
        shared.forget(token);
        if is_leading {
            shared.has_leader = false;
        }
        shared.pass_on();
        result
    }

    /// Polls once, and reads once if the stream is readable. Only the leader may read.
    fn poll_and_read(
        &self,
        is_leading: bool,
        is_writing: bool,
        deadline: Option<Instant>,
    ) -> Result<(), Fault> {
        let Ok(left) = until(deadline) else {
            return Ok(());
        };
        // Reading may queue frames with credit, which the leader must write as well.
        let is_writing = is_writing || !lock(&self.outgoing).is_empty();
        let read = PollFd::new(&self.reader, PollFlags::IN);
        let write = PollFd::new(&self.writer, PollFlags::OUT);
        let mut fds = [read, write];
        let fds = match (is_leading, is_writing) {
            (true, true) => &mut fds[..],
            (true, false) => &mut fds[..1],
            _ => &mut fds[1..],
        };
        match poll(fds, left.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(gone(&format!(": {errno}"))),
        }
        let is_readable = is_leading && !fds[0].revents().is_empty();
        if is_writing {
            // A peer that takes no more bytes may still have sent some; the read finds out.
            let _ = lock(&self.outgoing).flush(&self.writer);
        }
        if is_readable { self.read() } else { Ok(()) }
    }

    fn broken(&self, errno: Errno) -> Fault {
        // Does not declare the link lost: replies that were sent before the end may still be
        // unread. A waiting thread reads on until the end of the stream.
        self.lost().unwrap_or_else(|| gone(&format!(": {errno}")))
    }
}

fn gone(detail: &str) -> Fault {
    Fault::lost(
        Code::LinkLost,
        format!("the link to the guest ended{detail}"),
    )
}

impl WaitFailure {
    /// Converts the failure to a fault, for a caller that set no deadline of its own.
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Self::TimedOut => Fault::failed(Code::TimedOut, "the guest did not answer in time"),
            Self::Lost(fault) => fault,
        }
    }
}

#[cfg(test)]
mod tests;
