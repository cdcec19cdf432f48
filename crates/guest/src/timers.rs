//! Timers of the event loop.

use glovebox_proto::{JobId, RequestId};
use rustix::time::Timespec;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A job's time limit has passed.
    Deadline(JobId),
    /// The grace of a job that was asked to end has passed.
    Grace(JobId),
    /// The next round of killing a job's processes is due.
    Round(JobId),
    /// A second attempt to set a command's OOM score adjustment is due.
    OomScore(JobId),
    /// The next check whether all processes are stopped is due.
    Freeze,
    /// Commands have run long enough that preparing for the next one delays none of them.
    Pair,
    /// A waiting request times out.
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
        // TRUST: proto bounds every wait to 30 days. The cap keeps the addition from overflowing
        // for any bound.
        let at = Instant::now() + Duration::from_millis(ms.min(1 << 40));
        self.set.insert((at, timer));
        (at, timer)
    }

    /// Removes a timer. It is no error if it has fired already.
    pub(crate) fn unset(&mut self, set: Set) {
        self.set.remove(&set);
    }

    /// Removes and returns the next timer that is due.
    pub(crate) fn due(&mut self) -> Option<Timer> {
        let first = self.set.first()?;
        if first.0 > Instant::now() {
            return None;
        }
        self.set.pop_first().map(|(_, timer)| timer)
    }

    /// Returns the time until the next timer; `None` if there is none.
    pub(crate) fn wait(&self) -> Option<Timespec> {
        let (at, _) = self.set.first()?;
        let wait = at.saturating_duration_since(Instant::now());
        Some(Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        })
    }
}
