//! Messages of one call of a bundle's tool, between the host and `glovebox-js` in its
//! [`TOOL_MODE`].
//!
//! ```text
//! host     one frame with a ToolCall
//! program  Log frames in any number, then one frame that is a Value or an Error, then its end
//! ```
//!
//! If the call may reach hosts, requests and responses come in between ([`crate::tool_fetch`]).
//!
//! A frame consists of its length in four bytes, least significant first, and that many bytes of
//! JSON. The program answers one call and exits. Its messages do not decide whether it was late or
//! was killed: the host uses its own clock and the exit status of the process.

use crate::tool_fetch::{FetchCall, FetchGrant};
use serde::{Deserialize, Serialize};

/// JavaScript code that writes a result as JSON text, used by all engines.
pub const SERIALIZER: &str = include_str!("tool/serialize.js");
/// JavaScript code that prepares the arguments of a tool and describes exceptions, used by all
/// engines.
pub const TOOL_CALL: &str = include_str!("tool/call.js");

/// First argument of a process that answers one tool call.
pub const TOOL_MODE: &str = "glovebox-tool";
/// Name of the tool's code in stack traces.
pub const TOOL_FILE: &str = "tool.js";
/// Maximum size of a frame with a call, in bytes: the code of a tool and its input, as JSON.
pub const MAX_CALL_BYTES: usize = 24 << 20;
/// Maximum length of the text of one log record, in bytes.
pub const MAX_LOG_TEXT_BYTES: usize = 16 << 10;
/// Allowance for a frame of the program besides a value of the permitted size, in bytes.
pub const FRAME_SLACK_BYTES: usize = 64 << 10;
/// Maximum nesting of a result, which common JSON parsers accept by default.
pub const MAX_RESULT_DEPTH: u32 = 100;

/// Call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// ECMAScript module whose default export is the function to call.
    pub code: String,
    /// Input as JSON text.
    pub input: String,
    /// Members that are added to the second argument of the function, as JSON text of an object.
    pub context: String,
    /// Identifier of the call, passed to the function.
    pub call_id: String,
    /// Limits of the call.
    pub limits: CallLimits,
    /// Fixed clock and random seed, for calls that must be reproducible. `None` uses the real ones.
    pub fixed: Option<FixedSources>,
    /// Grant that lets `fetch` work. `None` if no host is granted. The operator grants it, never
    /// the tool.
    pub fetch: Option<FetchGrant>,
}

/// Limits of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallLimits {
    /// Time limit in milliseconds.
    pub wall_ms: u64,
    /// CPU time limit in milliseconds; the kernel enforces it in whole seconds, rounded up.
    pub cpu_ms: u64,
    /// Limit of JavaScript values and code, in bytes.
    pub memory_bytes: u64,
    /// Limit of the result as JSON text, in bytes.
    pub output_bytes: u64,
    /// Limit of all log records, in bytes. Further ones are dropped, which one record reports.
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

/// Fixed sources of time and random numbers, for calls that must be reproducible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedSources {
    /// Time of the clock, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Message of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum CallMessage {
    /// The tool has logged a record.
    Log(LogRecord),
    /// The tool requests an HTTP request.
    Fetch(FetchCall),
    /// The tool has aborted a request.
    FetchAbort {
        /// Number of the request.
        id: u32,
    },
    /// The tool has returned a value.
    Value {
        /// Result as JSON text.
        json: String,
        /// Changes that were needed to represent the value as JSON.
        warnings: Vec<String>,
    },
    /// The call has failed.
    Error(CallError),
}

/// Record of a tool's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRecord {
    /// Severity of the record.
    pub level: LogLevel,
    /// Text, which may contain any characters.
    pub text: String,
}

/// Severity of a log record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// `console.debug`.
    Debug,
    /// `console.log`, `console.info`.
    Info,
    /// `console.warn`, and messages of the program itself.
    Warn,
    /// `console.error`.
    Error,
}

/// Error of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    /// Kind of the error.
    pub kind: CallErrorKind,
    /// Name of the exception, such as `TypeError`. Empty if there is none.
    pub name: String,
    /// Message of the exception.
    pub message: String,
    /// Stack trace with the lines of the tool's code only.
    pub stack: String,
}

/// Kind of an error that the program can detect. The host detects a termination from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallErrorKind {
    /// The tool threw an exception.
    Tool,
    /// The tool threw `null` or `undefined`. The engine does the same if it has no memory for an
    /// exception.
    Null,
    /// The code is not valid JavaScript.
    Syntax,
    /// The module exports no function to call.
    NotFound,
    /// The result cannot be represented as JSON.
    NotJson,
    /// The result exceeds the output limit.
    OutputLimit,
    /// The tool exceeded its memory limit.
    Memory,
    /// The program detected the time limit. The host compares that with its own clock.
    Interrupted,
}

/// Decoder of frames from pieces of any size.
#[derive(Debug)]
pub struct FrameDecoder {
    pending: Vec<u8>,
    max_bytes: usize,
}

/// Violation of the framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// The length of a frame exceeds the maximum. Holds that length in bytes.
    TooLarge(u64),
    /// The content of a frame is not a valid message.
    NotAMessage,
}

impl FrameDecoder {
    /// Creates a decoder for frames of at most `max_bytes`.
    pub const fn new(max_bytes: usize) -> Self {
        Self {
            pending: Vec::new(),
            max_bytes,
        }
    }

    /// Adds received bytes. At most one incomplete frame and these bytes are held if the caller
    /// takes all complete frames.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Takes the next complete frame. `None` if it is not complete yet.
    ///
    /// # Errors
    /// [`FrameError`] if the frame is too large. Nothing further can be decoded then.
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

    /// Returns true if an incomplete frame is held.
    pub fn is_torn(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Returns a frame with this JSON text.
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
