//! Records: a head of twelve bytes, then the payload.
//!
//! ```text
//! 0  u8                  kind
//! 1  u8                  flags, 0
//! 2  u16 little-endian   payload length
//! 4  u64 little-endian   offset: first byte (DATA), bytes received (HELLO, ACK), end (END)
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
/// The key keeps other users and stale connections apart. It does not protect against commands in
/// the sandbox, which run with the guest's user id.
#[derive(Clone, Copy)]
pub struct Identity {
    /// Random name of the session.
    pub session: [u8; 16],
    /// Random secret that a connection to the guest must know.
    pub key: [u8; 32],
}

impl Identity {
    /// Returns true if session and key are equal. The time does not depend on where they differ.
    pub fn is_same(&self, other: &Self) -> bool {
        let own = self.session.iter().chain(&self.key);
        let theirs = other.session.iter().chain(&other.key);
        own.zip(theirs)
            .fold(0, |differs, (own, theirs)| differs | (own ^ theirs))
            == 0
    }
}

impl fmt::Debug for Identity {
    /// Omits the key, so that it never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// First record of a pipe in each direction.
#[derive(Debug, Clone, Copy)]
pub struct ResumeHello {
    /// Session and key; the key is zero in the guest's answer.
    pub identity: Identity,
    /// Offset up to which the sender has received.
    pub received: u64,
    /// Milliseconds after which the guest ends if it receives nothing from the host; 0 in the
    /// guest's answer.
    pub keep_ms: u32,
}

/// Reason for which a guest refuses a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The host's records have a version that this guest does not know.
    Version = 1,
    /// Key or session differs from the guest's.
    Stranger = 2,
    /// This session cannot continue from the host's offset.
    Offset = 3,
    /// No guest runs there, or it has ended.
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

/// Decoded record that borrows from the decoder, or a record to encode.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    /// First record: identity of the sender and the offset that it has received.
    Hello(ResumeHello),
    /// Bytes of the stream.
    Data {
        /// Offset of the first byte.
        offset: u64,
        /// Between 1 and [`MAX_RECORD_BYTES`] bytes.
        bytes: &'a [u8],
    },
    /// The peer's reader has taken everything below `received`.
    Ack {
        /// Offset of the first byte that the peer's reader has not taken.
        received: u64,
    },
    /// Requests an ACK as a sign of life.
    Ping,
    /// No byte follows at `offset` or above.
    End {
        /// Length of the whole direction, in bytes.
        offset: u64,
    },
    /// The guest refuses this pipe.
    Refuse(Refusal),
}

/// Appends the encoded record to `wire`.
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

/// Error in the bytes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// No version has this kind.
    #[error("unknown kind {0} of record")]
    UnknownKind(u8),
    /// The kind does not permit this flag, length or offset.
    #[error("malformed head of a record")]
    BadHead,
    /// The peer has another version.
    #[error("the peer has version {0} of the carrier's records, this side has {RESUME_VERSION}")]
    Version(u16),
    /// This version does not know the reason of a refusal.
    #[error("unknown reason {0} of a refusal")]
    UnknownReason(u8),
}

/// Head of a record. Kind, flags, length and offset are checked against each other.
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

/// Decoder of the records of one pipe.
#[derive(Debug, Default)]
pub struct RecordDecoder {
    buffer: Vec<u8>,
    /// Number of bytes at the start of `buffer` whose records were returned.
    taken: usize,
}

impl RecordDecoder {
    /// Creates a decoder at the beginning of a pipe.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that arrived. The caller must drain [`Self::next_record`] before it adds more;
    /// then the buffer holds at most one partial record besides the new bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete record, or `None` until more bytes arrive. A record that the
    /// pipe's end cuts off is never returned.
    ///
    /// # Errors
    /// [`RecordError`]: the position of the next record is unknown, so the pipe cannot be used
    /// further.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, RecordError> {
        let Some((head, rest)) = self.buffer[self.taken..].split_first_chunk() else {
            return Ok(None);
        };
        // TRUST: the bytes come from the peer; the checked head bounds how many bytes are awaited.
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
