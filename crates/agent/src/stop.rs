//! Request to stop a run, from any thread to the agent loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Signal that asks a run to stop. Clones share it. Any thread may set it, also the one that
/// handles signals.
#[derive(Debug, Clone, Default)]
pub struct StopSignal {
    flag: Arc<AtomicBool>,
    /// Limit that was reached; `None` for a request of the user.
    limit: Arc<Mutex<Option<String>>>,
    notify: Arc<Notify>,
}

impl StopSignal {
    /// Asks the run to stop.
    pub fn ask(&self) {
        self.flag.store(true, Ordering::SeqCst);
        // `notify_one` stores a permit: a waiter that starts a moment later returns at once.
        self.notify.notify_one();
    }

    /// Asks the run to stop because a limit outside of the run was reached; `why` is a sentence.
    pub fn ask_at_limit(&self, why: String) {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.ask();
    }

    /// Returns the sentence of [`Self::ask_at_limit`]; `None` if no limit was reached.
    pub fn limit(&self) -> Option<String> {
        let limit = self.limit.lock();
        limit.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Withdraws a request of the user before new work begins. A limit stays reached.
    pub fn clear(&self) {
        if self.limit().is_some() {
            return;
        }
        self.flag.store(false, Ordering::SeqCst);
    }

    /// True if the run has to stop.
    pub fn is_asked(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Waits until the run has to stop.
    pub(crate) async fn asked(&self) {
        while !self.is_asked() {
            self.notify.notified().await;
        }
    }
}
