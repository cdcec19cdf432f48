//! The wish to stop, from whoever has it to whoever works.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Can be asked for from any thread, also from one that handles signals.
#[derive(Debug, Clone, Default)]
pub struct StopSignal {
    flag: Arc<AtomicBool>,
    /// Why, where it is not the user's wish.
    limit: Arc<Mutex<Option<String>>>,
    notify: Arc<Notify>,
}

impl StopSignal {
    /// Asks for the end of what goes on.
    pub fn ask(&self) {
        self.flag.store(true, Ordering::SeqCst);
        // Leaves a permit, so that whoever begins to wait a moment later does not wait.
        self.notify.notify_one();
    }

    /// Asks for the end because a limit of whoever runs the agent was reached; `why` is a sentence.
    pub fn ask_at_limit(&self, why: String) {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.ask();
    }

    /// The limit that was reached, if that is why it was asked for.
    pub fn limit(&self) -> Option<String> {
        let limit = self.limit.lock();
        limit.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the user's wish back, before something new begins. A limit that was reached stays reached.
    pub fn clear(&self) {
        if self.limit().is_some() {
            return;
        }
        self.flag.store(false, Ordering::SeqCst);
    }

    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Waits until it is asked for.
    pub(crate) async fn asked(&self) {
        while !self.is_asked() {
            self.notify.notified().await;
        }
    }
}
