//! One piece of work: what a sandbox for a project is to be like, and what became of it.
//!
//! ```text
//! host   what of this machine and this user reaches a sandbox: project, variables, toolchains, git
//! spec   settings and surroundings -> ResolvedSpec
//! sync   a sandbox's changes, collected; a copy of the project, pushed
//! ```
//!
//! In: resolved settings and the user's surroundings, as values. Out: specs, change sets, or an [`Error`]. Nothing
//! here prints, reads a variable, or knows exit codes: the command line, MCP and tests are equal callers.

mod error;
pub mod host;
pub mod spec;
pub mod sync;

pub use error::Error;
pub use spec::ResolvedSpec;
