//! State of one job: a command, its streams, its log and the requests that wait for it.
//!
//! A job is running; then settled: its command has ended and its output is delivered; then over:
//! none of its processes is left. The last two coincide for a job whose leftover processes are
//! killed or that left none.

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

/// Maximum number of bytes read from each stream after the command's end. More than a pipe can hold
/// (`F_SETPIPE_SZ` is limited to 1 MiB for ordinary users), so all output of the command is
/// included, and a leftover process that keeps writing cannot delay the answer.
pub(crate) const DRAIN_BYTES: usize = 1 << 20;

/// Maximum number of bytes of the command in job lists.
const SHOWN_BYTES: usize = 512;

/// Index of standard output.
pub(crate) const STDOUT: usize = 0;
/// Index of standard error.
pub(crate) const STDERR: usize = 1;

/// Stream that the job writes to.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) fd: OwnedFd,
    /// True if a read may find output; cleared when a read finds none.
    pub(crate) is_readable: bool,
    /// Bytes still to be read before the job counts as drained.
    pub(crate) drain: usize,
}

/// Stream that the job reads from.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) fd: OwnedFd,
    pub(crate) queue: VecDeque<u8>,
    /// Requests whose bytes are in the queue, with their byte counts, in order.
    pub(crate) owed: VecDeque<(RequestId, usize)>,
    /// True if the end mark was received.
    pub(crate) is_closing: bool,
}

/// Counter of how much of lent input was read.
#[derive(Debug)]
pub(crate) struct LentInput {
    /// Reading end that is never read from. While it is open the kernel can count what the command
    /// leaves.
    pub(crate) unread: OwnedFd,
    /// Bytes written to the pipe.
    pub(crate) written: u64,
    /// Number of read bytes last reported to the host.
    pub(crate) told: u64,
    /// True if the host wants an event whenever everything was read.
    pub(crate) is_followed: bool,
}

impl LentInput {
    /// Creates a counter for a pipe that nothing was written to.
    pub(crate) const fn new(unread: OwnedFd, is_followed: bool) -> Self {
        Self {
            unread,
            written: 0,
            told: 0,
            is_followed,
        }
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn taken(&self) -> u64 {
        let unread = rustix::io::ioctl_fionread(&self.unread).unwrap_or(0);
        self.written.saturating_sub(unread)
    }

    /// Returns the number of bytes read if it equals what was written, the host follows it and has
    /// not been told yet.
    pub(crate) fn news(&self) -> Option<u64> {
        let taken = self.is_followed.then(|| self.taken())?;
        (taken == self.written && taken > self.told).then_some(taken)
    }
}

/// Request that may send input.
#[derive(Debug)]
pub(crate) struct Feeder {
    pub(crate) request: RequestId,
    pub(crate) window: RecvWindow,
    /// True if its bytes go to the job; otherwise they are dropped.
    pub(crate) is_wanted: bool,
}

/// Request that receives output.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) request: RequestId,
    /// Log offset of the next byte to send.
    pub(crate) cursor: u64,
    pub(crate) windows: [SendWindow; 2],
    /// True if it is answered when the job is over, false if when it has settled.
    pub(crate) until_over: bool,
}

/// Request that receives events.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) request: RequestId,
    pub(crate) window: SendWindow,
}

/// Progress of ending a job.
#[derive(Debug)]
pub(crate) enum JobEnding {
    /// Nothing was requested.
    No,
    /// SIGTERM was sent; the timer ends the grace.
    Asked(Set),
    /// The processes are being killed; the timer starts the next round.
    Killing(Box<TreeKill>, Option<Set>),
}

/// Request other than the owner that waits for this job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// `JobWait`: answered when the job has settled.
    Settled(RequestId),
    /// `JobKill`: answered when the job is over.
    Over(RequestId),
    /// `JobRead`: answered when the log has bytes from this offset on.
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

/// A command with its streams, processes and requests.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    argv: Vec<ByteBuf>,
    began: Instant,
    began_ns: u64,
    /// Initial working directory of the command.
    pub(crate) cwd: CString,
    /// Count of network attempts at the start, where the sandbox has no network.
    pub(crate) network: Option<NetworkMark>,
    /// True if another job ran at the same time at some point.
    pub(crate) has_company: bool,
    /// True if all three standard streams are the job's terminal.
    pub(crate) has_pty: bool,
    /// True if standard input is the job's terminal.
    pub(crate) is_input_terminal: bool,
    pub(crate) background: Background,
    pub(crate) grace_ms: u64,

    pub(crate) warden: Pid,
    pub(crate) command: Pid,
    pub(crate) end: Option<CommandEnd>,
    /// True if the supervisor and all processes below it are gone.
    pub(crate) is_gone: bool,

    pub(crate) outputs: [Option<Output>; 2],
    pub(crate) output_bytes: [u64; 2],
    pub(crate) input: Option<Input>,
    pub(crate) lent: Option<LentInput>,
    /// Controlling terminal of the command. The slave end is open here too, so that `/dev/tty`
    /// works while no process has it open.
    pub(crate) terminal: Option<Terminal>,
    /// Streams besides the three standard ones.
    pub(crate) extras: Vec<JobStream>,
    /// Requests that receive events.
    pub(crate) listeners: Vec<Listener>,
    /// Signal that has stopped the command, until the listeners are told.
    pub(crate) stop: Option<i32>,
    pub(crate) log: Log,
    pub(crate) is_draining: bool,

    /// `Exec` request still to be answered; `None` if detached or answered.
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

/// Facts about a job at its start.
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

    /// Returns true if all other processes are killed when the command ends.
    pub(crate) const fn ends_whole(&self) -> bool {
        matches!(self.background, Background::Kill) || !matches!(self.ending, JobEnding::No)
    }

    /// Returns the number of bytes that may be read from a stream now without outrunning a
    /// follower.
    ///
    /// While the job runs, every follower slows it down. After its end only the owner does: an
    /// attached terminal that hangs must not delay the answer to the owner, and gets the rest from
    /// the log.
    pub(crate) fn room(&self, stream: usize) -> usize {
        let total = self.log.total();
        let counts =
            |follower: &&Follower| !self.is_draining || self.owner == Some(follower.request);
        let rooms = self.followers.iter().filter(counts).map(|follower| {
            // A follower that is behind reads from the log first.
            if follower.cursor == total {
                follower.windows[stream].room() as usize
            } else {
                0
            }
        });
        rooms.min().unwrap_or(usize::MAX)
    }

    /// Returns true if the command failed, was killed or timed out.
    pub(crate) fn has_failed(&self) -> bool {
        let ended_well = |end: &CommandEnd| end.status == EndStatus::Code(0);
        self.timed_out || !self.end.as_ref().is_some_and(ended_well)
    }

    /// Returns true if all output of the command has been read.
    pub(crate) fn is_drained(&self) -> bool {
        let is_empty = |output: &Output| !output.is_readable || output.drain == 0;
        self.outputs.iter().flatten().all(is_empty) && self.extras.iter().all(JobStream::is_drained)
    }

    /// Writes the exit report. If the supervisor sent no status, the command was killed together
    /// with it.
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

    /// Returns the command, shortened, with its arguments joined by spaces.
    pub(crate) fn command_line(&self) -> Vec<u8> {
        let words: Vec<&[u8]> = self.argv.iter().map(|word| word.as_slice()).collect();
        words.join(&b' ')
    }

    /// Returns the job's entry for the job list.
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

/// Returns the beginning of a command line, short enough to be kept for every job.
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
