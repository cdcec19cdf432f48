//! Messages for the `fetch` of a tool, in addition to those of [`crate::tool_call`].
//!
//! ```text
//! program  CallMessage::Fetch, CallMessage::FetchAbort, while the call runs
//! host     one frame with a FetchReply for each request, in any order, to standard input
//! ```
//!
//! The program has no network. The host makes the requests, under the policy of its operator and
//! within a budget.

use serde::{Deserialize, Serialize};

/// Maximum size of a frame with a response, in bytes. Bodies are base64.
pub const MAX_REPLY_BYTES: usize = 16 << 20;

/// Limits on the requests of a program. The program respects them itself; the host ignores all
/// further messages of one that does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchGrant {
    /// Maximum number of requests of the call.
    pub requests: u32,
    /// Maximum size of the bodies of all requests, in bytes.
    pub sent_bytes: u64,
}

/// Request of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchCall {
    /// Number of the request: 1 for the first of a call, one more for each that follows.
    pub id: u32,
    /// Method in upper case.
    pub method: String,
    /// URL of the request.
    pub url: String,
    /// Names and values of headers, with one character for each byte.
    pub headers: Vec<(String, String)>,
    /// Body in base64; empty if there is none.
    pub body: String,
    /// Treatment of a redirect.
    pub redirect: RedirectMode,
}

/// Treatment of a redirect (Fetch standard, request's redirect mode).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectMode {
    /// The redirect is followed.
    Follow,
    /// The redirect is an error.
    Error,
    /// The redirect is the response.
    Manual,
}

/// Reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchReply {
    /// Number of the request.
    pub id: u32,
    /// Response or failure.
    pub outcome: FetchOutcome,
}

/// Response or failure of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum FetchOutcome {
    /// A server has responded.
    Answer(FetchAnswer),
    /// The request has failed.
    Failure(FetchFailure),
}

/// Response of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchAnswer {
    /// HTTP status code.
    pub status: u16,
    /// Reason phrase of the status.
    pub status_text: String,
    /// URL that the response came from, after redirects.
    pub url: String,
    /// True if at least one redirect was followed.
    pub is_redirected: bool,
    /// Names in lower case, and values with one character for each byte.
    pub headers: Vec<(String, String)>,
    /// Body in base64.
    pub body: String,
}

/// Failure of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchFailure {
    /// `E_NETWORK`, `E_TIMEOUT`, `E_LIMIT` or `E_REQUEST`.
    pub code: String,
    /// Message of one sentence.
    pub message: String,
    /// Requested host. Empty if the request names none.
    pub host: String,
    /// Requested port. 0 if the request names none.
    pub port: u16,
    /// Identifier of the reason for which the host may not be reached. Empty if it may.
    pub reason: String,
}
