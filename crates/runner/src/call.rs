//! What a call is, what comes of it, and what may go wrong.

use crate::engine::Engine;
use crate::grant::RefusedHost;
use glovebox_js::tool_call::{CallLimits, FixedSources, LogRecord};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// The longest time that any call may have.
pub const MAX_WALL: Duration = Duration::from_secs(30);

/// One call of the code of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolRequest<'a> {
    /// On whose behalf: calls of different tenants never share a sandbox.
    pub tenant: &'a str,
    /// The tool, by its name: it may reach the hosts that are granted to tools of that name.
    pub tool: &'a str,
    /// The session that the call is made in, if it is one: what its tools ask of hosts is counted for it.
    pub session: Option<&'a str>,
    /// What runs it.
    pub engine: Engine,
    /// An ECMAScript module whose default export is the function.
    pub code: &'a str,
    /// Its first argument.
    pub input: &'a Value,
    /// What its second argument has besides what every call has: an object.
    pub context: &'a Value,
    /// Names the call, for the function.
    pub call_id: &'a str,
    /// What it may use. More time than [`MAX_WALL`] is cut to that.
    pub limits: CallLimits,
    /// A clock that stands and random numbers that repeat, which only [`Engine::Quickjs`] has.
    pub fixed: Option<FixedSources>,
}

/// What a tool returned.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// The value.
    pub value: Value,
    /// What was changed to make it JSON, a sentence each.
    pub warnings: Vec<String>,
    /// What the tool logged.
    pub log: Vec<LogRecord>,
    /// Hosts that it asked for and may not reach.
    pub refused_hosts: Vec<RefusedHost>,
    /// From the request to the answer.
    pub wall: Duration,
    /// Time of a processor.
    pub cpu: Duration,
    /// The most memory that the process had, in bytes.
    pub peak_memory_bytes: u64,
}

/// Why a call has no value.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFailure {
    /// Of what kind.
    pub kind: FailureKind,
    /// Name of the exception, such as `TypeError`; empty where there is none.
    pub name: String,
    /// In one sentence. It may have any characters in it where the tool wrote it.
    pub message: String,
    /// Where it was thrown, in lines of the tool's code.
    pub stack: Box<str>,
    /// What the tool logged before.
    pub log: Box<[LogRecord]>,
    /// Hosts that it asked for and may not reach.
    pub refused_hosts: Box<[RefusedHost]>,
    /// From the request to the failure.
    pub wall: Duration,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The tool threw, or waits for what never comes.
    ToolError,
    /// The code is no JavaScript.
    Syntax,
    /// The code has no function to call.
    NotFound,
    /// The result cannot be written as JSON.
    NotJson,
    /// The result is longer than it may be.
    OutputLimit,
    /// The call took longer than it may.
    Timeout,
    /// It used more of a processor than it may.
    Cpu,
    /// It wanted more memory than it may have.
    Memory,
    /// It asked for what it may not, crashed or broke the rules, and was ended.
    Killed,
    /// Its caller gave it up.
    Cancelled,
    /// The request is larger than any may be.
    TooLarge,
    /// Too many calls run.
    Busy,
    /// No sandbox can be had.
    Unavailable,
}

impl FailureKind {
    /// Its stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolError => "tool_error",
            Self::Syntax => "syntax",
            Self::NotFound => "not_found",
            Self::NotJson => "not_json",
            Self::OutputLimit => "output_limit",
            Self::Timeout => "timeout",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Killed => "killed",
            Self::Cancelled => "cancelled",
            Self::TooLarge => "too_large",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl CallFailure {
    /// One with this message and nothing else.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            name: String::new(),
            message: message.into(),
            stack: Box::default(),
            log: Box::default(),
            refused_hosts: Box::default(),
            wall: Duration::ZERO,
        }
    }

    /// That of a call whose caller does not want it any more.
    pub(crate) fn given_up() -> Self {
        Self::new(FailureKind::Cancelled, "the call was given up")
    }
}
