//! Time of the last transfer over a connection, to detect idle ones.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time of the last transfer in either direction.
#[derive(Debug)]
pub(super) struct LastUse(Mutex<Instant>);

impl LastUse {
    /// Creates a value for a connection that was used just now.
    pub(super) fn now() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    pub(super) fn touch(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until no bytes were transferred in either direction for `idle`.
    pub(super) async fn wait_for_idle(&self, idle: Duration) {
        loop {
            let used = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(left) = idle.checked_sub(used.elapsed()) else {
                return;
            };
            // At least one second, so that a clock anomaly cannot make this a busy loop.
            tokio::time::sleep(left.clamp(Duration::from_secs(1), Duration::from_hours(24))).await;
        }
    }
}
