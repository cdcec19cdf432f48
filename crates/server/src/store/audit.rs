//! Who did what, when, and what was decided: one JSON line each, appended and never changed.
//!
//! Three kinds: requests, calls of tools, and decisions about hosts that a sandbox or a tool of a bundle asked for. No content: neither words
//! of a task nor of a file, nor the arguments of a call. What was said is told by its digest.

use glovebox_egress::DecisionSum;
use serde::Serialize;
use std::net::IpAddr;

/// Most characters of a tool's name: a model chooses it.
const MAX_TOOL_CHARS: usize = 128;

/// What was decided about a request or a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Decision {
    /// It was done, or failed honestly.
    Allowed,
    /// It was refused.
    Refused,
}

/// The proof by which a request's user was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Via {
    Token,
    /// The login of a browser.
    Cookie,
    /// The login to a preview.
    Preview,
}

/// One entry, without its time.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum AuditEntry<'a> {
    /// A request over HTTP.
    Request {
        user: &'a str,
        /// The client's, by a trusted proxy's word where there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<IpAddr>,
        #[serde(skip_serializing_if = "Option::is_none")]
        via: Option<Via>,
        /// Method and route.
        action: &'a str,
        /// The session or sandbox.
        object: Option<&'a str>,
        decision: Decision,
        status: u16,
        /// Of the body.
        #[serde(skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    /// A call of a tool that has ended.
    Tool(ToolEntry<'a>),
    /// What was decided about a host.
    Egress(EgressEntry<'a>),
}

/// A call of a tool.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ToolEntry<'a> {
    pub user: &'a str,
    pub session: Option<&'a str>,
    pub sandbox: Option<&'a str>,
    /// The call, as its session calls it.
    pub call: &'a str,
    #[serde(serialize_with = "short")]
    pub tool: &'a str,
    pub placement: &'a str,
    pub decision: Decision,
    /// `ok`, `error`, or the code of the fault.
    pub outcome: &'a str,
    pub took_ms: u64,
    /// The command that it ran, if it ran one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// What `glovebox why` knows the decision by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'a str>,
    /// Of the arguments.
    pub digest: String,
    /// Of what the caller was told.
    pub output_digest: String,
}

/// Equal decisions about a host.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EgressEntry<'a> {
    pub user: &'a str,
    pub session: Option<&'a str>,
    pub sandbox: Option<&'a str>,
    /// The tool of a bundle that asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<&'a str>,
    /// Calls that ran at that time.
    pub calls: Vec<String>,
    /// `None` stands for all those that there were too many of.
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
    /// Of what a user's programs asked for, without where they did.
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
