//! Records: a head of twelve bytes, then the payload.
//!
//! ```text
//! 0  u8                  kind
//! 1  u8                  flags, 0
//! 2  u16 little-endian   payload length
//! 4  u64 little-endian   offset: of the first byte (DATA), received up to (HELLO, ACK), of the end (END)
//! ```
//!
//! Payload of HELLO: version `u16`, session id (16 bytes), key (32 bytes), time to keep `u32`
//! milliseconds. Payload of REFUSE: one byte with the reason.

use std::fmt;

/// Version of records and of their meaning.
pub const RESUME_VERSION: u16 = 1;
/// Bytes of a record's head.
pub const HEAD_BYTES: usize = 12;
/// Most payload of one record, in bytes.
pub const MAX_RECORD_BYTES: usize = 32 << 10;
/// Most payload of a HELLO or a REFUSE of any version, in bytes.
const MAX_GREETING_BYTES: usize = 256;
/// Payload of a HELLO of this version, in bytes.
const HELLO_BYTES: usize = 2 + 16 + 32 + 4;

const HELLO: u8 = 1;
const DATA: u8 = 2;
const ACK: u8 = 3;
const PING: u8 = 4;
const END: u8 = 5;
const REFUSE: u8 = 6;

/// Name and key of a session, chosen by the host.
///
/// The key keeps other users and stale connections apart. It is no wall against commands, which run
/// with the guest's user id.
#[derive(Clone, Copy)]
pub struct Identity {
    /// Random name.
    pub session: [u8; 16],
    /// Random secret that a connection to the guest must know.
    pub key: [u8; 32],
}

impl Identity {
    /// True if session and key are equal. Takes the same time wherever they differ.
    pub fn is_same(&self, other: &Self) -> bool {
        let own = self.session.iter().chain(&self.key);
        let theirs = other.session.iter().chain(&other.key);
        own.zip(theirs)
            .fold(0, |differs, (own, theirs)| differs | (own ^ theirs))
            == 0
    }
}

impl fmt::Debug for Identity {
    /// Leaves the key out, so that no log has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// First record of a pipe in each direction.
#[derive(Debug, Clone, Copy)]
pub struct ResumeHello {
    /// The session; the key is zero in the guest's answer.
    pub identity: Identity,
    /// Offset up to which the sender has received.
    pub received: u64,
    /// Milliseconds without a word of the host after which the guest ends; 0 in the guest's answer.
    pub keep_ms: u32,
}

/// Why a guest does not take a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The host's records have a version that this guest does not know.
    Version = 1,
    /// The key or the session is another one.
    Stranger = 2,
    /// The host's offset is not one that this session can continue from.
    Offset = 3,
    /// There is no guest at this place, or it has ended.
    Gone = 4,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "the guest speaks another version of the carrier's records",
            Self::Stranger => "another guest runs in its place",
            Self::Offset => "the guest has not the bytes from which this side would continue",
            Self::Gone => "the guest has ended",
        })
    }
}

/// One record, borrowed from a decoder or for encoding.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    /// Who speaks, and what it has received.
    Hello(ResumeHello),
    /// Bytes of the stream.
    Data {
        /// Offset of the first of them.
        offset: u64,
        /// At most [`MAX_RECORD_BYTES`], at least one.
        bytes: &'a [u8],
    },
    /// The peer's reader has taken everything below `received`.
    Ack {
        /// Offset of the first byte that it has not taken.
        received: u64,
    },
    /// Wants an ACK as a sign of life.
    Ping,
    /// No byte follows at `offset` or above.
    End {
        /// Number of bytes of the whole direction.
        offset: u64,
    },
    /// The guest does not take this pipe.
    Refuse(Refusal),
}

/// Appends a record to `wire`.
pub fn encode_record(record: &Record<'_>, wire: &mut Vec<u8>) {
    let mut append = |kind, offset: u64, payload: &[u8]| {
        let [low, high] = (payload.len() as u16).to_le_bytes();
        wire.extend_from_slice(&[kind, 0, low, high]);
        wire.extend_from_slice(&offset.to_le_bytes());
        wire.extend_from_slice(payload);
    };
    match *record {
        Record::Hello(hello) => {
            let mut payload = Vec::with_capacity(HELLO_BYTES);
            payload.extend_from_slice(&RESUME_VERSION.to_le_bytes());
            payload.extend_from_slice(&hello.identity.session);
            payload.extend_from_slice(&hello.identity.key);
            payload.extend_from_slice(&hello.keep_ms.to_le_bytes());
            append(HELLO, hello.received, &payload);
        }
        Record::Data { offset, bytes } => append(DATA, offset, bytes),
        Record::Ack { received } => append(ACK, received, &[]),
        Record::Ping => append(PING, 0, &[]),
        Record::End { offset } => append(END, offset, &[]),
        Record::Refuse(refusal) => append(REFUSE, 0, &[refusal as u8]),
    }
}

