//! The wish to stop, from whoever has it to whoever works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Can be asked for from any thread, also from one that handles signals.
#[derive(Debug, Clone, Default)]
pub struct StopSignal {
    flag: Arc<AtomicBool>,
    notify: Arc<Notify>,
}

impl StopSignal {
    /// Asks for the end of what goes on.
    pub fn ask(&self) {
        self.flag.store(true, Ordering::SeqCst);
        // Leaves a permit, so that whoever begins to wait a moment later does not wait.
        self.notify.notify_one();
    }

    /// Takes the wish back, before something new begins.
    pub fn clear(&self) {
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
