//! Order of calls. Any number of threads may call tools on one sandbox at the same time.
//!
//! ```text
//! read       at once
//! change     one at a time per sandbox, in order of arrival; not beside commands
//! command    together with other commands, unless they share a session; not beside changes
//! beside     at any time: looks at jobs, writes to them and ends them, also while a command runs
//! script     one at a time, beside all others; each call that it makes is scheduled by itself
//! ```
//!
//! Reads, changes and commands count against two limits: one for the sandbox and one for the
//! process. All queues are first in, first out, and every waiting call can be cancelled.

use crate::call::given_up;
use glovebox_proto::{Code, Fault};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of running calls in one sandbox.
const MAX_PER_SANDBOX: usize = 64;
/// Maximum number of running calls in all sandboxes of this process.
const MAX_PER_PROCESS: usize = 256;
/// Maximum time that a call waits for its turn. Longer than the longest wait for a command.
const MAX_WAIT: Duration = Duration::from_mins(15);
/// Interval at which a waiting call checks for its cancellation.
const LOOK: Duration = Duration::from_millis(50);

static PROCESS: Semaphore = Semaphore::new(MAX_PER_PROCESS);

/// Class of a call, which decides what may run beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScheduleLane {
    /// Leaves the sandbox unchanged.
    Read,
    /// Changes files.
    Change,
    /// Runs a program, in this shell session if one is given.
    Command(Option<String>),
    /// Concerns a single job or another sandbox.
    Beside,
    /// Makes calls itself.
    Script,
}

/// Order of the calls on one sandbox, shared by all its conversations.
#[derive(Debug)]
pub(crate) struct Schedule {
    order: Order,
    script: Semaphore,
    room: Semaphore,
}

/// Right to run. Dropping it admits the next call.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    // Fields are dropped in this order. Passes are released first, so that the call that is
    // admitted by the place finds a free pass.
    _passes: [Option<SchedulePass<'a>>; 2],
    _place: Option<ClaimTicket<'a>>,
}

impl Schedule {
    pub(crate) const fn new() -> Self {
        Self {
            order: Order::new(),
            script: Semaphore::new(1),
            room: Semaphore::new(MAX_PER_SANDBOX),
        }
    }

    /// Waits for the turn of a call.
    ///
    /// # Errors
    /// `cancelled`; `busy` after [`MAX_WAIT`].
    pub(crate) fn enter(&self, lane: ScheduleLane, cancel: &AtomicBool) -> Result<Turn<'_>, Fault> {
        let until = Instant::now() + MAX_WAIT;
        // The place in the order comes before the passes. Otherwise calls that wait for their place
        // hold passes, and reads that could run have none.
        let place = match lane {
            ScheduleLane::Beside => {
                return Ok(Turn {
                    _passes: [None, None],
                    _place: None,
                });
            }
            ScheduleLane::Script => {
                let script = self.script.enter(cancel, until)?;
                return Ok(Turn {
                    _passes: [Some(script), None],
                    _place: None,
                });
            }
            ScheduleLane::Read => None,
            ScheduleLane::Change => Some(self.order.enter(Claim::Change, cancel, until)?),
            ScheduleLane::Command(session) => {
                Some(self.order.enter(Claim::Command(session), cancel, until)?)
            }
        };
        let room = self.room.enter(cancel, until)?;
        let process = PROCESS.enter(cancel, until)?;
        Ok(Turn {
            _passes: [Some(process), Some(room)],
            _place: place,
        })
    }
}

/// Resource that a call needs exclusively.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    /// Files of the sandbox.
    Change,
    /// State of a shell session, if the command has one.
    Command(Option<String>),
}

impl Claim {
    /// Returns true if the two cannot run at the same time.
    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Command(one), Self::Command(other)) => one.is_some() && one == other,
            _ => true,
        }
    }
}

/// Queue of claims. Admits a claim that excludes neither a running claim nor an earlier one.
#[derive(Debug)]
struct Order {
    state: Mutex<Claims>,
    changed: Condvar,
}

#[derive(Debug)]
struct Claims {
    next: u64,
    /// Ticket and claim in order of arrival. The flag is true while the claim is admitted.
    all: Vec<(u64, Claim, bool)>,
}

/// Admitted claim. Dropping it removes the claim.
#[derive(Debug)]
struct ClaimTicket<'a> {
    order: &'a Order,
    ticket: u64,
}

impl Claims {
    /// Admits the claim if no other is in its way. Returns true if it was admitted.
    fn try_enter(&mut self, ticket: u64) -> bool {
        let Some(at) = self.all.iter().position(|(other, ..)| *other == ticket) else {
            return false;
        };
        let claim = &self.all[at].1;
        let mut others = self
            .all
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at);
        let is_free = others.all(|(other, (_, theirs, inside))| {
            !(claim.excludes(theirs) && (*inside || other < at))
        });
        self.all[at].2 |= is_free;
        is_free
    }

    fn leave(&mut self, ticket: u64) {
        self.all.retain(|(other, ..)| *other != ticket);
    }
}