/// Bytes that are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A kind that no version has.
    #[error("unknown kind {0} of record")]
    UnknownKind(u8),
    /// A flag, a length or an offset that the kind may not have.
    #[error("malformed head of a record")]
    BadHead,
    /// The peer has another version.
    #[error("the peer has version {0} of the carrier's records, this side has {RESUME_VERSION}")]
    Version(u16),
    /// A reason that this version does not know.
    #[error("unknown reason {0} of a refusal")]
    UnknownReason(u8),
}

/// The head of a record, checked as far as it can be alone.
#[derive(Debug, Clone, Copy)]
struct Head {
    kind: u8,
    len: usize,
    offset: u64,
}

impl Head {
    fn decode(bytes: [u8; HEAD_BYTES]) -> Result<Self, RecordError> {
        let [kind, flags, low, high, offset @ ..] = bytes;
        let len = usize::from(u16::from_le_bytes([low, high]));
        let offset = u64::from_le_bytes(offset);
        let has_good_len = match kind {
            HELLO => (2..=MAX_GREETING_BYTES).contains(&len),
            DATA => (1..=MAX_RECORD_BYTES).contains(&len),
            ACK | PING | END => len == 0,
            REFUSE => (1..=MAX_GREETING_BYTES).contains(&len),
            other => return Err(RecordError::UnknownKind(other)),
        };
        let has_no_offset = matches!(kind, PING | REFUSE);
        if flags != 0 || !has_good_len || has_no_offset && offset != 0 {
            return Err(RecordError::BadHead);
        }
        Ok(Self { kind, len, offset })
    }
}

fn decode_hello(received: u64, payload: &[u8]) -> Result<ResumeHello, RecordError> {
    let Some((version, payload)) = payload.split_first_chunk() else {
        return Err(RecordError::BadHead);
    };
    let version = u16::from_le_bytes(*version);
    if version != RESUME_VERSION {
        return Err(RecordError::Version(version));
    }
    let fields = payload.split_first_chunk().and_then(|(session, rest)| {
        let (key, rest) = rest.split_first_chunk()?;
        Some((*session, *key, u32::from_le_bytes(rest.try_into().ok()?)))
    });
    let (session, key, keep_ms) = fields.ok_or(RecordError::BadHead)?;
    Ok(ResumeHello {
        identity: Identity { session, key },
        received,
        keep_ms,
    })
}

fn decode_refusal(payload: &[u8]) -> Result<Refusal, RecordError> {
    let known = [
        Refusal::Version,
        Refusal::Stranger,
        Refusal::Offset,
        Refusal::Gone,
    ];
    let [reason, ..] = *payload else {
        return Err(RecordError::BadHead);
    };
    known
        .into_iter()
        .find(|refusal| *refusal as u8 == reason)
        .ok_or(RecordError::UnknownReason(reason))
}

/// Turns the bytes of one pipe into records.
#[derive(Debug, Default)]
pub struct RecordDecoder {
    buffer: Vec<u8>,
    /// Bytes of the buffer that belong to records that were given.
    taken: usize,
}

impl RecordDecoder {
    /// A decoder at the beginning of a pipe.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes that arrived. The caller takes every record that they complete before it gives
    /// more, so that at most one partial record is kept.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole record. What a pipe's end cuts off is never returned.
    ///
    /// # Errors
    /// [`RecordError`]: the position of the next record is unknown, so the pipe is of no further use.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, RecordError> {
        let Some((head, rest)) = self.buffer[self.taken..].split_first_chunk() else {
            return Ok(None);
        };
        // TRUST: the bytes come from the other side; the head alone bounds what is waited for.
        let head = Head::decode(*head)?;
        let Some(payload) = rest.get(..head.len) else {
            return Ok(None);
        };
        self.taken += HEAD_BYTES + head.len;
        Ok(Some(match head.kind {
            HELLO => Record::Hello(decode_hello(head.offset, payload)?),
            DATA => Record::Data {
                offset: head.offset,
                bytes: payload,
            },
            ACK => Record::Ack {
                received: head.offset,
            },
            PING => Record::Ping,
            END => Record::End {
                offset: head.offset,
            },
            _ => Record::Refuse(decode_refusal(payload)?),
        }))
    }
}
