//! What a piece of work leaves behind, for whoever leaves it and for the user who is told.

/// What became of a sandbox that was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaveOutcome {
    /// It was there before, and goes on.
    Untouched,
    /// It is gone; nothing was changed in it.
    Removed,
    /// It has stopped and holds this many changes.
    Stopped(usize),
    /// It goes on, for this reason.
    Running(String),
}
