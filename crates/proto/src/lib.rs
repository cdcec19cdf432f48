//! Wire protocol between the host and the guest: messages, their encoding, and framing.
//!
//! Host and guest communicate only in the terms of this crate. Frames travel over any byte stream
//! (socket pair, pipe pair, `ssh`, virtio-serial). The crate does no I/O and contains no
//! asynchronous code.
//!
//! The protocol has its own framing because the usual alternatives cost too much: a remote process
//! per call is slow and makes quoting an injection risk, and an RPC library brings an async runtime
//! into a guest that must stay small and auditable.
//!
//! A conversation:
//!
//! 1. Both sides send [`Hello`]. A side refuses a peer that has another [`WIRE_VERSION`], and the
//!    error names both versions.
//! 2. The host sends `Request` frames, each with an id that the host chooses (never 0). Many
//!    requests may be open at once.
//! 3. Streams of a request travel as `Data` frames with its id and a [`Channel`]. A sender may have
//!    at most [`limits::WINDOW_BYTES`] unacknowledged per channel; the receiver returns room with
//!    `Credit` frames. A flood therefore slows its producer instead of growing buffers.
//! 4. The guest answers each request with exactly one `Reply` frame, which holds a [`Reply`] or a
//!    [`Fault`]. All `Data` of a request comes before its reply. After the reply the id is free
//!    again.
//! 5. `Cancel` asks the guest to abandon a request. The reply still comes (usually a `cancelled`
//!    fault).
//!
//! Evolution: enum variants are only appended, never reordered or removed. Any other change needs a
//! new [`WIRE_VERSION`].

mod credit;
mod decoder;
mod denial;
pub mod dns;
mod event;
mod fault;
mod file_kind;
mod frame;
mod frame_counter;
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
pub use frame_counter::FrameCounter;
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

/// Protocol violation in bytes that came from the peer.
///
/// Every variant ends the connection: afterwards the position in the stream is unknown, or the peer
/// does not follow the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The length field exceeds the maximum for the frame kind.
    #[error("frame of {len} bytes exceeds the limit of {max} for its kind")]
    TooLarge {
        /// Announced payload length in bytes.
        len: u32,
        /// Largest payload the kind may carry.
        max: u32,
    },
    /// This version does not know the frame kind.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// This version does not know the channel number, or the frame kind may not carry that channel.
    #[error("unknown channel {0}")]
    UnknownChannel(u8),
    /// A reserved header field is not zero, or an id is zero where one is needed.
    #[error("malformed frame header: {0}")]
    BadHeader(&'static str),
    /// The payload does not decode as the type its frame kind announces.
    #[error("malformed {what}: {detail}")]
    BadPayload {
        /// Name of the expected type.
        what: &'static str,
        /// Message of the decoder.
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
/// `too-large` if the result would exceed [`limits::MAX_CONTROL_BYTES`]; the message names the
/// size. `internal` if the message cannot be serialized.
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

/// Decodes a frame payload and refuses trailing bytes.
///
/// # Errors
/// [`WireError::BadPayload`] with the expected type `what`.
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
