//! When bytes last went over a connection, and that nobody has used it for long.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When bytes last went either way.
#[derive(Debug)]
pub(super) struct LastUse(Mutex<Instant>);

impl LastUse {
    /// Used just now.
    pub(super) fn now() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    pub(super) fn touch(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns when nothing has gone either way for so long.
    pub(super) async fn wait_for_idle(&self, idle: Duration) {
        loop {
            let used = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(left) = idle.checked_sub(used.elapsed()) else {
                return;
            };
            // A second at least, so that no clock makes this a busy loop.
            tokio::time::sleep(left.clamp(Duration::from_secs(1), Duration::from_hours(24))).await;
        }
    }
}
