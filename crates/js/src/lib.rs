//! Messages between the host's script tool and `glovebox-js`, the program that runs scripts in the
//! sandbox.
//!
//! Both directions carry one JSON object a line, over the program's standard input and output. Each
//! message belongs to one script by its token, which code inside does not know in advance. A script
//! cannot write a line of its own: its output is a string within a message.
//!
//! ```text
//! host    Run -> ...  Answer to each Call ...  Cancel     (several may wait: they run one by one)
//! script  Begin, then Output and Call in any number, then End
//! ```
//!
//! A call of a script is a request. The host decides about it as about any other tool call.

pub mod tool_call;
pub mod tool_fetch;

use serde::{Deserialize, Serialize};

/// Maximum length of a line in either direction, in bytes.
pub const MAX_LINE_BYTES: usize = 8 << 20;
/// Maximum length of a script, in bytes.
pub const MAX_CODE_BYTES: usize = 1 << 20;
/// Maximum number of calls of one script.
pub const MAX_CALLS: u32 = 1000;
/// Maximum length of the arguments of one call as JSON text, in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 4 << 20;
/// Memory limit of a script's variables without the context, in bytes.
pub const MEMORY_BYTES: u64 = 256 << 20;
/// Maximum size of the context file, in bytes.
pub const MAX_CONTEXT_BYTES: u64 = 64 << 20;

/// Message from the host to the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum HostMessage {
    /// Runs a script.
    Run(Run),
    /// Returns the result of a call.
    Answer {
        /// Token of the script.
        token: String,
        /// Number of the call.
        call: u32,
        /// True if the call failed, so that `json` describes the error.
        is_fault: bool,
        /// Result or error as JSON text.
        json: String,
    },
    /// Cancels a script.
    Cancel {
        /// Token of the script.
        token: String,
    },
}

/// Script to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Token that all messages about the script carry.
    pub token: String,
    /// Source code.
    pub code: String,
    /// Time limit in milliseconds.
    pub limit_ms: u64,
    /// Path of the context file. `None` if there is no context.
    pub context: Option<String>,
    /// Size of the context file, in bytes.
    pub context_bytes: u64,
}

/// Message from the program to the host, with the script that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptMessage {
    /// Token of the script.
    pub token: String,
    /// Event to report.
    #[serde(flatten)]
    pub word: ScriptEvent,
}

/// Event of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ScriptEvent {
    /// The script has started.
    Begin,
    /// The script has printed text.
    Output {
        /// Printed text.
        text: String,
        /// Number of bytes left out before it.
        #[serde(default)]
        skipped: u64,
    },
    /// The script calls a tool.
    Call {
        /// Number of the call.
        call: u32,
        /// Name of the tool.
        name: String,
        /// Arguments as JSON text.
        arguments: String,
    },
    /// The script has ended.
    End {
        /// Kind of the end.
        ending: Ending,
        /// Exception that it threw, or the reason for which it was ended. `None` if it succeeded.
        error: Option<ScriptException>,
        /// True if the variables of earlier scripts have been discarded.
        is_fresh: bool,
    },
}

/// Kind of a script's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The script completed.
    Done,
    /// The script threw an exception.
    Failed,
    /// The script exceeded its time limit.
    TimedOut,
    /// The host cancelled the script.
    Cancelled,
    /// The script exceeded its memory limit.
    OutOfMemory,
    /// The script waits for a promise that is never settled.
    Stuck,
}

/// Exception of a script.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptException {
    /// Name and message of the exception.
    pub message: String,
    /// Line of the script, from 1. `None` if it is unknown.
    pub line: Option<u32>,
    /// Stack trace.
    pub stack: String,
}
