//! One job: a command, its streams, its log, and who is waiting for it.
//!
//! A job runs, then settles (its command has ended and what it wrote is delivered), then is over
//! (nothing it started is left). A job whose leftovers are killed, or that left none, does the
//! last two at once.

use super::extra_streams::JobStream;
use crate::log::Log;
use crate::network_use::NetworkMark;
use crate::terminal::Terminal;
use crate::timers::Set;
use glovebox_jail::process::{CommandEnd, EndStatus, TreeKill};
use glovebox_proto::{
    Background, Denial, Exit, ExitReport, JobId, JobInfo, JobState, RecvWindow, RequestId,
    SendWindow,
};
use rustix::fd::OwnedFd;
use rustix::process::Pid;
use serde_bytes::ByteBuf;
use std::collections::VecDeque;
use std::ffi::CString;
use std::time::Instant;

/// Most that is read from each stream after the end: more than a pipe can hold (`F_SETPIPE_SZ`
/// stops at 1 MiB for ordinary users), so all of the command's own output is in, and a process
/// left behind that keeps writing cannot hold the answer up.
pub(crate) const DRAIN_BYTES: usize = 1 << 20;

/// Bytes of the command shown in job lists.
const SHOWN_BYTES: usize = 512;

/// The two output streams, as indices.
pub(crate) const STDOUT: usize = 0;
/// Standard error.
pub(crate) const STDERR: usize = 1;

/// A stream the job writes to.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) fd: OwnedFd,
    /// Something may be there; cleared when a read finds nothing.
    pub(crate) is_readable: bool,
    /// Bytes still to be read before the job counts as drained.
    pub(crate) drain: usize,
}

/// The stream the job reads from.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) fd: OwnedFd,
    pub(crate) queue: VecDeque<u8>,
    /// Whose bytes are in the queue, in order.
    pub(crate) owed: VecDeque<(RequestId, usize)>,
    /// The end mark was received.
    pub(crate) is_closing: bool,
}

/// Lent input: how much of it was read.
#[derive(Debug)]
pub(crate) struct LentInput {
    /// A reading end. Nothing reads from it; while it is open what the command leaves can be counted.
    pub(crate) unread: OwnedFd,
    /// Bytes that were written to the pipe.
    pub(crate) written: u64,
    /// Bytes that the host knows to have been read.
    pub(crate) told: u64,
    /// The host is told whenever all was read.
    pub(crate) is_followed: bool,
}

impl LentInput {
    /// Input of which nothing was written yet.
    pub(crate) const fn new(unread: OwnedFd, is_followed: bool) -> Self {
        Self {
            unread,
            written: 0,
            told: 0,
            is_followed,
        }
    }

    /// Bytes that were read so far.
    pub(crate) fn taken(&self) -> u64 {
        let unread = rustix::io::ioctl_fionread(&self.unread).unwrap_or(0);
        self.written.saturating_sub(unread)
    }

    /// How much was read, if that is all that has come and the host is to know it and does not.
    pub(crate) fn news(&self) -> Option<u64> {
        let taken = self.is_followed.then(|| self.taken())?;
        (taken == self.written && taken > self.told).then_some(taken)
    }
}

/// A request that may send input.
#[derive(Debug)]
pub(crate) struct Feeder {
    pub(crate) request: RequestId,
    pub(crate) window: RecvWindow,
    /// Its bytes go to the job; otherwise they are dropped.
    pub(crate) is_wanted: bool,
}

/// A request that receives output.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) request: RequestId,
    /// Log offset of the next byte to send.
    pub(crate) cursor: u64,
    pub(crate) windows: [SendWindow; 2],
    /// Answered when the job is over; otherwise when it has settled.
    pub(crate) until_over: bool,
}

/// A request that takes events.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) request: RequestId,
    pub(crate) window: SendWindow,
}

/// How the end of a job is being brought about.
#[derive(Debug)]
pub(crate) enum JobEnding {
    /// Not at all.
    No,
    /// Asked by SIGTERM; the timer ends the grace.
    Asked(Set),
    /// Everything is being killed; the timer is for the next round.
    Killing(Box<TreeKill>, Option<Set>),
}

/// A request other than the owner that waits for this job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// `JobWait`: until it has settled.
    Settled(RequestId),
    /// `JobKill`: until it is over.
    Over(RequestId),
    /// `JobRead`: until there is something from this offset on.
    Log {
        request: RequestId,
        offset: u64,
        max_bytes: u32,
    },
}

