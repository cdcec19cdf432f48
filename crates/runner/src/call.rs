//! A tool call: the request, its report and its failures.

use crate::engine::Engine;
use crate::grant::RefusedHost;
use glovebox_js::tool_call::{CallLimits, FixedSources, LogRecord};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Maximum time of any call.
pub const MAX_WALL: Duration = Duration::from_secs(30);

/// Request to call a tool once.
#[derive(Debug, Clone, Copy)]
pub struct ToolRequest<'a> {
    /// Tenant of the call. Calls of different tenants never share a sandbox.
    pub tenant: &'a str,
    /// Name of the tool, which selects the hosts that are granted to it.
    pub tool: &'a str,
    /// Session in which the call is made; the tool's network traffic is counted for it. `None` for
    /// a single call.
    pub session: Option<&'a str>,
    /// Engine that runs the code.
    pub engine: Engine,
    /// ECMAScript module whose default export is the function to call.
    pub code: &'a str,
    /// First argument of the function.
    pub input: &'a Value,
    /// Object whose members are added to the second argument of the function.
    pub context: &'a Value,
    /// Identifier of the call, passed to the function.
    pub call_id: &'a str,
    /// Limits of the call. A time limit above [`MAX_WALL`] is reduced to it.
    pub limits: CallLimits,
    /// Fixed clock and random seed. Only [`Engine::Quickjs`] supports them.
    pub fixed: Option<FixedSources>,
}

/// Result of a successful call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// Value that the tool returned.
    pub value: Value,
    /// Changes that were needed to represent the value as JSON, one sentence each.
    pub warnings: Vec<String>,
    /// Records that the tool logged.
    pub log: Vec<LogRecord>,
    /// Hosts that the tool requested and may not reach.
    pub refused_hosts: Vec<RefusedHost>,
    /// Duration from the request to the result.
    pub wall: Duration,
    /// CPU time of the process.
    pub cpu: Duration,
    /// Maximum resident memory of the process, in bytes.
    pub peak_memory_bytes: u64,
}

/// Failure of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFailure {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// Name of the exception, such as `TypeError`. Empty if there is none.
    pub name: String,
    /// Message of one sentence. If the tool wrote it, it may contain any characters.
    pub message: String,
    /// Stack trace with the lines of the tool's code only.
    pub stack: Box<str>,
    /// Records that the tool logged before the failure.
    pub log: Box<[LogRecord]>,
    /// Hosts that the tool requested and may not reach.
    pub refused_hosts: Box<[RefusedHost]>,
    /// Duration from the request to the failure.
    pub wall: Duration,
}

/// Kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The tool threw an exception, or waits for a promise that is never settled.
    ToolError,
    /// The code is not valid JavaScript.
    Syntax,
    /// The code exports no function to call.
    NotFound,
    /// The result cannot be represented as JSON.
    NotJson,
    /// The result exceeds the output limit.
    OutputLimit,
    /// The call exceeded its time limit.
    Timeout,
    /// The call exceeded its CPU time limit.
    Cpu,
    /// The call exceeded its memory limit.
    Memory,
    /// The process was terminated: it made a denied system call, crashed or violated the protocol.
    Killed,
    /// The caller cancelled the call.
    Cancelled,
    /// The request exceeds the maximum size.
    TooLarge,
    /// Too many calls are running.
    Busy,
    /// No sandbox is available.
    Unavailable,
}

impl FailureKind {
    /// Returns the stable identifier of the kind.
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
    /// Creates a failure with a message and otherwise empty fields.
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

    /// Creates the failure of a call that its caller has cancelled.
    pub(crate) fn given_up() -> Self {
        Self::new(FailureKind::Cancelled, "the call was given up")
    }
}
