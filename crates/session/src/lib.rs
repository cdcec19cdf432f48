//! Operations on a sandbox for a project: its specification, its work, and its changes.
//!
//! ```text
//! note      what does not reach a sandbox, and how to change that
//! host      what a sandbox gets of this machine and this user: project, variables, toolchains, git
//! secrets   values that the egress proxy fills in, read from where the user keeps them
//! spec      settings and surroundings -> ResolvedSpec
//! work      a sandbox for tools: started or attached to, with the project in it; ended or left
//! agent     the run of an agent: model, MCP servers, instructions, session
//! bundle    agents that a bundle declares: stored by digest, run with their own tools
//! sync      a sandbox's changes, collected, planned and applied; a copy of the project, pushed
//! frontend  the user interface of all operations
//! ```
//!
//! In: resolved settings and the user's surroundings, as values. Out: specifications, change sets,
//! or an [`Error`]. Nothing here prints, reads environment variables or knows exit codes: the
//! command line, MCP and tests are equal callers.

pub mod agent;
pub mod bundle;
mod error;
pub mod frontend;
mod git_work;
pub mod host;
mod leave_outcome;
pub mod mcp_clients;
mod note;
pub mod secrets;
pub mod spec;
pub mod sync;
pub mod work;

pub use error::Error;
pub use frontend::{Frontend, Notice};
pub use git_work::GitWork;
pub use leave_outcome::LeaveOutcome;
pub use note::Note;
pub use spec::ResolvedSpec;
pub use work::WorkSession;
