//! Who goes when: any number of threads call tools on one sandbox at the same time.
//!
//! ```text
//! reading    at once
//! changing   one after the other per sandbox, in the order in which the calls came
//! command    together with other commands, unless they share a session; not beside what changes files
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

static PROCESS: Semaphore = Semaphore::new(MAX_PER_PROCESS);

/// What a call does to the order of things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScheduleLane {
    /// It leaves the sandbox as it is.
    Read,
    /// It changes files.
    Change,
    /// It runs a program, in this session if in any.
    Command(Option<String>),
    /// It has to do with one job only.
    Beside,
    /// It makes calls itself.
    Script,
}

/// The order of calls on one sandbox, shared by all who use it.
#[derive(Debug)]
pub(crate) struct Schedule {
    order: Order,
    script: Semaphore,
    room: Semaphore,
}

/// The right to be at work; dropping it lets the next one in.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    // In this order: whoever has the turn next finds room.
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
    /// `cancelled`; `busy` when it took too long.
    pub(crate) fn enter(&self, lane: ScheduleLane, cancel: &AtomicBool) -> Result<Turn<'_>, Fault> {
        let until = Instant::now() + MAX_WAIT;
        // The place in the order comes first, so that those who wait for it take no room from those who read.
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

/// What a call wants for itself.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    /// The files of the sandbox.
    Change,
    /// The state of a session, if of any.
    Command(Option<String>),
}

impl Claim {
    /// Whether they cannot be at work at the same time.
    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Command(one), Self::Command(other)) => one.is_some() && one == other,
            _ => true,
        }
    }
}

/// Lets in whoever excludes nobody who is inside, or who came before.
#[derive(Debug)]
struct Order {
    state: Mutex<Claims>,
    changed: Condvar,
}

#[derive(Debug)]
struct Claims {
    next: u64,
    /// In the order in which they came; whether they are inside.
    all: Vec<(u64, Claim, bool)>,
}

/// The right to what was claimed.
#[derive(Debug)]
struct ClaimTicket<'a> {
    order: &'a Order,
    ticket: u64,
}

impl Claims {
    /// Lets the claim in where nothing is in its way.
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

/// Why a call waits for its turn no longer.
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

/// A counting semaphore that lets callers in in the order in which they came.
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
        // What is guarded is whole after every step, so a panic elsewhere does not matter.
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
            // What came after a change waits for it.
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