impl Waiter {
    pub(crate) const fn request(self) -> RequestId {
        match self {
            Self::Settled(request) | Self::Over(request) | Self::Log { request, .. } => request,
        }
    }
}

/// A job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    argv: Vec<ByteBuf>,
    began: Instant,
    began_ns: u64,
    /// Where it started.
    pub(crate) cwd: CString,
    /// What had been tried over a network that there is not, when it started.
    pub(crate) network: Option<NetworkMark>,
    /// Another job ran at some time while it did.
    pub(crate) has_company: bool,
    /// All three standard streams are its terminal.
    pub(crate) has_pty: bool,
    /// Standard input is its terminal.
    pub(crate) is_input_terminal: bool,
    pub(crate) background: Background,
    pub(crate) grace_ms: u64,

    pub(crate) warden: Pid,
    pub(crate) command: Pid,
    pub(crate) end: Option<CommandEnd>,
    /// The warden and everything below it is gone.
    pub(crate) is_gone: bool,

    pub(crate) outputs: [Option<Output>; 2],
    pub(crate) output_bytes: [u64; 2],
    pub(crate) input: Option<Input>,
    pub(crate) lent: Option<LentInput>,
    /// Its controlling terminal. The end that commands use is open here too, so that `/dev/tty` leads to it although
    /// no process has it open.
    pub(crate) terminal: Option<Terminal>,
    /// Streams besides the three standard ones.
    pub(crate) extras: Vec<JobStream>,
    /// Requests that take events.
    pub(crate) listeners: Vec<Listener>,
    /// Signal that has stopped the command, which is to be told.
    pub(crate) stop: Option<i32>,
    pub(crate) log: Log,
    pub(crate) is_draining: bool,

    /// The `Exec` to be answered, unless detached or answered.
    pub(crate) owner: Option<RequestId>,
    pub(crate) is_cancelled: bool,
    pub(crate) feeders: Vec<Feeder>,
    pub(crate) followers: Vec<Follower>,
    pub(crate) waiters: Vec<Waiter>,

    pub(crate) deadline: Option<Set>,
    pub(crate) timed_out: bool,
    pub(crate) ending: JobEnding,
    pub(crate) killed: u32,
    pub(crate) report: Option<ExitReport>,
    pub(crate) is_over: bool,
}

/// What is known about a job before it runs.
#[derive(Debug)]
pub(crate) struct JobStart {
    pub(crate) id: JobId,
    pub(crate) argv: Vec<ByteBuf>,
    pub(crate) began: Instant,
    pub(crate) began_ns: u64,
    pub(crate) cwd: CString,
    pub(crate) network: Option<NetworkMark>,
    pub(crate) has_company: bool,
    pub(crate) has_pty: bool,
    pub(crate) is_input_terminal: bool,
    pub(crate) background: Background,
    pub(crate) grace_ms: u64,
    pub(crate) warden: Pid,
    pub(crate) command: Pid,
    pub(crate) log: Log,
}

impl Job {
    pub(crate) fn new(birth: JobStart) -> Self {
        Self {
            id: birth.id,
            argv: birth.argv,
            began: birth.began,
            began_ns: birth.began_ns,
            cwd: birth.cwd,
            network: birth.network,
            has_company: birth.has_company,
            has_pty: birth.has_pty,
            is_input_terminal: birth.is_input_terminal,
            background: birth.background,
            grace_ms: birth.grace_ms,
            warden: birth.warden,
            command: birth.command,
            end: None,
            is_gone: false,
            outputs: [None, None],
            output_bytes: [0; 2],
            input: None,
            lent: None,
            terminal: None,
            extras: Vec::new(),
            listeners: Vec::new(),
            stop: None,
            log: birth.log,
            is_draining: false,
            owner: None,
            is_cancelled: false,
            feeders: Vec::new(),
            followers: Vec::new(),
            waiters: Vec::new(),
            deadline: None,
            timed_out: false,
            ending: JobEnding::No,
            killed: 0,
            report: None,
            is_over: false,
        }
    }

    /// Whether the command's end takes everything else with it.
    pub(crate) const fn ends_whole(&self) -> bool {
        matches!(self.background, Background::Kill) || !matches!(self.ending, JobEnding::No)
    }

