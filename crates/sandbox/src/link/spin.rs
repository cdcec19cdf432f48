//! Busy polling for replies to brief requests.
//!
//! Most file operations take less time than putting the calling thread to sleep and waking it. So
//! the leader polls repeatedly for a moment after sending a request, and yields its processor
//! between polls. If a yield takes long, processors are scarce, and no thread polls this way for a
//! while, because the kernel's scheduler favours threads that slept.

use glovebox_proto::Request;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Time for which a thread polls for a reply after sending the request.
const SPIN: Duration = Duration::from_micros(120);
/// Duration of a yield from which other threads are assumed to need the processor.
const AWAY: Duration = Duration::from_millis(1);
/// Time without busy polling after that.
const CONTENTION_PAUSE: Duration = Duration::from_secs(1);

/// Record of whether processors are scarce.
#[derive(Debug, Default)]
pub(super) struct SpinPolicy {
    contended_until: Option<Instant>,
}

impl SpinPolicy {
    /// Returns the time until which the sender of a request polls for its reply. `None` to sleep at
    /// once.
    pub(super) fn until(&self, request: &Request) -> Option<Instant> {
        if !is_brief(request) {
            return None;
        }
        let now = Instant::now();
        let is_contended = self.contended_until.is_some_and(|until| now < until);
        (!is_contended).then(|| now + SPIN)
    }

    /// Records that a polling thread was kept off its processor.
    pub(super) fn note_contention(&mut self) {
        self.contended_until = Some(Instant::now() + CONTENTION_PAUSE);
    }
}

/// Returns true if a request is a file operation of a step or two.
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

/// Result of busy polling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpinOutcome {
    /// The stream is readable or has an error.
    Readable,
    /// The deadline has passed.
    TimedOut,
    /// Other threads need the processor.
    Contended,
}

/// Polls until the stream is readable or `until`, without sleeping.
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
