//! State of one side of a session: bytes to keep, records to send, and the effect of each record
//! that arrives.

use super::record::{
    Identity, MAX_RECORD_BYTES, Record, RecordDecoder, RecordError, Refusal, ResumeHello,
    encode_record,
};
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// Most unacknowledged bytes of one direction that a side keeps.
pub const MAX_UNACKNOWLEDGED_BYTES: usize = 4 << 20;
/// Number of bytes taken by the local reader after which an ACK is sent at once.
const ACK_BYTES: u64 = 256 << 10;
/// Capacity that an empty buffer keeps, in bytes.
const SPARE_BYTES: usize = 64 << 10;

/// Buffer sizes of one side. Both are clamped to the sizes that the peer accepts.
#[derive(Debug, Clone, Copy)]
pub struct BufferSizes {
    /// Most unacknowledged bytes that this side keeps. Below 512 KiB the stream stalls until the
    /// acknowledgements that are sent once a second.
    pub unacknowledged: usize,
    /// Most payload of one record, in bytes.
    pub record: usize,
}

impl Default for BufferSizes {
    fn default() -> Self {
        Self {
            unacknowledged: MAX_UNACKNOWLEDGED_BYTES,
            record: MAX_RECORD_BYTES,
        }
    }
}

/// Reason for which this side ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The peer sent bytes that are not a valid record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Bytes are missing between the last record and this one.
    #[error("bytes {expected} to {offset} of the stream are missing")]
    Gap {
        /// Offset of the next byte in order.
        expected: u64,
        /// Offset in the record.
        offset: u64,
    },
    /// The peer acknowledged bytes that this side never sent.
    #[error("the peer acknowledged {received} bytes of {sent} that were sent")]
    AckBeyondSent {
        /// Acknowledged offset.
        received: u64,
        /// Bytes sent so far.
        sent: u64,
    },
    /// The peer asks for bytes that it has already acknowledged.
    #[error("the peer has lost bytes that it acknowledged")]
    AckWithdrawn,
    /// The peer sent more bytes than it may send without an acknowledgement.
    #[error("the peer sent more than {MAX_UNACKNOWLEDGED_BYTES} bytes without an acknowledgement")]
    Overrun,
    /// The state of the pipe does not permit this record.
    #[error("{0} came out of turn")]
    OutOfTurn(&'static str),
    /// The peer of a new pipe is not the peer of the pipe before.
    #[error("{}", Refusal::Stranger)]
    AnotherPeer,
    /// The guest refused the pipe.
    #[error("{0}")]
    Refused(Refusal),
}

/// Bytes to the peer.
#[derive(Debug, Default)]
struct Outgoing {
    /// All bytes that the peer has not acknowledged, sent or not.
    bytes: VecDeque<u8>,
    /// Offset of the first byte in `bytes`.
    start: u64,
    /// Offset of the next byte to send on this pipe.
    next: u64,
    /// Highest offset that was sent on any pipe.
    sent: u64,
    is_ended: bool,
    /// True if END was sent on this pipe.
    is_end_sent: bool,
}

impl Outgoing {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn acknowledge(&mut self, received: u64) -> Result<(), ResumeError> {
        if received > self.sent {
            let sent = self.sent;
            return Err(ResumeError::AckBeyondSent { received, sent });
        }
        // An ACK below `start` was overtaken by a later one and changes nothing.
        let count = received.saturating_sub(self.start);
        self.bytes.drain(..count as usize);
        self.start += count;
        self.next = self.next.max(self.start);
        if self.bytes.is_empty() {
            self.bytes.shrink_to(SPARE_BYTES);
        }
        Ok(())
    }

    /// Applies the offset in the HELLO of a new pipe's peer.
    fn acknowledge_in_hello(&mut self, received: u64) -> Result<(), ResumeError> {
        if received < self.start {
            return Err(ResumeError::AckWithdrawn);
        }
        self.acknowledge(received)
    }

    fn restart(&mut self) {
        self.next = self.start;
        self.is_end_sent = false;
    }

    /// Returns bytes for one record, at most `max`, or `None` if this pipe has carried all of them.
    fn next_bytes(&self, max: usize) -> Option<&[u8]> {
        let at = (self.next - self.start) as usize;
        let (front, back) = self.bytes.as_slices();
        let rest = match front.get(at..) {
            Some(rest) if !rest.is_empty() => rest,
            _ => back.get(at - front.len()..)?,
        };
        let piece = &rest[..rest.len().min(max)];
        (!piece.is_empty()).then_some(piece)
    }
}

