//! Record of one conversation about its commands: the output that was shown, and the commands that
//! go on although their call was cancelled.

use glovebox_proto::JobId;
use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of remembered commands. Beyond it, output may be shown twice.
const MAX_COMMANDS: usize = 1000;

/// Commands of one conversation.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    state: Mutex<CommandsState>,
}

#[derive(Debug, Default)]
struct CommandsState {
    /// Offset after the last byte shown, in bytes.
    shown: HashMap<JobId, u64>,
    left: Vec<JobId>,
}

impl Commands {
    fn state(&self) -> MutexGuard<'_, CommandsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the output up to `offset` was shown.
    pub(crate) fn note_shown(&self, job: JobId, offset: u64) {
        let mut state = self.state();
        if state.shown.len() >= MAX_COMMANDS {
            state.shown.clear();
        }
        let shown = state.shown.entry(job).or_default();
        *shown = offset.max(*shown);
    }

    /// Returns the offset of the first byte that was not shown.
    pub(crate) fn shown(&self, job: JobId) -> u64 {
        self.state().shown.get(&job).copied().unwrap_or(0)
    }

    /// Records a command that goes on after its call was cancelled, until [`Self::take_left`]
    /// reports it.
    pub(crate) fn leave(&self, job: JobId) {
        let mut state = self.state();
        if state.left.len() < MAX_COMMANDS {
            state.left.push(job);
        }
    }

    /// Returns the commands of [`Self::leave`], each one time.
    pub(crate) fn take_left(&self) -> Vec<JobId> {
        mem::take(&mut self.state().left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_is_not_shown_again_and_what_was_left_is_told_once() {
        let commands = Commands::default();
        let job = JobId(3);
        assert_eq!(commands.shown(job), 0);
        commands.note_shown(job, 10);
        // Another reader began at the start of the output.
        commands.note_shown(job, 4);
        assert_eq!(commands.shown(job), 10);
        commands.leave(job);
        assert_eq!(commands.take_left(), [job]);
        assert!(commands.take_left().is_empty());
    }
}
