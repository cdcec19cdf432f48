//! Who goes when: any number of threads call tools on one sandbox at the same time.
//!
//! ```text
//! reading    at once
//! changing   one after the other per sandbox, in the order in which the calls came
//! beside     jobs are looked at, written to and ended at any time, also while a command runs
//! script     one after the other, beside all others: what it calls comes here on its own account
//! ```
//!
//! Everything but what is beside, and scripts, counts against two limits: one for the sandbox, one for the process.
//! All queues are first in, first out, and whoever waits in one can give up.

use crate::call::given_up;
use glovebox_proto::{Code, Fault};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Calls at work in one sandbox.
const MAX_PER_SANDBOX: usize = 64;
/// Calls at work in all sandboxes of this process.
const MAX_PER_PROCESS: usize = 256;
/// How long a call waits for its turn: longer than the longest command is waited for.
const MAX_WAIT: Duration = Duration::from_mins(15);
/// How often a waiting call looks whether it was given up.
const LOOK: Duration = Duration::from_millis(50);

static PROCESS: Gate = Gate::new(MAX_PER_PROCESS);

/// What a call does to the order of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// It leaves the sandbox as it is.
    Read,
    /// It changes something, or may.
    Change,
    /// It has to do with one job only.
    Beside,
    /// It makes calls itself.
    Script,
}

/// The order of calls on one sandbox, shared by all who use it.
#[derive(Debug)]
pub(crate) struct Schedule {
    turn: Gate,
    script: Gate,
    room: Gate,
}

/// The right to be at work; dropping it lets the next one in.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    // In this order: whoever has the turn next finds room.
    _passes: [Option<Pass<'a>>; 3],
}

impl Schedule {
    pub(crate) const fn new() -> Self {
        Self {
            turn: Gate::new(1),
            script: Gate::new(1),
            room: Gate::new(MAX_PER_SANDBOX),
        }
    }

    /// Waits for the turn of a call.
    ///
    /// # Errors
    /// `cancelled`; `busy` when it took too long.
    pub(crate) fn enter(&self, lane: Lane, cancel: &AtomicBool) -> Result<Turn<'_>, Fault> {
        let until = Instant::now() + MAX_WAIT;
        let gate = |gate: &'static Gate| gate.enter(cancel, until).map(Some);
        let passes = match lane {
            Lane::Beside => [None, None, None],
            Lane::Script => [Some(self.script.enter(cancel, until)?), None, None],
            Lane::Read => {
                let room = self.room.enter(cancel, until)?;
                [gate(&PROCESS)?, Some(room), None]
            }
            // The turn comes first, so that those who wait for it take no room from those who read.
            Lane::Change => {
                let turn = self.turn.enter(cancel, until)?;
                let room = self.room.enter(cancel, until)?;
                [gate(&PROCESS)?, Some(room), Some(turn)]
            }
        };
        Ok(Turn { _passes: passes })
    }
}

/// Lets a number of callers in at a time, in the order in which they came.
#[derive(Debug)]
struct Gate {
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    inside: usize,
    queue: VecDeque<u64>,
    next: u64,
}

#[derive(Debug)]
struct Pass<'a>(&'a Gate);

impl Gate {
    const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            state: Mutex::new(State {
                inside: 0,
                queue: VecDeque::new(),
                next: 0,
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is guarded is whole after every step, so a panic elsewhere does not matter.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, cancel: &AtomicBool, until: Instant) -> Result<Pass<'_>, Fault> {
        let mut state = self.state();
        let ticket = state.next;
        state.next += 1;
        state.queue.push_back(ticket);
        loop {
            if state.queue.front() == Some(&ticket) && state.inside < self.capacity {
                state.queue.pop_front();
                state.inside += 1;
                if !state.queue.is_empty() && state.inside < self.capacity {
                    self.changed.notify_all();
                }
                return Ok(Pass(self));
            }
            let fault = if cancel.load(Ordering::Relaxed) {
                Some(given_up())
            } else if Instant::now() >= until {
                let message = "the call waited too long for others on the same sandbox to end";
                Some(Fault::failed(Code::Busy, message).retryable())
            } else {
                None
            };
            if let Some(fault) = fault {
                state.queue.retain(|other| *other != ticket);
                self.changed.notify_all();
                return Err(fault);
            }
            (state, _) = self
                .changed
                .wait_timeout(state, LOOK)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.inside -= 1;
        let is_awaited = !state.queue.is_empty();
        drop(state);
        if is_awaited {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    static NEVER: AtomicBool = AtomicBool::new(false);

    #[test]
    fn changes_wait_for_each_other_and_reads_for_nobody() {
        let schedule = Schedule::new();
        let first = schedule.enter(Lane::Change, &NEVER).unwrap();
        drop(schedule.enter(Lane::Read, &NEVER).unwrap());
        drop(schedule.enter(Lane::Beside, &NEVER).unwrap());
        let script = schedule.enter(Lane::Script, &NEVER).unwrap();
        let gone = AtomicBool::new(true);
        assert!(schedule.enter(Lane::Script, &gone).is_err());
        drop(script);
        let (done, order) = mpsc::channel();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (schedule, done) = (&schedule, done.clone());
                scope.spawn(move || {
                    let _turn = schedule.enter(Lane::Change, &NEVER).unwrap();
                    done.send(number).unwrap();
                });
                // The next one comes later for certain.
                while schedule.turn.state().queue.len() <= number {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            drop(first);
        });
        drop(done);
        assert_eq!(order.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn whoever_gives_up_leaves_the_queue() {
        let schedule = Schedule::new();
        let first = schedule.enter(Lane::Change, &NEVER).unwrap();
        let gone = AtomicBool::new(true);
        let fault = schedule.enter(Lane::Change, &gone).unwrap_err();
        assert_eq!(fault.code, Code::Cancelled);
        drop(first);
        drop(schedule.enter(Lane::Change, &NEVER).unwrap());
    }

    #[test]
    fn no_more_than_the_limit_are_inside() {
        let gate = Gate::new(3);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let until = Instant::now() + Duration::from_mins(1);
                    let _pass = gate.enter(&NEVER, until).unwrap();
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 3);
    }
}
