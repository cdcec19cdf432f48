//! What the guest answers.

use crate::denial;
use crate::tree::TreeTotals;
use crate::{Denial, EditReport, FileKind, GlobReport, GrepReport, JobId};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::net::IpAddr;

/// The successful answer to a request. Variants are only ever appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The bytes of the ping.
    Pong(ByteBuf),
    /// What is true inside.
    Facts(Facts),
    /// A detached job runs.
    Started(JobId),
    /// A job has ended.
    Exited(ExitReport),
    /// All jobs, oldest first.
    Jobs(Vec<JobInfo>),
    /// Part of a log.
    Log {
        /// Offset of the first byte in `chunks`; later than asked for when bytes in between are
        /// no longer kept.
        start: u64,
        /// The bytes, in the order they were written, by stream.
        chunks: Vec<LogChunk>,
        /// Offset to ask for next.
        next: u64,
        /// Bytes the job has written so far.
        total: u64,
        /// Whether the job has ended and `next` is the end.
        is_end: bool,
    },
    /// A file was read.
    Read {
        /// Bytes sent.
        bytes: u64,
        /// Size of the file when it was opened.
        size: u64,
    },
    /// A file was written.
    Written {
        /// Bytes received.
        bytes: u64,
        /// Whether the file is new.
        is_new: bool,
    },
    /// What a path is.
    Stat(Stat),
    /// Entries of a directory.
    List {
        /// Sorted by name.
        entries: Vec<DirEntry>,
        /// Entries that exist beyond the limit of the request.
        more: u64,
    },
    /// Target of a symbolic link.
    Link(ByteBuf),
    /// It is done.
    Done,
    /// A tree was scanned, changed or read.
    Tree(TreeTotals),
    /// A file was changed in place.
    Edited(EditReport),
    /// Files found by name.
    Globbed(GlobReport),
    /// Lines found.
    Grepped(GrepReport),
    /// A file was written by [`crate::WriteMode::ReplaceKnown`].
    WrittenOver {
        /// Bytes received.
        bytes: u64,
        /// What it took the place of.
        old: OldContent,
    },
    /// The ports that are listened on, by number; at most [`MAX_PORTS_LISTED`].
    Ports(Vec<ListeningPort>),
    /// The job of an extra stream has ended, and all of the stream was sent.
    StreamEnded {
        /// Bytes of input that the command has read; 0 for a terminal and for outputs.
        taken: u64,
    },
}

/// Most ports that are listed.
pub const MAX_PORTS_LISTED: usize = 256;

/// A port that a server listens on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningPort {
    /// Its number.
    pub port: u16,
    /// The address it listens at; the unspecified one for all of the sandbox.
    pub address: IpAddr,
    /// The process that holds it; `None` for one that does not show its descriptors, and for what holds ports from
    /// outside.
    pub holder: Option<PortHolder>,
}

/// A process that holds a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortHolder {
    /// The job that it belongs to.
    pub job: JobId,
    /// Its id inside.
    pub pid: u32,
    /// The job's command, its words joined by blanks and shortened.
    pub command: ByteBuf,
}

/// What a written file took the place of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OldContent {
    /// Nothing: the file is new.
    Nothing,
    /// This content, at most [`crate::limits::MAX_OLD_BYTES`].
    Content(ByteBuf),
    /// Content that is larger, or cannot be read.
    Unshown,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It ended by itself with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl Exit {
    /// The code a shell would report: the command's own, or 128 plus the signal.
    pub const fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// Everything known about a job that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// The job.
    pub job: JobId,
    /// How the command ended.
    pub exit: Exit,
    /// The deadline passed and the job was ended.
    pub timed_out: bool,
    /// The kernel ended something of this job for want of memory. The guest cannot see that; the
    /// host fills it in where a memory controller counts it.
    pub oom: bool,
    /// The kernel refused a new process or thread while the job ran, because the limit on them was reached.
    /// The guest cannot see that; the host fills it in where that is counted.
    pub fork_refused: bool,
    /// Microseconds from start to end of the command.
    pub wall_us: u64,
    /// Microseconds of CPU time in user mode, of the command and all it waited for.
    pub user_us: u64,
    /// Microseconds of CPU time in the kernel.
    pub system_us: u64,
    /// Largest resident set of one process, in KiB.
    pub max_rss_kib: u64,
    /// Bytes written to standard output.
    pub stdout_bytes: u64,
    /// Bytes written to standard error.
    pub stderr_bytes: u64,
    /// Processes that outlived the command and were killed.
    pub killed: u32,
    /// Processes that outlived the command and still run.
    pub left_running: u32,
    /// Which walls a command that failed has met, as far as the guest has seen that; [`ExitReport::seen_denials`]
    /// reads them.
    pub denials: Vec<Denial>,
    /// When the command ended: nanoseconds of CLOCK_MONOTONIC (clock_gettime(2)) of the machine that it ran on; 0
    /// where that is not known.
    pub ended_ns: u64,
    /// Another job ran at the same time.
    pub had_company: bool,
    /// Bytes of lent input that were read; 0 for any other input.
    pub input_taken: u64,
}

