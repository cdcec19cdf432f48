//! The agent's head: it thinks outside the sandbox and acts through the tools inside.
//!
//! ```text
//! task -> prompt (facts of this run) -> model answer -> tool calls -> results -> model answer -> ...
//!            |                             |                |
//!            +------------ every step is an event: shown, and kept in the session log
//! ```
//!
//! In: a task, a [`Model`], [`Tools`] over one sandbox, limits. Out: a [`Verdict`] that is honest about
//! how it ended, and events from which the conversation can be taken up again or replayed. What the
//! environment says (keys, base addresses) is handed in; this crate reads no variable, prints nothing
//! and knows no backend. Only waiting for a model is asynchronous, on a runtime of our own; a tool
//! call happens on an ordinary thread.
//!
//! Keys live in [`Secret`]; [`Secrets`] takes them out of every text before it is shown, kept or sent.

mod context;
mod conversation;
mod ending;
mod event;
mod head;
mod instructions;
mod limits;
mod log;
mod model;
mod price;
mod prompt;
mod repetition;
mod replay;
mod secret;
mod stop;
mod tools;
mod written_call;

pub use context::Budget;
pub use conversation::{
    Answer, Call, CallResult, Image, Message, Part, Spending, StopReason, Usage,
};
pub use ending::Ending;
pub use event::{Conversation, EVENT_VERSION, Event, Logged};
pub use head::{Approval, Approve, Head, NoApproval, Observe, Verdict};
pub use instructions::{InstructionSource, Instructions};
pub use limits::Limits;
pub use log::{Appended, Log, SessionInfo, SessionLock, SessionState};
pub use model::{
    Access, Answering, Delta, Model, ModelError, ModelName, OnDelta, Prompt, Provider, Remote,
    RetryPolicy, detect, http_client, window_of_server,
};
pub use price::{Known, Price, Tariff, known};
pub use prompt::{Date, Facts, Network, Placement, Program, Questions, changed, system_prompt};
pub use replay::{Compared, Divergence, Recorded, compare, read_recording};
pub use secret::{Secret, Secrets};
pub use stop::Stop;
pub use tools::{ServerPlace, ToolDefinition, ToolOutput, ToolServer, Toolbox, Tools};
