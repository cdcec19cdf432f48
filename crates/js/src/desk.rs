//! Table that the program's threads share: the running script, its time limit, and the cancelled
//! scripts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Maximum number of scripts that are remembered as cancelled before they began.
const MAX_CANCELLED: usize = 256;

/// State of scripts, shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct ScriptTable {
    state: Mutex<State>,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    current: Option<(String, Instant)>,
    cancelled: VecDeque<String>,
}

impl ScriptTable {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a script as running until `until`. Returns false if it was cancelled before.
    pub(crate) fn begin(&self, token: &str, until: Instant) -> bool {
        let mut state = self.state();
        if let Some(at) = state.cancelled.iter().position(|other| other == token) {
            state.cancelled.remove(at);
            return false;
        }
        self.stop.store(false, Ordering::SeqCst);
        state.current = Some((token.to_owned(), until));
        true
    }

    /// Marks the running script as ended.
    pub(crate) fn end(&self) {
        self.state().current = None;
    }

    /// Cancels a script, both if it is running and if it is queued.
    pub(crate) fn cancel(&self, token: &str) {
        let mut state = self.state();
        if state
            .current
            .as_ref()
            .is_some_and(|(current, _)| current == token)
        {
            self.stop.store(true, Ordering::SeqCst);
        } else {
            if state.cancelled.len() == MAX_CANCELLED {
                state.cancelled.pop_front();
            }
            state.cancelled.push_back(token.to_owned());
        }
    }

    /// Returns true if the running script was cancelled.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Returns the token of the running script and its time limit. `None` if none is running.
    pub(crate) fn deadline(&self) -> Option<(String, Instant)> {
        self.state().current.clone()
    }
}
