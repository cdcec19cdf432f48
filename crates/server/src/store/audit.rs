//! Entries of the audit log: the user, action, time and decision of each event, as one JSON line.
//! Lines are appended and never changed.
//!
//! There are three kinds: requests, calls of tools, and decisions about hosts that a sandbox or a
//! tool of a bundle requested. An entry holds no content: no text of a task, file or argument.
//! Content is represented by its digest.

use glovebox_egress::DecisionSum;
use serde::Serialize;
use std::net::IpAddr;

/// Maximum length of a tool's name in an entry: the model chooses it.
const MAX_TOOL_CHARS: usize = 128;

/// Decision about a request or a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Decision {
    /// The request was carried out, even if it then failed.
    Allowed,
    /// The request was refused.
    Refused,
}

/// Means by which a request's user was authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Via {
    Token,
    /// Login of a browser.
    Cookie,
    /// Login to a preview.
    Preview,
}

/// An entry without its time.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum AuditEntry<'a> {
    /// An HTTP request.
    Request {
        user: &'a str,
        /// Address of the client, as reported by a trusted proxy if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<IpAddr>,
        #[serde(skip_serializing_if = "Option::is_none")]
        via: Option<Via>,
        /// Method and route.
        action: &'a str,
        /// Session or sandbox of the request.
        object: Option<&'a str>,
        decision: Decision,
        status: u16,
        /// Digest of the body.
        #[serde(skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    /// A tool call that has ended.
    Tool(ToolEntry<'a>),
    /// Equal decisions about a host.
    Egress(EgressEntry<'a>),
}

/// A tool call.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ToolEntry<'a> {
    pub user: &'a str,
    pub session: Option<&'a str>,
    pub sandbox: Option<&'a str>,
    /// Id of the call in its session.
    pub call: &'a str,
    #[serde(serialize_with = "short")]
    pub tool: &'a str,
    pub placement: &'a str,
    pub decision: Decision,
    /// `ok`, `error`, or the code of the fault.
    pub outcome: &'a str,
    pub took_ms: u64,
    /// Id of the command that the call ran. None if it ran none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// Id of the decision for `glovebox why`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'a str>,
    /// Digest of the arguments.
    pub digest: String,
    /// Digest of the text that the caller received.
    pub output_digest: String,
}

/// Equal decisions about a host, combined.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EgressEntry<'a> {
    pub user: &'a str,
    pub session: Option<&'a str>,
    pub sandbox: Option<&'a str>,
    /// Tool of a bundle that requested the host. None for commands of a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<&'a str>,
    /// Ids of the calls that ran at that time.
    pub calls: Vec<String>,
    /// Requested host. None for the sum of further hosts, when there were too many to name.
    pub host: Option<&'a str>,
    pub port: Option<u16>,
    pub rule: Option<&'a str>,
    pub verdict: &'static str,
    pub reason: Option<&'static str>,
    pub count: u64,
    pub first_unix_ms: u64,
    pub last_unix_ms: u64,
}

impl<'a> EgressEntry<'a> {
    /// Creates an entry from the decisions for a user's programs, without session, sandbox, tool
    /// and calls.
    pub(crate) fn new(user: &'a str, decision: &'a DecisionSum) -> Self {
        Self {
            user,
            session: None,
            sandbox: None,
            tool: None,
            calls: Vec::new(),
            host: decision.host.as_deref(),
            port: decision.port,
            rule: decision.rule.as_deref(),
            verdict: decision.verdict.word(),
            reason: decision.verdict.reason(),
            count: decision.count,
            first_unix_ms: decision.first_unix_ms,
            last_unix_ms: decision.last_unix_ms,
        }
    }
}

fn short<S: serde::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let end = text.char_indices().nth(MAX_TOOL_CHARS);
    let text = end.map_or(text, |(end, _)| text.get(..end).unwrap_or_default());
    serializer.serialize_str(text)
}