impl ExitReport {
    /// What the guest saw, bounded. Records of kinds that only the host knows are left out.
    pub fn seen_denials(&self) -> Vec<Denial> {
        denial::seen(&self.denials)
    }

    /// That of a command of which no more is known than how it ended.
    pub const fn new(job: JobId, exit: Exit) -> Self {
        Self {
            job,
            exit,
            timed_out: false,
            oom: false,
            fork_refused: false,
            wall_us: 0,
            user_us: 0,
            system_us: 0,
            max_rss_kib: 0,
            stdout_bytes: 0,
            stderr_bytes: 0,
            killed: 0,
            left_running: 0,
            denials: Vec::new(),
            ended_ns: 0,
            had_company: false,
            input_taken: 0,
        }
    }

    /// The time in which the command ran, on the clock of [`Self::ended_ns`].
    pub const fn span_ns(&self) -> std::ops::RangeInclusive<u64> {
        let began = self
            .ended_ns
            .saturating_sub(self.wall_us.saturating_mul(1000).saturating_add(1000));
        began..=self.ended_ns
    }
}

/// One line of the job list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// The job.
    pub job: JobId,
    /// Its command.
    pub argv: Vec<ByteBuf>,
    /// Milliseconds since it started.
    pub age_ms: u64,
    /// Whether it has a terminal.
    pub has_pty: bool,
    /// Whether its standard input is open: what is sent there otherwise is read by nobody.
    pub has_input: bool,
    /// True if a request follows its output.
    pub is_followed: bool,
    /// Where it stands.
    pub state: JobState,
    /// Bytes of output so far.
    pub output_bytes: u64,
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// Its command runs.
    Running,
    /// Its command has ended; processes it left behind still run.
    Background(ExitReport),
    /// It has ended with all it started.
    Ended(ExitReport),
}

/// Which stream some log bytes were written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChunk {
    /// Standard error, else standard output or the terminal.
    pub is_stderr: bool,
    /// The bytes.
    pub bytes: ByteBuf,
}

/// The text that stands for bytes of a log that are not kept, between what came before them and what
/// came after: a line of its own wherever a log is read as lines, so that all readers count alike.
pub fn log_gap(bytes: u64) -> String {
    format!("\n[... {bytes} bytes are not kept any more ...]\n")
}

/// What a path is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Kind.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits, without the kind.
    pub permissions: u32,
    /// Modification time in nanoseconds since the epoch.
    pub mtime_ns: i128,
    /// Owner inside the sandbox.
    pub uid: u32,
    /// Group inside the sandbox.
    pub gid: u32,
    /// Number of hard links.
    pub links: u64,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Name, any bytes but `/` and NUL.
    pub name: ByteBuf,
    /// What it is.
    pub stat: Stat,
}

/// What the guest finds to be true about itself and its surroundings: the raw material of the
/// self-test and of the isolation report. Facts only; the host judges them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Package version of the guest.
    pub release: String,
    /// Process id of the guest in its own pid namespace.
    pub pid: i32,
    /// User id of commands, and of the files that the guest makes.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Host name.
    pub hostname: String,
    /// Kernel release.
    pub kernel: String,
    /// Machine architecture.
    pub arch: String,
    /// Effective capability set of the guest. Commands have none.
    pub cap_effective: u64,
    /// Capability bounding set.
    pub cap_bounding: u64,
    /// `NoNewPrivs` of `/proc/self/status`.
    pub no_new_privs: bool,
    /// Seccomp mode: 0 none, 2 filter.
    pub seccomp_mode: u32,
    /// Landlock ABI that commands run under; 0 for none.
    pub landlock_abi: u32,
    /// Whether a new user namespace was refused.
    pub userns_denied: bool,
    /// Whether mounting was refused.
    pub mount_denied: bool,
    /// Whether a VSOCK socket was refused.
    pub vsock_denied: bool,
    /// Names of the network interfaces.
    pub interfaces: Vec<String>,
    /// Working directory of the guest and default of its jobs.
    pub cwd: ByteBuf,
    /// File descriptors open in the guest when it became ready.
    pub open_fds: Vec<i32>,
    /// Where `/proc` is mounted and usable.
    pub has_proc: bool,
    /// Mount points visible inside, from `/proc/self/mountinfo`, as `target type options`.
    pub mounts: Vec<String>,
    /// Home directory of commands; empty where they have none.
    #[serde(default)]
    pub home: ByteBuf,
}
