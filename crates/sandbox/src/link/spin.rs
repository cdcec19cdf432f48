//! Waiting for brief answers without falling asleep.
//!
//! Most file operations are over in less time than it takes a caller to fall asleep on a processor that
//! then has nothing to do, and to be woken there. So for a moment after asking, the leader looks for the
//! answer again and again, and lets whoever wants its processor go first in between. Where that keeps it
//! away for long, processors are scarce, and nobody does it for a while: the kernel favours who slept.

use glovebox_proto::Request;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long a thread spins for an answer, from asking.
const SPIN: Duration = Duration::from_micros(120);
/// Having been away for so long means that others want the processor for themselves.
const AWAY: Duration = Duration::from_millis(1);
/// For how long no thread spins then.
const CONTENTION_PAUSE: Duration = Duration::from_secs(1);

/// Whether there is a processor to spin on, as far as is known.
#[derive(Debug, Default)]
pub(super) struct SpinPolicy {
    contended_until: Option<Instant>,
}

impl SpinPolicy {
    /// Until when the sender of a request spins for its answer; `None` when it sleeps at once.
    pub(super) fn until(&self, request: &Request) -> Option<Instant> {
        if !is_brief(request) {
            return None;
        }
        let now = Instant::now();
        let is_contended = self.contended_until.is_some_and(|until| now < until);
        (!is_contended).then(|| now + SPIN)
    }

    /// Notes that a spinning thread was kept off its processor.
    pub(super) fn note_contention(&mut self) {
        self.contended_until = Some(Instant::now() + CONTENTION_PAUSE);
    }
}

/// Whether a request is a file operation in a step or two.
fn is_brief(request: &Request) -> bool {
    matches!(
        request,
        Request::FileRead { .. }
            | Request::FileWrite { .. }
            | Request::Stat { .. }
            | Request::List { .. }
            | Request::Mkdir { .. }
            | Request::Remove { .. }
            | Request::Rename { .. }
            | Request::ReadLink { .. }
            | Request::Edit { .. }
            | Request::Glob(_)
            | Request::Grep(_)
    )
}

/// How the wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpinOutcome {
    /// There is something to read, or an error to be found by reading.
    Readable,
    /// The time is up.
    TimedOut,
    /// Others keep the processor.
    Contended,
}

/// Polls for something to read until `until`, without sleeping.
pub(super) fn spin_until(reader: impl AsFd, until: Instant) -> SpinOutcome {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    loop {
        let now = Instant::now();
        if now >= until {
            return SpinOutcome::TimedOut;
        }
        let mut fds = [PollFd::new(&reader, PollFlags::IN)];
        if poll(&mut fds, Some(&at_once)) != Ok(0) {
            return SpinOutcome::Readable;
        }
        std::thread::yield_now();
        if now.elapsed() >= AWAY {
            return SpinOutcome::Contended;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_bytes::ByteBuf;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn brief_requests_are_looked_out_for_unless_it_is_crowded() {
        let stat = Request::Stat {
            path: ByteBuf::from("x"),
            follow: true,
        };
        let mut spin_policy = SpinPolicy::default();
        let until = spin_policy.until(&stat).unwrap();
        assert!(until <= Instant::now() + SPIN);
        assert_eq!(spin_policy.until(&Request::Hold), None);
        assert_eq!(spin_policy.until(&Request::JobList), None);
        spin_policy.note_contention();
        assert_eq!(spin_policy.until(&stat), None);
        spin_policy.contended_until = Some(Instant::now());
        assert!(spin_policy.until(&stat).is_some());
    }

    #[test]
    fn looking_out_ends_with_the_time_or_with_what_comes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ended = spin_until(&ours, Instant::now() + SPIN);
        assert!(
            matches!(ended, SpinOutcome::TimedOut | SpinOutcome::Contended),
            "{ended:?}"
        );
        theirs.write_all(b"x").unwrap();
        let long = Instant::now() + Duration::from_hours(1);
        assert_eq!(spin_until(&ours, long), SpinOutcome::Readable);
        drop(theirs);
        assert_eq!(spin_until(&ours, long), SpinOutcome::Readable);
        assert_eq!(spin_until(&ours, Instant::now()), SpinOutcome::TimedOut);
    }
}
