//! Tools of a model: operations that an agent or another caller can perform in one sandbox.
//!
//! ```text
//! call     name + JSON arguments -> catalog: the tool, and its arguments as the tool's own type
//! permit   rules of the user or the operator; a question to a person if a rule says `ask`
//! turn     reads at once, changes one at a time, commands together, job control at any time
//! run      requests to the guest, all of them through glovebox_sandbox
//! result   ToolOutcome { text and images for the model, view for people, facts for programs }
//! ```
//!
//! A tool is declared once. Its argument type gives the JSON schema, and the doc comments of that
//! type give the descriptions. A tool does not know where its sandbox runs, so definitions and
//! behaviour are the same for all backends. A command that fails is an outcome. Only an error of
//! the caller or of the connection to the sandbox is a [`Fault`](glovebox_proto::Fault).

mod call;
mod catalog;
mod children;
mod commands;
mod context;
pub mod cut;
mod hint;
mod home;
mod ledger;
mod live;
mod nearest;
mod outcome;
pub mod policy;
mod prefix;
mod project_news;
mod schedule;
mod tool_session;
mod tools;
mod waits;

pub use call::CallClient;
pub use catalog::{CATALOG, Definition, definitions, find};
pub use children::ChildSandboxes;
pub use context::ContextData;
pub use nearest::nearest;
pub use outcome::{FileChange, Image, OutcomeView, ToolOutcome};
pub use policy::{Permit, PermitRequest};
pub use prefix::ToolPrefix;
pub use tool_session::ToolSession;
pub use tools::PROBE;
pub use tools::read::picture;
pub use tools::run_js::is_script_session;
pub use waits::WaitPolicy;
