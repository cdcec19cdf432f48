//! Runs the code of a bundle's tools, each call in isolation.
//!
//! ```text
//! call      request, report and failures of a call
//! runner    ToolRunner: runs a request and returns its report
//!   gate    limits on simultaneous calls
//!   process process of one call: its input, its output, and its termination
//!   pool    quickjs: empty sandboxes, one for each tenant and one in reserve
//!   node    node: a sandbox for each call, with the programs of this machine
//!   grant   hosts that an operator has granted to tools
//!   fetch   requests of a tool, made by this process under that grant
//!   answer  frames of the program inside -> log, value, error; judgement of its end
//! ```
//!
//! With the engine `quickjs` a call is a process of `glovebox-js` (crate `js`, its `tool` module)
//! in a native sandbox without network, workspace or programs. Before the process receives the
//! tool's code it sets limits and installs a filter that allows nothing but computing. It replies
//! with one frame and exits. It serves no second call.
//!
//! With the engine `node` a call is a process of Node in a sandbox of its own, which ends with it.
//! The tool may do what a command may do in a sandbox without a workspace, with a network of the
//! granted hosts only. The same parent judges it by the same limits.
//!
//! Two clocks end a call: the one of `glovebox-js`, which lets most calls end with a reason and
//! their log, and the one of the guest, which kills processes that cannot be interrupted. The
//! sandbox's report about the process decides whether a call was late, was killed or violated the
//! protocol. The process's own statements do not.

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
