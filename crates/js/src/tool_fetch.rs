//! What a tool's `fetch` asks of the host, and what it is answered: messages within those of [`crate::tool_call`].
//!
//! ```text
//! program  CallMessage::Fetch, CallMessage::FetchAbort, while the call runs
//! host     one frame with a FetchReply for each request, in any order, to the program's standard input
//! ```
//!
//! The program has no network. The host makes the requests, by the policy of its operator and within a budget.

use serde::{Deserialize, Serialize};

/// Largest frame with an answer, in bytes. Bodies are base64.
pub const MAX_REPLY_BYTES: usize = 16 << 20;

/// How many requests a program may ask for. It keeps to that by itself; of one that does not nothing more is
/// heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchGrant {
    /// Requests of the call.
    pub requests: u32,
    /// The bodies of all of them, in bytes.
    pub sent_bytes: u64,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchCall {
    /// Names it: 1 for the first of a call, one more for each that follows.
    pub id: u32,
    /// Its method, in capital letters.
    pub method: String,
    /// Its address.
    pub url: String,
    /// Names and values, with one character a byte.
    pub headers: Vec<(String, String)>,
    /// Its body, in base64; empty for none.
    pub body: String,
    /// What becomes of an answer that leads elsewhere.
    pub redirect: RedirectMode,
}

/// What becomes of an answer that leads elsewhere (Fetch standard, request's redirect mode).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectMode {
    /// It is followed.
    Follow,
    /// It is an error.
    Error,
    /// It is the answer.
    Manual,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchReply {
    /// The request.
    pub id: u32,
    /// What came of it.
    pub outcome: FetchOutcome,
}

/// An answer, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum FetchOutcome {
    /// A server answered.
    Answer(FetchAnswer),
    /// None did.
    Failure(FetchFailure),
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchAnswer {
    /// Status of HTTP.
    pub status: u16,
    /// The word for it.
    pub status_text: String,
    /// Where the answer came from in the end.
    pub url: String,
    /// Whether others led there.
    pub is_redirected: bool,
    /// Names in small letters, and values with one character a byte.
    pub headers: Vec<(String, String)>,
    /// Its body, in base64.
    pub body: String,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchFailure {
    /// `E_NETWORK`, `E_TIMEOUT`, `E_LIMIT` or `E_REQUEST`.
    pub code: String,
    /// In one sentence.
    pub message: String,
    /// The host that was asked, or would have been; empty where none was named.
    pub host: String,
    /// Its port; 0 where none was named.
    pub port: u16,
    /// Why the host may not be reached, as one word; empty where it may.
    pub reason: String,
}
