//! Note for the user about something that does not reach a sandbox, with a hint.

use glovebox_proto::Remedy;

/// Fact about a part of the environment that does not reach a sandbox, with a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The subject and the reason.
    pub what: String,
    /// Hint on how to make it reach the sandbox. Each user interface renders it in its own words.
    pub remedy: Remedy,
}
