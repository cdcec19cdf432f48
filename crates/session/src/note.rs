//! Something a user should know before a sandbox starts, and what to do about it.

use glovebox_proto::Remedy;

/// What does not reach a sandbox, and how it would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What, and why.
    pub what: String,
    /// How it reaches it nevertheless. Each user interface has words of its own for that.
    pub remedy: Remedy,
}
