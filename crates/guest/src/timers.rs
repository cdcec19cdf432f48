//! Moments at which something has to be done.

use glovebox_proto::{JobId, RequestId};
use rustix::time::Timespec;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A job has run long enough.
    Deadline(JobId),
    /// A job that was asked to end has had its grace.
    Grace(JobId),
    /// Time for another round of killing a job's processes.
    Round(JobId),
    /// A command that has just started is to be made the kernel's choice when memory runs out.
    OomScore(JobId),
    /// Time to see whether what is to be frozen has stopped.
    Freeze,
    /// Commands run for so long that nobody is kept from anything by preparing for the next one.
    Pair,
    /// A request has waited long enough.
    Request(RequestId),
}

/// A timer that was set, as needed to unset it.
pub(crate) type Set = (Instant, Timer);

/// All timers, soonest first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    set: BTreeSet<Set>,
}

impl Timers {
    /// Sets `timer` to go off after `ms` milliseconds.
    pub(crate) fn after_ms(&mut self, ms: u64, timer: Timer) -> Set {
        // TRUST: proto bounds every wait to 30 days; the cap keeps the addition from overflowing
        // whatever that bound becomes.
        let at = Instant::now() + Duration::from_millis(ms.min(1 << 40));
        self.set.insert((at, timer));
        (at, timer)
    }

    /// Unsets a timer; one that has gone off already is no error.
    pub(crate) fn unset(&mut self, set: Set) {
        self.set.remove(&set);
    }

    /// The next timer that is due.
    pub(crate) fn due(&mut self) -> Option<Timer> {
        let first = self.set.first()?;
        if first.0 > Instant::now() {
            return None;
        }
        self.set.pop_first().map(|(_, timer)| timer)
    }

    /// How long to sleep at most; `None` for as long as nothing else happens.
    pub(crate) fn wait(&self) -> Option<Timespec> {
        let (at, _) = self.set.first()?;
        let wait = at.saturating_duration_since(Instant::now());
        Some(Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        })
    }
}