impl Order {
    const fn new() -> Self {
        Self {
            state: Mutex::new(Claims {
                next: 0,
                all: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Claims> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(
        &self,
        claim: Claim,
        cancel: &AtomicBool,
        until: Instant,
    ) -> Result<ClaimTicket<'_>, Fault> {
        let mut state = self.state();
        let ticket = state.next;
        state.next += 1;
        state.all.push((ticket, claim, false));
        while !state.try_enter(ticket) {
            if let Some(fault) = over(cancel, until) {
                state.leave(ticket);
                self.changed.notify_all();
                return Err(fault);
            }
            (state, _) = self
                .changed
                .wait_timeout(state, LOOK)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(ClaimTicket {
            order: self,
            ticket,
        })
    }
}

impl Drop for ClaimTicket<'_> {
    fn drop(&mut self) {
        self.order.state().leave(self.ticket);
        self.order.changed.notify_all();
    }
}

/// Returns the fault with which a waiting call ends. `None` if it goes on waiting.
fn over(cancel: &AtomicBool, until: Instant) -> Option<Fault> {
    if cancel.load(Ordering::Relaxed) {
        Some(given_up())
    } else if Instant::now() >= until {
        let message = "the call waited too long for others on the same sandbox to end";
        Some(Fault::failed(Code::Busy, message).retryable())
    } else {
        None
    }
}

/// Counting semaphore that admits callers in order of arrival.
#[derive(Debug)]
struct Semaphore {
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
struct SchedulePass<'a>(&'a Semaphore);

impl Semaphore {
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
        // The state is consistent after every statement, so a poisoned lock can be used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, cancel: &AtomicBool, until: Instant) -> Result<SchedulePass<'_>, Fault> {
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
                return Ok(SchedulePass(self));
            }
            if let Some(fault) = over(cancel, until) {
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

impl Drop for SchedulePass<'_> {
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
        let first = schedule.enter(ScheduleLane::Change, &NEVER).unwrap();
        drop(schedule.enter(ScheduleLane::Read, &NEVER).unwrap());
        drop(schedule.enter(ScheduleLane::Beside, &NEVER).unwrap());
        let script = schedule.enter(ScheduleLane::Script, &NEVER).unwrap();
        let gone = AtomicBool::new(true);
        assert!(schedule.enter(ScheduleLane::Script, &gone).is_err());
        drop(script);
        let (done, order) = mpsc::channel();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (schedule, done) = (&schedule, done.clone());
                scope.spawn(move || {
                    let _turn = schedule.enter(ScheduleLane::Change, &NEVER).unwrap();
                    done.send(number).unwrap();
                });
                // The next one comes later for certain.
                while schedule.order.state().all.len() <= number + 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            drop(first);
        });
        drop(done);
        assert_eq!(order.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn commands_go_together_unless_they_share_a_session_or_files_change_between_them() {
        let schedule = Schedule::new();
        let gone = AtomicBool::new(true);
        let plain = || ScheduleLane::Command(None);
        let session = |name: &str| ScheduleLane::Command(Some(name.to_owned()));
        let first = schedule.enter(session("a"), &NEVER).unwrap();
        let others =
            [plain(), plain(), session("b")].map(|lane| schedule.enter(lane, &NEVER).unwrap());
        for lane in [session("a"), session("b"), ScheduleLane::Change] {
            assert!(schedule.enter(lane, &gone).is_err());
        }
        drop(others);
        drop(schedule.enter(session("b"), &NEVER).unwrap());
        std::thread::scope(|scope| {
            let change = scope.spawn(|| schedule.enter(ScheduleLane::Change, &NEVER).map(drop));
            while schedule.order.state().all.len() < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // A command that came after a change waits for it.
            assert!(schedule.enter(plain(), &gone).is_err());
            drop(first);
            change.join().unwrap().unwrap();
        });
        assert!(schedule.order.state().all.is_empty());
    }

    #[test]
    fn whoever_gives_up_leaves_the_queue() {
        let schedule = Schedule::new();
        let first = schedule.enter(ScheduleLane::Change, &NEVER).unwrap();
        let gone = AtomicBool::new(true);
        let fault = schedule.enter(ScheduleLane::Change, &gone).unwrap_err();
        assert_eq!(fault.code, Code::Cancelled);
        drop(first);
        drop(schedule.enter(ScheduleLane::Change, &NEVER).unwrap());
    }

    #[test]
    fn no_more_than_the_limit_are_inside() {
        let gate = Semaphore::new(3);
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
