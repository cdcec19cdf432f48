//! The words spoken through the wall.
//!
//! The host and the guest know each other only through this crate: plain data, its encoding, and
//! the framing that carries it over any byte stream (socket pair, pipe pair, `ssh`, virtio-serial).
//! There is no I/O here and nothing asynchronous.
//!
//! Why frames of our own: the obvious alternatives either start a remote process per call (slow,
//! and quoting becomes an injection risk), or bring an async runtime into a program that must stay
//! small and auditable.
//!
//! A conversation:
//!
//! 1. Both sides send [`Hello`]; a peer with another [`WIRE_VERSION`] is refused by name.
//! 2. The host sends `Request` frames, each with an id of its choosing (never 0). Many may be open.
//! 3. Streams that belong to a request travel as `Data` frames under its id and a [`Channel`]; a
//!    sender may not have more than [`limits::WINDOW_BYTES`] unacknowledged, and the receiver gives
//!    room back with `Credit` frames. A flood therefore slows its producer instead of growing buffers.
//! 4. Each request is answered by exactly one `Reply`: a [`Reply`] or a [`Fault`]. All `Data` of a
//!    request comes before its reply. After the reply the id is free again.
//! 5. `Cancel` asks the guest to give a request up; the reply still comes (usually a `cancelled` fault).
//!
//! Evolution: enum variants are only appended, never reordered or removed; anything else changes
//! [`WIRE_VERSION`].

mod credit;
mod decoder;
mod denial;
pub mod dns;
mod event;
mod fault;
mod file_kind;
mod frame;
mod hello;
mod id;
pub mod json;
pub mod limits;
mod lines;
mod remedy;
mod reply;
mod request;
pub mod resume;
mod search;
pub mod sparse;
pub mod tree;
pub mod visible;

pub use credit::{RecvWindow, SendWindow};
pub use decoder::Decoder;
pub use denial::{
    Denial, EgressReason, FileOwner, HeldBackReason, MAX_DENIALS, PortUse, SecretReason,
};
pub use event::{EVENT_BYTES, Event, EventDecoder};
pub use fault::{Class, Code, Fault};
pub use file_kind::FileKind;
pub use frame::{Channel, FrameKind, FrameRef, HEADER_BYTES, Header, encode_header};
pub use hello::{Capability, Hello, Role, WIRE_VERSION};
pub use id::{JobId, RequestId};
pub use lines::{LinesDecoder, MAX_NOISE_BYTES, NoiseTooLong, encode_lines};
pub use remedy::{AdvicePart, Limit, Remedy, Setting, Wording};
pub use reply::{
    DirEntry, Exit, ExitReport, Facts, JobInfo, JobState, ListeningPort, LogChunk,
    MAX_PORTS_LISTED, OldContent, PortHolder, Reply, Stat, log_gap,
};
pub use request::{
    Background, Descriptor, DescriptorDirection, EnvVar, Exec, ExtraStream, LogCaps, Request,
    Stdin, TerminalUse, WindowSize, WriteMode, WritePrecondition,
};
pub use search::{
    Case, EditReport, FileHits, FoundFile, Glob, GlobReport, Grep, GrepMode, GrepReport,
    GrepTarget, Line, MatchKind, Replacement, ReplacementReport, SearchEnd,
};

use serde::{Serialize, de::DeserializeOwned};

/// What can be wrong with bytes that came from the other side.
///
/// Every variant ends the connection: after one of them the position in the stream is unknown or
/// the peer is not following the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The length field asks for more than the frame kind may carry.
    #[error("frame of {len} bytes exceeds the limit of {max} for its kind")]
    TooLarge {
        /// Announced payload length in bytes.
        len: u32,
        /// Largest payload the kind may carry.
        max: u32,
    },
    /// A frame kind this version does not know.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// A channel number this version does not know, or one the frame kind may not carry.
    #[error("unknown channel {0}")]
    UnknownChannel(u8),
    /// A reserved header field is not zero, or an id is zero where one is needed.
    #[error("malformed frame header: {0}")]
    BadHeader(&'static str),
    /// The payload does not decode as the type its frame kind announces.
    #[error("malformed {what}: {detail}")]
    BadPayload {
        /// The type that was expected.
        what: &'static str,
        /// The decoder's own words.
        detail: String,
    },
    /// The peer sent more than its window allows.
    #[error("peer overran its window by {0} bytes")]
    WindowOverrun(u64),
    /// The peer speaks another version of the protocol.
    #[error("peer speaks wire version {theirs}, this side speaks {ours}")]
    Version {
        /// The peer's version.
        theirs: u16,
        /// Our version.
        ours: u16,
    },
}

/// Encodes a message as a frame payload.
///
/// # Errors
/// `too-large` when the result would exceed [`limits::MAX_CONTROL_BYTES`]; the message names the size.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, Fault> {
    let bytes = postcard::to_allocvec(message).map_err(|error| {
        Fault::failed(Code::Internal, format!("cannot encode a message: {error}"))
    })?;
    if bytes.len() > limits::MAX_CONTROL_BYTES as usize {
        return Err(Fault::failed(
            Code::TooLarge,
            format!(
                "a message of {} bytes exceeds the limit of {}",
                bytes.len(),
                limits::MAX_CONTROL_BYTES
            ),
        )
        .remedy("pass large inputs through a file or standard input"));
    }
    Ok(bytes)
}

/// Decodes a frame payload, refusing trailing bytes.
///
/// # Errors
/// [`WireError::BadPayload`] naming `what` was expected.
pub fn decode<T: DeserializeOwned>(payload: &[u8], what: &'static str) -> Result<T, WireError> {
    // TRUST: the payload is bounded by the frame limit; postcard never reads past the slice, and
    // serde caps pre-allocation for sequences, so a forged length cannot reserve memory.
    match postcard::take_from_bytes(payload) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(WireError::BadPayload {
            what,
            detail: format!("{} bytes too many", rest.len()),
        }),
        Err(error) => Err(WireError::BadPayload {
            what,
            detail: error.to_string(),
        }),
    }
}
