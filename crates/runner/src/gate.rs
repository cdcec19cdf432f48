//! How many calls run at a time.

use crate::call::{CallFailure, FailureKind};
use crate::process::LOOK;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a call waits for others to end.
const QUEUE: Duration = Duration::from_secs(10);

/// How many calls may run.
#[derive(Debug)]
pub(crate) struct Gate {
    free: Mutex<usize>,
    changed: Condvar,
}

/// One of them.
pub(crate) struct Turn<'a>(&'a Gate);

impl Gate {
    pub(crate) const fn new(free: usize) -> Self {
        Self {
            free: Mutex::new(free),
            changed: Condvar::new(),
        }
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// When there is none for long, or the call is given up.
    pub(crate) fn enter(&self, cancel: &AtomicBool) -> Result<Turn<'_>, CallFailure> {
        let until = Instant::now() + QUEUE;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            if cancel.load(Ordering::Relaxed) {
                return Err(CallFailure::given_up());
            }
            if Instant::now() >= until {
                let message = "too many tools run at the same time; try again";
                return Err(CallFailure::new(FailureKind::Busy, message));
            }
            (free, _) = self
                .changed
                .wait_timeout(free, LOOK)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Ok(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.changed.notify_one();
    }
}
