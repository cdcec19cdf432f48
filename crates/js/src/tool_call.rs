//! The messages of one call of a bundle's tool, between the host and `glovebox-js` in its [`TOOL_MODE`].
//!
//! ```text
//! host     one frame with a ToolCall
//! program  Log frames in any number, then one frame that is a Value or an Error, then its end
//! ```
//!
//! Where the call may reach hosts, there are requests and answers in between ([`crate::tool_fetch`]).
//!
//! A frame is its length in four bytes, the lowest first, and that many bytes of JSON. The program answers one call and
//! ends. Nothing that it says decides whether it ran out of time or was ended: the host looks at its own clock and at
//! how the process ended.

use crate::tool_fetch::{FetchCall, FetchGrant};
use serde::{Deserialize, Serialize};

/// The code that writes a result as JSON text, for everything that runs tools.
pub const SERIALIZER: &str = include_str!("tool/serialize.js");
/// The code that tells a tool what it is called with, and the caller what it threw, for everything that runs tools.
pub const TOOL_CALL: &str = include_str!("tool/call.js");

/// The second word of the command line of a program that answers one tool call.
pub const TOOL_MODE: &str = "glovebox-tool";
/// What stacks call the code of the tool.
pub const TOOL_FILE: &str = "tool.js";
/// Largest frame with a call, in bytes: the code of a tool and its input, as JSON.
pub const MAX_CALL_BYTES: usize = 24 << 20;
/// Longest text of one log record, in bytes.
pub const MAX_LOG_TEXT_BYTES: usize = 16 << 10;
/// What a frame of the program may have besides a value of the size that the call allows, in bytes.
pub const FRAME_SLACK_BYTES: usize = 64 << 10;
/// Deepest nesting of a result: what readers of JSON take without being asked.
pub const MAX_RESULT_DEPTH: u32 = 100;

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// An ECMAScript module whose default export is the function.
    pub code: String,
    /// The input, as JSON text.
    pub input: String,
    /// What the second argument of the function has besides what every call has, as JSON text of an object.
    pub context: String,
    /// Names the call, for the function.
    pub call_id: String,
    /// What the call may use.
    pub limits: CallLimits,
    /// A clock that stands and random numbers that repeat, for calls that must come out the same twice.
    pub fixed: Option<FixedSources>,
    /// Whether `fetch` works, and how often; the operator grants that, never the tool.
    pub fetch: Option<FetchGrant>,
}

/// What a call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallLimits {
    /// Time from the beginning to the end, in milliseconds.
    pub wall_ms: u64,
    /// Time of a processor, in milliseconds; the kernel counts it in whole seconds, rounded up.
    pub cpu_ms: u64,
    /// Memory of JavaScript values and code, in bytes.
    pub memory_bytes: u64,
    /// The result as JSON text, in bytes.
    pub output_bytes: u64,
    /// All that is logged, in bytes; what is beyond is left out and said to be.
    pub log_bytes: u64,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            wall_ms: 10_000,
            cpu_ms: 30_000,
            memory_bytes: 64 << 20,
            output_bytes: 1 << 20,
            log_bytes: 64 << 10,
        }
    }
}

/// Where time and random numbers come from in a call that must come out the same twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedSources {
    /// The time, in milliseconds since the epoch.
    pub now_ms: u64,
    /// From which all random numbers follow.
    pub seed: u64,
}

/// What the program says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum CallMessage {
    /// The tool has logged something.
    Log(LogRecord),
    /// The tool wants a request to be made.
    Fetch(FetchCall),
    /// It does not want the answer any more.
    FetchAbort {
        /// The request.
        id: u32,
    },
    /// The tool has returned.
    Value {
        /// JSON text of the result.
        json: String,
        /// What was changed to make it JSON.
        warnings: Vec<String>,
    },
    /// It has not.
    Error(CallError),
}

/// One record of a tool's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRecord {
    /// How loud.
    pub level: LogLevel,
    /// The text. It may have any characters in it.
    pub text: String,
}

/// How loud a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// `console.debug`.
    Debug,
    /// `console.log`, `console.info`.
    Info,
    /// `console.warn`, and what the program itself has to say.
    Warn,
    /// `console.error`.
    Error,
}

/// Why a call has no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    /// Of what kind.
    pub kind: CallErrorKind,
    /// Name of the exception, such as `TypeError`; empty where there is none.
    pub name: String,
    /// What it says.
    pub message: String,
    /// Where it was thrown, lines of the tool alone.
    pub stack: String,
}

/// Kinds of errors that the program tells apart. What ends it from outside is for the host to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallErrorKind {
    /// The tool threw.
    Tool,
    /// It threw `null` or `undefined`. The engine does that too, when it has no memory for an error.
    Null,
    /// The code is no JavaScript.
    Syntax,
    /// The module has no function to call.
    NotFound,
    /// The result cannot be written as JSON.
    NotJson,
    /// The result is longer than it may be.
    OutputLimit,
    /// The tool wanted more memory than it may have.
    Memory,
    /// The program saw its time pass. The host compares that with its own clock.
    Interrupted,
}

/// Puts frames together from whatever pieces they arrive in.
#[derive(Debug)]
pub struct FrameDecoder {
    pending: Vec<u8>,
    max_bytes: usize,
}

/// A sender that does not keep to the form of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// A frame says that it has this many bytes, more than any may have.
    TooLarge(u64),
    /// A frame holds no message.
    NotAMessage,
}

impl FrameDecoder {
    /// One that takes frames of at most this many bytes.
    pub const fn new(max_bytes: usize) -> Self {
        Self {
            pending: Vec::new(),
            max_bytes,
        }
    }

    /// Takes bytes. At most one frame and these bytes are held.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// When the sender breaks the form; nothing more can be read then.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let Some((head, rest)) = self.pending.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*head) as usize;
        if length > self.max_bytes {
            return Err(FrameError::TooLarge(length as u64));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let frame = rest[..length].to_vec();
        self.pending.drain(..4 + length);
        Ok(Some(frame))
    }

    /// Whether part of a frame is waiting for the rest.
    pub fn is_torn(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// A frame around JSON text.
pub fn frame(json: &[u8]) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(json.len() + 4);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(json);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_they_are_torn() {
        let bytes = [frame(b"{}"), frame(b""), frame(b"[1,2]")].concat();
        for size in 1..=bytes.len() {
            let mut decoder = FrameDecoder::new(16);
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    found.push(frame);
                }
            }
            assert_eq!(found, [b"{}".to_vec(), b"".to_vec(), b"[1,2]".to_vec()]);
            assert!(!decoder.is_torn());
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused_before_anything_is_kept() {
        let mut decoder = FrameDecoder::new(16);
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(
            decoder.next_frame(),
            Err(FrameError::TooLarge(u64::from(u32::MAX)))
        );
        let mut decoder = FrameDecoder::new(16);
        decoder.push(&17_u32.to_le_bytes());
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLarge(17)));
        decoder.push(&[0; 64]);
        assert!(decoder.next_frame().is_err());
    }
}
