//! What the threads of the program know in common: which script runs, until when, and which are given up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Scripts remembered as given up before they began.
const MAX_CANCELLED: usize = 256;

/// Shared by all threads.
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

    /// A script begins; false when it was given up before.
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

    /// It has ended.
    pub(crate) fn end(&self) {
        self.state().current = None;
    }

    /// A script is given up, whether it runs or waits.
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

    /// Whether the running script was given up.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The running script, and until when it may run.
    pub(crate) fn deadline(&self) -> Option<(String, Instant)> {
        self.state().current.clone()
    }
}
