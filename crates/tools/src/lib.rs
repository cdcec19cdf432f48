//! The tools of a model: what an agent or any other caller can do in one sandbox.
//!
//! ```text
//! call     name + JSON arguments -> catalog: the tool, its arguments checked by its own type
//! permit   the rules of whoever started it, and a question to a person where they say so
//! turn     reads at once, changes one after the other, commands together, jobs beside them
//! run      requests through the one door (glovebox_sandbox)
//! back     Outcome { text and images for the model, view for people, facts for programs }
//! ```
//!
//! A tool is declared once: its argument type gives the JSON schema, its doc comments the
//! descriptions. Where a sandbox runs is none of a tool's business, so definitions and behaviour are
//! the same everywhere. A command that fails is an outcome; only what the caller or the way to the
//! sandbox did wrong is a [`Fault`](glovebox_proto::Fault).

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
