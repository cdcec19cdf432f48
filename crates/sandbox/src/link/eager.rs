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

/// How long an answer is looked out for, from asking.
const EAGER: Duration = Duration::from_micros(120);
/// Having been away for so long means that others want the processor for themselves.
const AWAY: Duration = Duration::from_millis(1);
/// How long nobody looks out then.
const CROWDED: Duration = Duration::from_secs(1);

/// Whether there is a processor to look out on, as far as is known.
#[derive(Debug, Default)]
pub(super) struct Eagerness {
    crowded_until: Option<Instant>,
}

impl Eagerness {
    /// Until when the answer to a request that is sent now is looked out for, if at all.
    pub(super) fn until(&self, request: &Request) -> Option<Instant> {
        if !is_brief(request) {
            return None;
        }
        let now = Instant::now();
        let is_crowded = self.crowded_until.is_some_and(|until| now < until);
        (!is_crowded).then(|| now + EAGER)
    }

    /// Somebody who looked out was kept away.
    pub(super) fn note_crowd(&mut self) {
        self.crowded_until = Some(Instant::now() + CROWDED);
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

/// How looking out ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// There is something to read, or an error to be found by reading.
    Something,
    /// The time is up.
    Nothing,
    /// Others keep the processor.
    Crowd,
}

/// Looks for something to read until `until`.
pub(super) fn look_out(reader: impl AsFd, until: Instant) -> Seen {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    loop {
        let now = Instant::now();
        if now >= until {
            return Seen::Nothing;
        }
        let mut fds = [PollFd::new(&reader, PollFlags::IN)];
        if poll(&mut fds, Some(&at_once)) != Ok(0) {
            return Seen::Something;
        }
        std::thread::yield_now();
        if now.elapsed() >= AWAY {
            return Seen::Crowd;
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
        let mut eagerness = Eagerness::default();
        let until = eagerness.until(&stat).unwrap();
        assert!(until <= Instant::now() + EAGER);
        assert_eq!(eagerness.until(&Request::Hold), None);
        assert_eq!(eagerness.until(&Request::JobList), None);
        eagerness.note_crowd();
        assert_eq!(eagerness.until(&stat), None);
        eagerness.crowded_until = Some(Instant::now());
        assert!(eagerness.until(&stat).is_some());
    }

    #[test]
    fn looking_out_ends_with_the_time_or_with_what_comes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ended = look_out(&ours, Instant::now() + EAGER);
        assert!(matches!(ended, Seen::Nothing | Seen::Crowd), "{ended:?}");
        theirs.write_all(b"x").unwrap();
        let long = Instant::now() + Duration::from_hours(1);
        assert_eq!(look_out(&ours, long), Seen::Something);
        drop(theirs);
        assert_eq!(look_out(&ours, long), Seen::Something);
        assert_eq!(look_out(&ours, Instant::now()), Seen::Nothing);
    }
}
