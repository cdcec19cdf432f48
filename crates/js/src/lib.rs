//! The words between the hands and `glovebox-js`, the program in the sandbox that runs scripts.
//!
//! One JSON object a line, in both directions, over its standard input and output. Each belongs to one
//! script by a token that nobody inside knows before. A script cannot write a line of its own: what it
//! prints is a string within one.
//!
//! ```text
//! hands   Run -> ...  Answer to each Call ...  Cancel        (several may wait: they run one by one)
//! script  Begin, then Output and Call in any number, then End
//! ```
//!
//! A call that a script makes is a wish: what comes of it is decided where all calls are.

pub mod tool_call;
pub mod tool_fetch;

use serde::{Deserialize, Serialize};

/// Longest line either side accepts, in bytes.
pub const MAX_LINE_BYTES: usize = 8 << 20;
/// Longest script, in bytes.
pub const MAX_CODE_BYTES: usize = 1 << 20;
/// Calls one script may make.
pub const MAX_CALLS: u32 = 1000;
/// Arguments of one call, as JSON text, in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 4 << 20;
/// What a script's variables may take, in bytes, besides the context.
pub const MEMORY_BYTES: u64 = 256 << 20;
/// Largest context, in bytes.
pub const MAX_CONTEXT_BYTES: u64 = 64 << 20;

/// What the program is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum HostMessage {
    /// Run a script.
    Run(Run),
    /// A call has ended.
    Answer {
        /// Of the script.
        token: String,
        /// Of the call.
        call: u32,
        /// Whether `json` is what went wrong.
        is_fault: bool,
        /// JSON text.
        json: String,
    },
    /// Give a script up.
    Cancel {
        /// Of the script.
        token: String,
    },
}

/// A script to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// By which everything that belongs to it is known.
    pub token: String,
    /// The script.
    pub code: String,
    /// How long it may take.
    pub limit_ms: u64,
    /// The file with the context, if there is one.
    pub context: Option<String>,
    /// Its size, in bytes.
    pub context_bytes: u64,
}

/// What the program says, and of which script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptMessage {
    /// Of the script.
    pub token: String,
    /// What.
    #[serde(flatten)]
    pub word: ScriptEvent,
}

/// What the program says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ScriptEvent {
    /// It runs now.
    Begin,
    /// It has printed something.
    Output {
        /// What.
        text: String,
        /// Bytes left out before it.
        #[serde(default)]
        skipped: u64,
    },
    /// It wants a tool called.
    Call {
        /// Names the call.
        call: u32,
        /// The tool.
        name: String,
        /// JSON text of the arguments.
        arguments: String,
    },
    /// It has ended.
    End {
        /// How.
        ending: Ending,
        /// What it threw, or why it was ended.
        error: Option<ScriptException>,
        /// Whether the session's variables are gone.
        is_fresh: bool,
    },
}

/// How a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It came to its end.
    Done,
    /// It threw something.
    Failed,
    /// Its time was up.
    TimedOut,
    /// It was given up.
    Cancelled,
    /// It wanted more memory than there is for it.
    OutOfMemory,
    /// It waits for something that will never come.
    Stuck,
}

/// Something a script threw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptException {
    /// Name and message.
    pub message: String,
    /// Line of the script, from 1, as far as it is known.
    pub line: Option<u32>,
    /// Where it came from.
    pub stack: String,
}