    /// Bytes that may be read from a stream now without outrunning anybody who follows.
    ///
    /// While the job runs, every follower slows it down. Once it has ended only its owner does:
    /// an attached terminal that hangs must not keep the answer from who asked for the command,
    /// and gets the rest from the log.
    pub(crate) fn room(&self, stream: usize) -> usize {
        let total = self.log.total();
        let counts =
            |follower: &&Follower| !self.is_draining || self.owner == Some(follower.request);
        let rooms = self.followers.iter().filter(counts).map(|follower| {
            // Who still catches up from the log comes first.
            if follower.cursor == total {
                follower.windows[stream].room() as usize
            } else {
                0
            }
        });
        rooms.min().unwrap_or(usize::MAX)
    }

    /// Whether its command has ended otherwise than well.
    pub(crate) fn has_failed(&self) -> bool {
        let ended_well = |end: &CommandEnd| end.status == EndStatus::Code(0);
        self.timed_out || !self.end.as_ref().is_some_and(ended_well)
    }

    /// Whether everything the command wrote has been read.
    pub(crate) fn is_drained(&self) -> bool {
        let is_empty = |output: &Output| !output.is_readable || output.drain == 0;
        self.outputs.iter().flatten().all(is_empty) && self.extras.iter().all(JobStream::is_drained)
    }

    /// Puts together how it ended. Without word from the warden it was killed together with it.
    pub(crate) fn write_report(&mut self, left_running: u32, denials: Vec<Denial>) -> ExitReport {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now_ns = (now.tv_sec as u64).saturating_mul(1_000_000_000) + now.tv_nsec as u64;
        let end = self.end.unwrap_or(CommandEnd {
            status: EndStatus::Signal(9),
            user_us: 0,
            system_us: 0,
            max_rss_kib: 0,
            ended_ns: now_ns,
            is_empty: true,
        });
        let report = ExitReport {
            job: self.id,
            exit: match end.status {
                EndStatus::Code(code) => Exit::Code(code),
                EndStatus::Signal(signal) => Exit::Signal(signal),
            },
            timed_out: self.timed_out,
            oom: false,
            fork_refused: false,
            wall_us: end.ended_ns.saturating_sub(self.began_ns) / 1000,
            user_us: end.user_us,
            system_us: end.system_us,
            max_rss_kib: end.max_rss_kib,
            stdout_bytes: self.output_bytes[STDOUT],
            stderr_bytes: self.output_bytes[STDERR],
            killed: self.killed,
            left_running,
            denials,
            ended_ns: end.ended_ns,
            had_company: self.has_company,
            input_taken: self.lent.as_ref().map_or(0, LentInput::taken),
        };
        self.report = Some(report.clone());
        report
    }

    /// Its command, shortened: the words joined by blanks.
    pub(crate) fn command_line(&self) -> Vec<u8> {
        let words: Vec<&[u8]> = self.argv.iter().map(|word| word.as_slice()).collect();
        words.join(&b' ')
    }

    /// The line for the job list.
    pub(crate) fn info(&self) -> JobInfo {
        JobInfo {
            job: self.id,
            argv: self.argv.clone(),
            age_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            has_pty: self.has_pty,
            is_followed: !self.followers.is_empty(),
            has_input: self.input.as_ref().is_some_and(|input| !input.is_closing),
            state: match &self.report {
                None => JobState::Running,
                Some(report) if self.is_over => JobState::Ended(report.clone()),
                Some(report) => JobState::Background(report.clone()),
            },
            output_bytes: self.log.total(),
        }
    }
}

/// The beginning of a command line, short enough to be kept for every job.
pub(crate) fn shorten(argv: &[ByteBuf]) -> Vec<ByteBuf> {
    let mut left = SHOWN_BYTES;
    let mut short = Vec::new();
    for arg in argv {
        if arg.len() < left {
            left -= arg.len() + 1;
            short.push(arg.clone());
        } else {
            let mut cut = arg.get(..left.min(arg.len())).unwrap_or_default().to_vec();
            cut.extend_from_slice(b"...");
            short.push(ByteBuf::from(cut));
            break;
        }
    }
    short.shrink_to_fit();
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_cut() {
        let argv = vec![
            ByteBuf::from("a"),
            ByteBuf::from(vec![b'x'; 100_000]),
            ByteBuf::from("b"),
        ];
        let short = shorten(&argv);
        assert_eq!(short.len(), 2);
        assert!(short.iter().map(|arg| arg.len()).sum::<usize>() < SHOWN_BYTES + 8);
        let many = vec![ByteBuf::from("x"); 10_000];
        assert!(shorten(&many).len() <= SHOWN_BYTES);
        assert_eq!(shorten(&argv[..1]), argv[..1]);
    }
}