/// Bytes from the peer.
#[derive(Debug, Default)]
struct Incoming {
    /// Bytes that the local reader has not taken.
    bytes: VecDeque<u8>,
    /// Offset up to which bytes have arrived.
    received: u64,
    /// Offset that the last ACK or HELLO named.
    acknowledged: u64,
    is_ended: bool,
}

impl Incoming {
    /// Returns the offset up to which the local reader has taken bytes.
    fn taken(&self) -> u64 {
        self.received - self.bytes.len() as u64
    }

    fn take_data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ResumeError> {
        let Some(old) = self.received.checked_sub(offset) else {
            let expected = self.received;
            return Err(ResumeError::Gap { expected, offset });
        };
        // TRUST: bytes below the expected offset were processed when they first came; their content
        // in this record is ignored.
        let new = bytes
            .get(old.min(bytes.len() as u64) as usize..)
            .unwrap_or_default();
        // Repeated bytes are accepted even after END: a new pipe starts again at the first
        // unacknowledged byte, and its host may not know that END arrived.
        if new.is_empty() {
            return Ok(());
        }
        if self.is_ended {
            return Err(ResumeError::OutOfTurn("data after the end"));
        }
        if self.bytes.len() + new.len() > MAX_UNACKNOWLEDGED_BYTES {
            return Err(ResumeError::Overrun);
        }
        self.received = match self.received.checked_add(new.len() as u64) {
            Some(received) => received,
            None => return Err(ResumeError::Overrun),
        };
        self.bytes.extend(new);
        Ok(())
    }

    fn take_end(&mut self, offset: u64) -> Result<(), ResumeError> {
        let expected = self.received;
        if offset > expected {
            return Err(ResumeError::Gap { expected, offset });
        }
        if offset < expected {
            return Err(ResumeError::OutOfTurn("an end before bytes that came"));
        }
        self.is_ended = true;
        Ok(())
    }
}

/// State of the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipeState {
    /// No pipe exists.
    Closed,
    /// The host waits for the guest's answer to HELLO.
    Greeting,
    /// Both sides know what the other has received.
    Open,
}

/// Records without stream bytes that are sent as soon as possible.
#[derive(Debug, Default)]
struct DueRecords {
    hello: bool,
    ack: bool,
    ping: bool,
}

/// State machine of one side of a session.
#[derive(Debug)]
pub struct ResumeSession {
    is_host: bool,
    /// `None` in a guest until a host has greeted it.
    identity: Option<Identity>,
    keep: Duration,
    sizes: BufferSizes,
    pipe: PipeState,
    /// True if the peer has answered on any pipe.
    has_met: bool,
    due: DueRecords,
    decoder: RecordDecoder,
    outgoing: Outgoing,
    incoming: Incoming,
}

impl ResumeSession {
    /// Creates the host's side. `keep` is the time after which the guest ends if it receives
    /// nothing from the host.
    pub fn host(identity: Identity, keep: Duration, sizes: BufferSizes) -> Self {
        Self {
            is_host: true,
            identity: Some(identity),
            keep,
            ..Self::guest(sizes)
        }
    }

    /// Creates the guest's side. It adopts the identity of the first host that greets it.
    pub fn guest(sizes: BufferSizes) -> Self {
        Self {
            is_host: false,
            identity: None,
            keep: Duration::ZERO,
            sizes: BufferSizes {
                unacknowledged: sizes.unacknowledged.clamp(1, MAX_UNACKNOWLEDGED_BYTES),
                record: sizes.record.clamp(1, MAX_RECORD_BYTES),
            },
            pipe: PipeState::Closed,
            has_met: false,
            due: DueRecords::default(),
            decoder: RecordDecoder::new(),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
        }
    }

    /// Begins a pipe on the host's side. Discards a partial record of the previous pipe and queues
    /// HELLO.
    pub fn begin_pipe(&mut self) {
        self.end_pipe();
        self.pipe = PipeState::Greeting;
        self.due.hello = true;
    }

    /// Accepts a pipe on the guest's side whose first record was `hello`, and ends the previous
    /// pipe. `decoder` holds the bytes behind `hello`; the caller must call [`Self::receive`] next.
    ///
    /// # Errors
    /// The [`Refusal`] to send. Nothing has changed then, and the previous pipe stays in use.
    pub fn accept(&mut self, hello: &ResumeHello, decoder: RecordDecoder) -> Result<(), Refusal> {
        // TRUST: the key decides which host continues a session. Before the first HELLO there is no
        // session to take over.
        if let Some(known) = &self.identity
            && !known.is_same(&hello.identity)
        {
            return Err(Refusal::Stranger);
        }
        // Check the offset before the old pipe ends: a refused HELLO must not disturb a working
        // pipe.
        self.outgoing
            .acknowledge_in_hello(hello.received)
            .map_err(|_| Refusal::Offset)?;
        self.end_pipe();
        self.identity = Some(hello.identity);
        self.keep = Duration::from_millis(hello.keep_ms.into());
        self.decoder = decoder;
        self.pipe = PipeState::Open;
        self.has_met = true;
        self.due.hello = true;
        Ok(())
    }

