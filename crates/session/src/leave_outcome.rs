//! Result of leaving a sandbox, for the caller and for the user.

/// State of a sandbox that was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaveOutcome {
    /// The sandbox existed before and continues to run.
    Untouched,
    /// Removed, because nothing was changed in it.
    Removed,
    /// Stopped, with this many changes.
    Stopped(usize),
    /// Still running, for this reason.
    Running(String),
}
