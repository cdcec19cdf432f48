//! The agent: a loop that asks a model outside the sandbox and calls the tools inside it.
//!
//! ```text
//! task -> prompt (facts of this run) -> model answer -> tool calls -> results -> model answer ...
//!            |                             |                |
//!            +------------ every step is an event: shown, and kept in the session log
//! ```
//!
//! In: a task, a [`Model`], [`Tools`] over one sandbox, limits. Out: a [`RunOutcome`] that names
//! how the run ended, and events from which the conversation can be resumed or replayed. The caller
//! passes in what it reads from the environment (keys, base addresses); this crate reads no
//! variable, prints nothing and knows no backend. Only waiting for a model is asynchronous, on a
//! runtime of this crate; a tool call runs on an ordinary thread.
//!
//! Keys are held in [`Secret`]; [`Secrets`] removes them from every text before it is displayed,
//! stored or sent.

mod agent_loop;
mod context;
mod conversation;
mod ending;
mod event;
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

pub use agent_loop::{AgentLoop, Approval, Approve, NoApproval, Observe, RunOutcome};
pub use context::ContextBudget;
pub use conversation::{
    CallResult, Image, Message, MessagePart, ModelAnswer, Spending, StopReason, ToolCall, Usage,
    WireFormat,
};
pub use ending::Ending;
pub use event::{Conversation, DeclaredAgent, EVENT_VERSION, Event, LoggedEvent};
pub use instructions::{InstructionSource, Instructions};
pub use limits::RunLimits;
pub use log::{Log, LogPosition, SessionInfo, SessionLock, SessionState, make_private_database};
pub use model::{
    AnswerFuture, Delta, Model, ModelError, ModelName, OnDelta, Prompt, Provider, ProviderAccess,
    RemoteModel, RetryPolicy, decode_stream, detect_provider, http_client, window_of_server,
};
pub use price::{KnownModel, Price, Tariff, default_model, known_model};
pub use prompt::{
    Date, NetworkReach, Placement, Program, PromptFacts, Questions, SystemFacts, changed,
    plain_fact, system_prompt,
};
pub use replay::{Divergence, RecordedModel, ReplayComparison, compare, read_recording};
pub use secret::{Secret, Secrets};
pub use stop::StopSignal;
pub use tools::{
    ServerPlace, ToolDefinition, ToolOutput, ToolServer, Toolbox, Tools, unknown_tool,
};