    /// Closes the pipe and discards a partial record. Unacknowledged bytes are sent again on the
    /// next pipe.
    pub fn end_pipe(&mut self) {
        self.pipe = PipeState::Closed;
        self.decoder = RecordDecoder::new();
        self.due = DueRecords::default();
        self.outgoing.restart();
    }

    /// Processes bytes that the pipe delivered. Does nothing while no pipe exists.
    ///
    /// # Errors
    /// [`ResumeError`]: the session is over.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ResumeError> {
        if self.pipe == PipeState::Closed {
            return Ok(());
        }
        // The decoder is moved out because a record borrows from it while `handle` changes `self`.
        let mut decoder = mem::take(&mut self.decoder);
        decoder.push(bytes);
        while let Some(record) = decoder.next_record()? {
            self.handle(record)?;
        }
        self.decoder = decoder;
        Ok(())
    }

    fn handle(&mut self, record: Record<'_>) -> Result<(), ResumeError> {
        match (self.pipe, record) {
            (PipeState::Greeting, Record::Hello(hello)) => self.meet(&hello),
            (PipeState::Greeting, Record::Refuse(refusal)) => Err(ResumeError::Refused(refusal)),
            (PipeState::Open, Record::Data { offset, bytes }) => {
                self.incoming.take_data(offset, bytes)
            }
            (PipeState::Open, Record::Ack { received }) => self.outgoing.acknowledge(received),
            (PipeState::Open, Record::Ping) => {
                self.due.ack = true;
                Ok(())
            }
            (PipeState::Open, Record::End { offset }) => self.incoming.take_end(offset),
            (PipeState::Open, Record::Hello(hello)) => self.take_repeated_greeting(&hello),
            (_, Record::Hello(_)) => Err(ResumeError::OutOfTurn("a greeting")),
            (_, Record::Refuse(_)) => Err(ResumeError::OutOfTurn("a refusal")),
            _ => Err(ResumeError::OutOfTurn("a record before the greeting")),
        }
    }

    /// Processes the guest's answer to HELLO.
    fn meet(&mut self, hello: &ResumeHello) -> Result<(), ResumeError> {
        let is_known =
            (self.identity.as_ref()).is_some_and(|own| own.session == hello.identity.session);
        if !is_known {
            return Err(ResumeError::AnotherPeer);
        }
        self.outgoing.acknowledge_in_hello(hello.received)?;
        self.pipe = PipeState::Open;
        self.has_met = true;
        Ok(())
    }

    /// Processes a HELLO on a pipe that has had one. A carrier that does not know whether its first
    /// bytes arrived sends them again, so the guest must accept a repetition that it has already
    /// answered.
    fn take_repeated_greeting(&self, hello: &ResumeHello) -> Result<(), ResumeError> {
        let is_repeated = !self.is_host
            && (self.identity.as_ref()).is_some_and(|own| own.is_same(&hello.identity));
        if is_repeated {
            Ok(())
        } else {
            Err(ResumeError::OutOfTurn("a greeting"))
        }
    }

    /// Appends records to `wire` until it holds about `budget` bytes or nothing is left to send.
    pub fn fill_wire(&mut self, wire: &mut Vec<u8>, budget: usize) {
        // HELLO must be the first record of a pipe; the peer refuses any other.
        if mem::take(&mut self.due.hello)
            && let Some(mut identity) = self.identity
        {
            let mut keep_ms = 0;
            if self.is_host {
                keep_ms = u32::try_from(self.keep.as_millis()).unwrap_or(u32::MAX);
            } else {
                identity.key = [0; 32];
            }
            let received = self.note_acknowledged();
            encode_record(
                &Record::Hello(ResumeHello {
                    identity,
                    received,
                    keep_ms,
                }),
                wire,
            );
        }
        if !self.may_send() {
            return;
        }
        if mem::take(&mut self.due.ping) {
            encode_record(&Record::Ping, wire);
        }
        if mem::take(&mut self.due.ack) {
            self.append_ack(wire);
        }
        while wire.len() < budget
            && let Some(bytes) = self.outgoing.next_bytes(self.sizes.record)
        {
            let offset = self.outgoing.next;
            let next = offset + bytes.len() as u64;
            encode_record(&Record::Data { offset, bytes }, wire);
            self.outgoing.next = next;
            self.outgoing.sent = self.outgoing.sent.max(next);
        }
        if self.is_end_due() {
            // END comes after the ACK: the peer may close the pipe on END, and would then never
            // learn which bytes arrived.
            if self.has_unacknowledged_input() {
                self.append_ack(wire);
            }
            let offset = self.outgoing.next;
            encode_record(&Record::End { offset }, wire);
            self.outgoing.is_end_sent = true;
        }
    }

    fn append_ack(&mut self, wire: &mut Vec<u8>) {
        let received = self.note_acknowledged();
        encode_record(&Record::Ack { received }, wire);
    }

    fn note_acknowledged(&mut self) -> u64 {
        self.incoming.acknowledged = self.incoming.taken();
        self.incoming.acknowledged
    }

    /// Returns true if records other than HELLO may be sent. Until the first answer of the peer no
    /// earlier pipe can have delivered bytes, so the host sends without waiting for it.
    fn may_send(&self) -> bool {
        match self.pipe {
            PipeState::Closed => false,
            PipeState::Greeting => !self.has_met,
            PipeState::Open => true,
        }
    }

    fn is_end_due(&self) -> bool {
        let outgoing = &self.outgoing;
        outgoing.is_ended && !outgoing.is_end_sent && outgoing.next == outgoing.end()
    }

    /// Returns true if [`Self::fill_wire`] would append anything.
    pub fn has_output(&self) -> bool {
        let has_records = self.due.ping
            || self.due.ack
            || self.outgoing.next < self.outgoing.end()
            || self.is_end_due();
        self.due.hello || self.may_send() && has_records
    }

    /// Returns the number of bytes that [`Self::push_outgoing`] accepts now; 0 after
    /// [`Self::end_outgoing`].
    pub fn outgoing_room(&self) -> usize {
        if self.outgoing.is_ended {
            return 0;
        }
        self.sizes
            .unacknowledged
            .saturating_sub(self.outgoing.bytes.len())
    }

    /// Adds bytes of the local stream, at most [`Self::outgoing_room`].
    pub fn push_outgoing(&mut self, bytes: &[u8]) {
        debug_assert!(
            bytes.len() <= self.outgoing_room(),
            "more than there is room for"
        );
        self.outgoing.bytes.extend(bytes);
    }

    /// Records that the local stream has ended. The peer receives END after all bytes.
    pub fn end_outgoing(&mut self) {
        self.outgoing.is_ended = true;
    }

    /// Returns bytes for the local stream. The slice is empty only if there are none; more may
    /// follow it.
    pub fn incoming(&self) -> &[u8] {
        let (front, back) = self.incoming.bytes.as_slices();
        if front.is_empty() { back } else { front }
    }

    /// Removes the first `count` bytes of [`Self::incoming`], which the local stream has taken.
    pub fn consume(&mut self, count: usize) {
        let incoming = &mut self.incoming;
        incoming.bytes.drain(..count.min(incoming.bytes.len()));
        if incoming.bytes.is_empty() {
            incoming.bytes.shrink_to(SPARE_BYTES);
        }
        if incoming.taken() - incoming.acknowledged >= ACK_BYTES {
            self.due.ack = self.pipe == PipeState::Open;
        }
    }

    /// Returns true if the peer's stream has ended and the local stream has taken all of it.
    pub fn is_incoming_ended(&self) -> bool {
        self.incoming.is_ended && self.incoming.bytes.is_empty()
    }

    /// Returns true if the local stream has taken bytes that are not acknowledged yet. The caller
    /// calls [`Self::request_ack`] if this lasts.
    pub fn has_unacknowledged_input(&self) -> bool {
        self.pipe == PipeState::Open && self.incoming.taken() > self.incoming.acknowledged
    }

    /// Queues an ACK.
    pub fn request_ack(&mut self) {
        self.due.ack = true;
    }

    /// Queues a PING, which the peer answers with an ACK.
    pub fn request_ping(&mut self) {
        self.due.ping = true;
    }

    /// Returns true if the greeting on the current pipe is complete.
    pub fn is_open(&self) -> bool {
        self.pipe == PipeState::Open
    }

    /// Returns true if the peer has answered on any pipe.
    pub const fn has_met(&self) -> bool {
        self.has_met
    }

    /// Returns the time after which the guest ends if it receives nothing from the host. Zero in a
    /// guest that no host has greeted.
    pub const fn keep(&self) -> Duration {
        self.keep
    }

    /// Returns true if both streams have ended, the local stream has taken all bytes, and END was
    /// appended to the wire.
    pub fn is_finished(&self) -> bool {
        self.is_incoming_ended() && self.outgoing.is_end_sent
    }
}
