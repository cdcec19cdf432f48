//! One side of a session: what it keeps, what it sends next, and what an arriving record changes.

use super::record::{
    Identity, MAX_RECORD_BYTES, Record, RecordDecoder, RecordError, Refusal, ResumeHello,
    encode_record,
};
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

/// Most bytes of one direction that a side keeps because they are not acknowledged.
pub const MAX_UNACKNOWLEDGED_BYTES: usize = 4 << 20;
/// Bytes that the local reader has taken, after which an ACK is sent at once.
const ACK_BYTES: u64 = 256 << 10;
/// Memory that an empty buffer keeps.
const SPARE_BYTES: usize = 64 << 10;

/// Sizes of one side. Both are clamped to what the peer accepts.
#[derive(Debug, Clone, Copy)]
pub struct BufferSizes {
    /// Most bytes that this side keeps because they are not acknowledged. Below 512 KiB the stream
    /// waits for the acknowledgements that come once a second.
    pub unacknowledged: usize,
    /// Most payload of one record.
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

/// Reason for the end of a session, seen on this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The peer sent bytes that are no record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Bytes are missing before a record.
    #[error("bytes {expected} to {offset} of the stream are missing")]
    Gap {
        /// Offset of the next byte.
        expected: u64,
        /// Offset that the record has.
        offset: u64,
    },
    /// The peer acknowledged bytes that were never sent.
    #[error("the peer acknowledged {received} bytes of {sent} that were sent")]
    AckBeyondSent {
        /// Offset in the record.
        received: u64,
        /// Bytes that were sent.
        sent: u64,
    },
    /// The peer wants bytes again that it has acknowledged.
    #[error("the peer has lost bytes that it acknowledged")]
    AckWithdrawn,
    /// The peer sent more than a side may without an acknowledgement.
    #[error("the peer sent more than {MAX_UNACKNOWLEDGED_BYTES} bytes without an acknowledgement")]
    Overrun,
    /// A record came that may not come at this point.
    #[error("{0} came out of turn")]
    OutOfTurn(&'static str),
    /// The peer of a new pipe is not the one of the pipe before.
    #[error("{}", Refusal::Stranger)]
    AnotherPeer,
    /// The guest does not take the pipe.
    #[error("{0}")]
    Refused(Refusal),
}

/// Bytes on their way to the peer.
#[derive(Debug, Default)]
struct Outgoing {
    /// Every byte that the peer has not acknowledged, sent or not.
    bytes: VecDeque<u8>,
    /// Offset of the first of them.
    start: u64,
    /// Offset of the next byte to send on this pipe.
    next: u64,
    /// Offset up to which bytes were sent on any pipe.
    sent: u64,
    is_ended: bool,
    /// The end was sent on this pipe.
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
        // An ACK that was overtaken by a later one has nothing to say.
        let count = received.saturating_sub(self.start);
        self.bytes.drain(..count as usize);
        self.start += count;
        self.next = self.next.max(self.start);
        if self.bytes.is_empty() {
            self.bytes.shrink_to(SPARE_BYTES);
        }
        Ok(())
    }

    /// Takes what the peer of a new pipe says it has.
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

    /// Bytes for one record, if there are any that this pipe has not carried.
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

/// Bytes that came from the peer.
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
    /// Offset up to which the local reader has taken bytes.
    fn taken(&self) -> u64 {
        self.received - self.bytes.len() as u64
    }

    fn take_data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ResumeError> {
        let Some(old) = self.received.checked_sub(offset) else {
            let expected = self.received;
            return Err(ResumeError::Gap { expected, offset });
        };
        // TRUST: bytes below the expected offset were checked when they came first; what they hold
        // now changes nothing.
        let new = bytes
            .get(old.min(bytes.len() as u64) as usize..)
            .unwrap_or_default();
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

/// What is known about the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipeState {
    /// There is none.
    Closed,
    /// The host waits for the guest's answer to its HELLO.
    Greeting,
    /// Both sides know what the other has.
    Open,
}

/// Records without payload that are sent as soon as possible.
#[derive(Debug, Default)]
struct DueRecords {
    hello: bool,
    ack: bool,
    ping: bool,
}

/// One side of a session.
#[derive(Debug)]
pub struct ResumeSession {
    is_host: bool,
    /// `None` in a guest that no host has greeted.
    identity: Option<Identity>,
    keep: Duration,
    sizes: BufferSizes,
    pipe: PipeState,
    /// The peer has answered on some pipe.
    has_met: bool,
    due: DueRecords,
    decoder: RecordDecoder,
    outgoing: Outgoing,
    incoming: Incoming,
}

impl ResumeSession {
    /// The host's side. `keep` is the time without a word of the host after which the guest ends.
    pub fn host(identity: Identity, keep: Duration, sizes: BufferSizes) -> Self {
        Self {
            is_host: true,
            identity: Some(identity),
            keep,
            ..Self::guest(sizes)
        }
    }

    /// The guest's side, which takes the identity of the first host that greets it.
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

