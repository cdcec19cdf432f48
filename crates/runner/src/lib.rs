//! Runs the code of one tool of a bundle, one call at a time, apart from everything.
//!
//! ```text
//! call      what a call is, what comes of it, and what may go wrong
//! runner    ToolRunner: a call in, a report out
//!   gate    how many calls run at a time
//!   process one call's process: what it is told and says, and how it is ended
//!   pool    quickjs: sandboxes that hold nothing, one for each tenant and one more in reserve
//!   node    node: a sandbox for each call, with the programs of this machine
//!   grant   which hosts an operator has granted to which tool
//!   fetch   requests that a tool asks for, made out here by that grant
//!   answer  frames of the program inside -> log, value, error; how its end is judged
//! ```
//!
//! With the engine `quickjs` a call is a process of `glovebox-js` (crate `js`, its `tool` module) in a native sandbox without network, workspace
//! or programs. The process puts itself under limits and under a filter that leaves it nothing but to compute, before
//! it sees the tool's code; it answers with one frame and ends. It serves no second call.
//!
//! With the engine `node` it is a process of Node in a sandbox of its own, which ends with it. The tool may do there what
//! any command may do in a sandbox without workspace, and without network but for hosts that were granted; the same parent
//! judges it by the same limits.
//!
//! Two clocks end a call: that of `glovebox-js`, so that most calls end with a reason and their log, and the guest's, which
//! kills what cannot be interrupted. Whether a call was late, was killed or broke the rules is told by what the sandbox
//! reports of the process, never by what the process says.

mod answer;
mod call;
mod engine;
mod fetch;
mod gate;
mod grant;
mod node;
mod pool;
mod process;
mod runner;

pub use call::{CallFailure, CallReport, FailureKind, MAX_WALL, ToolRequest};
pub use engine::{Engine, NodeView};
pub use fetch::ToolCaller;
pub use grant::{
    CALL_BUDGET, GrantError, GrantFlags, HostGrant, HostRule, HostRuleError, MAX_TOOL_NAME_CHARS,
    RefusedHost, is_tool_name,
};
pub use runner::{RunnerConfig, ToolRunner};
