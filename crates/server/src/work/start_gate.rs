//! Limit of the number of sandboxes that start at the same time.
//!
//! Starting a sandbox is nearly all processor work. If a hundred sandboxes start together, each
//! takes a hundred times as long, and tool calls in running sandboxes wait behind all of them. With
//! one start per processor, all of them are done sooner.

use glovebox_sandbox::{Backend, StartCost};
use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Semaphore for the starts of sandboxes.
#[derive(Debug)]
pub(super) struct StartGate {
    /// Number of starts that may still enter.
    free: Mutex<usize>,
    left: Condvar,
}

/// A start that has entered. Dropping it lets the next one in.
#[derive(Debug)]
pub(super) struct Inside<'a>(&'a StartGate);

impl StartGate {
    /// Creates the gate for sandboxes of this backend. Starts that only wait for another machine
    /// are not limited.
    pub(super) fn for_backend(backend: Backend) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::new(match backend.capabilities().start {
            StartCost::Processor => processors,
            StartCost::Waiting => usize::MAX,
        })
    }

    fn new(places: usize) -> Self {
        Self {
            free: Mutex::new(places),
            left: Condvar::new(),
        }
    }

    /// Blocks until the start may enter.
    pub(super) fn enter(&self) -> Inside<'_> {
        let free = self.free();
        let mut free = self
            .left
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Inside(self)
    }

    fn free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn so_many_are_inside_and_all_come_in() {
        let gate = StartGate::new(2);
        let (inside, most, done) = <(AtomicUsize, AtomicUsize, AtomicUsize)>::default();
        std::thread::scope(|scope| {
            for _ in 0..12 {
                let (gate, inside, most, done) = (&gate, &inside, &most, &done);
                scope.spawn(move || {
                    let _inside = gate.enter();
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(most.into_inner(), 2);
        assert_eq!(done.into_inner(), 12);
    }

    #[test]
    fn what_starts_elsewhere_does_not_wait() {
        let gate = StartGate::for_backend(Backend::COMMAND);
        let all: Vec<_> = (0..1000).map(|_| gate.enter()).collect();
        assert_eq!(all.len(), 1000);
    }
}