    /// Begins a pipe on the host's side. What the pipe before had not carried whole is forgotten.
    pub fn begin_pipe(&mut self) {
        self.end_pipe();
        self.pipe = PipeState::Greeting;
        self.due.hello = true;
    }

    /// Takes a pipe on the guest's side whose first record was `hello`. `decoder` holds the bytes
    /// behind it; [`Self::receive`] must be called next. A pipe before it ends.
    ///
    /// # Errors
    /// The [`Refusal`] to send; nothing has changed then, and a pipe before it goes on.
    pub fn accept(&mut self, hello: &ResumeHello, decoder: RecordDecoder) -> Result<(), Refusal> {
        // TRUST: the key decides who continues a session. Before the first HELLO there is nothing to
        // take over.
        if let Some(known) = &self.identity
            && !known.is_same(&hello.identity)
        {
            return Err(Refusal::Stranger);
        }
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

    /// Forgets the pipe, and what came of a record that was not whole.
    pub fn end_pipe(&mut self) {
        self.pipe = PipeState::Closed;
        self.decoder = RecordDecoder::new();
        self.due = DueRecords::default();
        self.outgoing.restart();
    }

    /// Takes bytes of the pipe.
    ///
    /// # Errors
    /// [`ResumeError`]: the session is over.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ResumeError> {
        if self.pipe == PipeState::Closed {
            return Ok(());
        }
        // Taken out, since a record borrows from it while it changes the rest.
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

    /// Takes the guest's answer to HELLO.
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

    /// Takes a greeting on a pipe that has one. A carrier that does not know whether its first bytes
    /// arrived sends them again, and the guest has answered already.
    fn take_repeated_greeting(&self, hello: &ResumeHello) -> Result<(), ResumeError> {
        let is_repeated = !self.is_host
            && (self.identity.as_ref()).is_some_and(|own| own.is_same(&hello.identity));
        if is_repeated {
            Ok(())
        } else {
            Err(ResumeError::OutOfTurn("a greeting"))
        }
    }

    /// Appends records to `wire` until it has about `budget` bytes or there is nothing to send.
    pub fn fill_wire(&mut self, wire: &mut Vec<u8>, budget: usize) {
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
            // The peer may close the pipe once it has the end, so it must know first what arrived.
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

    /// True if records other than the greeting may be sent. On the first pipes nothing that was sent
    /// can have arrived, so the host does not wait for the answer there.
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

    /// True if [`Self::fill_wire`] would append something.
    pub fn has_output(&self) -> bool {
        let has_records = self.due.ping
            || self.due.ack
            || self.outgoing.next < self.outgoing.end()
            || self.is_end_due();
        self.due.hello || self.may_send() && has_records
    }

    /// Bytes that [`Self::push_outgoing`] takes at the moment; 0 after the end.
    pub fn outgoing_room(&self) -> usize {
        if self.outgoing.is_ended {
            return 0;
        }
        self.sizes
            .unacknowledged
            .saturating_sub(self.outgoing.bytes.len())
    }

    /// Takes bytes of the local stream, at most [`Self::outgoing_room`].
    pub fn push_outgoing(&mut self, bytes: &[u8]) {
        debug_assert!(
            bytes.len() <= self.outgoing_room(),
            "more than there is room for"
        );
        self.outgoing.bytes.extend(bytes);
    }

    /// Notes that the local stream has ended; the peer hears of it after all bytes.
    pub fn end_outgoing(&mut self) {
        self.outgoing.is_ended = true;
    }

    /// Bytes for the local stream. Empty only if there are none.
    pub fn incoming(&self) -> &[u8] {
        let (front, back) = self.incoming.bytes.as_slices();
        if front.is_empty() { back } else { front }
    }

    /// Notes that the local stream has taken `count` bytes of [`Self::incoming`].
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

    /// True if the peer's stream has ended and the local one has taken all of it.
    pub fn is_incoming_ended(&self) -> bool {
        self.incoming.is_ended && self.incoming.bytes.is_empty()
    }

    /// True if the peer has not heard of bytes that the local stream has taken. The caller requests an
    /// ACK when that has been so for a while.
    pub fn has_unacknowledged_input(&self) -> bool {
        self.pipe == PipeState::Open && self.incoming.taken() > self.incoming.acknowledged
    }

    /// Sends an ACK with the next bytes.
    pub fn request_ack(&mut self) {
        self.due.ack = true;
    }

    /// Sends a PING with the next bytes, which the peer answers.
    pub fn request_ping(&mut self) {
        self.due.ping = true;
    }

    /// True if the pipe leads to the peer.
    pub fn is_open(&self) -> bool {
        self.pipe == PipeState::Open
    }

    /// True if the peer has answered on some pipe.
    pub const fn has_met(&self) -> bool {
        self.has_met
    }

    /// Time without a word of the host after which the guest ends. Zero in a guest that no host has
    /// greeted.
    pub const fn keep(&self) -> Duration {
        self.keep
    }

    /// True if both streams have ended, all of the peer's was taken and the end of the local one was
    /// appended to the wire.
    pub fn is_finished(&self) -> bool {
        self.is_incoming_ended() && self.outgoing.is_end_sent
    }
}
