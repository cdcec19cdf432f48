//! How many sandboxes start at a time.
//!
//! To start one is work for the processors of this machine. When a hundred sessions come at once and all their sandboxes
//! start together, each takes a hundred times as long, and calls of tools in those that run already wait behind all of
//! them. One at a time for each processor, for a start computes nearly all the time, and all are done sooner.

use glovebox_sandbox::{Backend, StartCost};
use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lets a few in at a time; the others wait.
#[derive(Debug)]
pub(super) struct StartGate {
    /// How many may still enter.
    free: Mutex<usize>,
    left: Condvar,
}

/// Being inside; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Inside<'a>(&'a StartGate);

impl StartGate {
    /// For sandboxes of this kind. Those that start elsewhere wait for other machines, and so not for one another.
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

    /// Waits until there is room.
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
