//! The event loop's epoll instance, and the subject of each of its events.

use glovebox_proto::{JobId, RequestId};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::Timespec;

/// Subject of an epoll event. Its number is the upper half of the event's data word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    LinkIn,
    LinkOut,
    Children,
    Ring,
    Workers,
    Supervisor,
    Resolver,
    Output(JobId, usize),
    Input(JobId),
    Tunnel(RequestId),
    /// Input of an extra stream of a job, by its index.
    ExtraInput(JobId, usize),
    /// Output of an extra stream of a job.
    ExtraOutput(JobId, usize),
}

/// Numbers of the two tokens of extra streams, to which the index of the stream is added.
const EXTRA_INPUT: u64 = 0x100;
const EXTRA_OUTPUT: u64 = 0x200;

impl Token {
    fn word(self) -> EventData {
        let (kind, id) = match self {
            Self::LinkIn => (0, 0),
            Self::LinkOut => (1, 0),
            Self::Children => (2, 0),
            Self::Ring => (3, 0),
            Self::Workers => (4, 0),
            Self::Supervisor => (5, 0),
            Self::Input(job) => (6, job.0),
            Self::Output(job, stream) => (7 + stream as u64, job.0),
            Self::Resolver => (9, 0),
            Self::Tunnel(request) => (10, request.0),
            Self::ExtraInput(job, index) => (EXTRA_INPUT + index as u64, job.0),
            Self::ExtraOutput(job, index) => (EXTRA_OUTPUT + index as u64, job.0),
        };
        EventData::new_u64(kind << 32 | u64::from(id))
    }

    /// Decodes the subject of an event; `None` if it is unknown.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        // The struct is packed, so its fields must be copied, not borrowed.
        let word = event.data;
        let word = word.u64();
        let job = JobId(word as u32);
        Some(match word >> 32 {
            0 => Self::LinkIn,
            1 => Self::LinkOut,
            2 => Self::Children,
            3 => Self::Ring,
            4 => Self::Workers,
            5 => Self::Supervisor,
            6 => Self::Input(job),
            stream @ 7..=8 => Self::Output(job, (stream - 7) as usize),
            9 => Self::Resolver,
            10 => Self::Tunnel(RequestId(word as u32)),
            kind @ EXTRA_INPUT..EXTRA_OUTPUT => {
                Self::ExtraInput(job, (kind - EXTRA_INPUT) as usize)
            }
            kind @ EXTRA_OUTPUT..0x300 => Self::ExtraOutput(job, (kind - EXTRA_OUTPUT) as usize),
            _ => return None,
        })
    }
}

/// Set of watched descriptors.
#[derive(Debug)]
pub(crate) struct Poll {
    epoll: OwnedFd,
}

impl Poll {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// Watches a descriptor, level-triggered, for input.
    pub(crate) fn watch_input(&self, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, token.word(), EventFlags::IN)
    }

    /// Watches a descriptor, level-triggered, for room for output.
    pub(crate) fn watch_output(&self, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, token.word(), EventFlags::OUT)
    }

    /// Watches a stream of a job or a tunnel, edge-triggered: it reports once per change.
    pub(crate) fn watch_stream(&self, fd: &OwnedFd, token: Token) -> Result<(), Errno> {
        let interest = match token {
            Token::Input(_) | Token::ExtraInput(..) => EventFlags::OUT,
            Token::Tunnel(_) => EventFlags::IN | EventFlags::OUT,
            _ => EventFlags::IN,
        };
        epoll::add(&self.epoll, fd, token.word(), interest | EventFlags::ET)
    }

    /// Enables or disables a registered input.
    pub(crate) fn set_input(&self, fd: impl AsFd, token: Token, is_on: bool) -> Result<(), Errno> {
        let interest = if is_on {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        epoll::modify(&self.epoll, fd, token.word(), interest)
    }

    /// Stops watching a descriptor.
    pub(crate) fn forget(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, fd)
    }

    /// Waits for events, appends them to `events` and returns their number.
    pub(crate) fn wait(
        &self,
        events: &mut Vec<Event>,
        timeout: Option<&Timespec>,
    ) -> Result<usize, Errno> {
        epoll::wait(&self.epoll, spare_capacity(events), timeout)
    }
}
