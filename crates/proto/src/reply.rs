//! Replies of the guest.

use crate::denial;
use crate::tree::TreeTotals;
use crate::{Denial, EditReport, FileKind, GlobReport, GrepReport, JobId};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::net::IpAddr;

/// Successful answer to a request. Variants are only appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Bytes of the ping.
    Pong(ByteBuf),
    /// Observations of the guest about its environment.
    Facts(Facts),
    /// A detached job was started, or a job was released from its request.
    Started(JobId),
    /// The job has ended.
    Exited(ExitReport),
    /// All jobs, oldest first.
    Jobs(Vec<JobInfo>),
    /// Part of a log.
    Log {
        /// Offset of the first byte in `chunks`. Greater than the requested offset if the bytes
        /// before it are no longer kept.
        start: u64,
        /// Log bytes by stream, in the order of writing.
        chunks: Vec<LogChunk>,
        /// Offset for the next request.
        next: u64,
        /// Number of bytes that the job has written so far.
        total: u64,
        /// True if the job has ended and the log ends at `next`.
        is_end: bool,
    },
    /// The file was read.
    Read {
        /// Number of bytes sent.
        bytes: u64,
        /// Size of the file at the time of opening, in bytes.
        size: u64,
    },
    /// The file was written.
    Written {
        /// Number of bytes received.
        bytes: u64,
        /// True if the file did not exist before.
        is_new: bool,
    },
    /// Metadata of a path.
    Stat(Stat),
    /// Entries of a directory.
    List {
        /// Entries, sorted by name.
        entries: Vec<DirEntry>,
        /// Number of entries beyond the limit of the request.
        more: u64,
    },
    /// Target of a symbolic link, unresolved.
    Link(ByteBuf),
    /// The request succeeded and has no result.
    Done,
    /// The tree was scanned, changed or read.
    Tree(TreeTotals),
    /// The file was edited.
    Edited(EditReport),
    /// Files found by name.
    Globbed(GlobReport),
    /// Lines found in files or in a log.
    Grepped(GrepReport),
    /// The file was written with [`crate::WriteMode::ReplaceKnown`].
    WrittenOver {
        /// Number of bytes received.
        bytes: u64,
        /// Previous content of the file.
        old: OldContent,
    },
    /// Listening ports, sorted by number; at most [`MAX_PORTS_LISTED`].
    Ports(Vec<ListeningPort>),
    /// The job of an extra stream has ended, and the guest has sent the whole stream.
    StreamEnded {
        /// Number of input bytes that the command has read; 0 for a terminal and for outputs.
        taken: u64,
    },
}

/// Most ports in [`Reply::Ports`].
pub const MAX_PORTS_LISTED: usize = 256;

/// Port on which a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningPort {
    /// Port number.
    pub port: u16,
    /// Bound address; the unspecified address if the server listens on all addresses of the
    /// sandbox.
    pub address: IpAddr,
    /// Process that holds the port. `None` if its descriptors cannot be read, or if the port is
    /// held for a service outside the sandbox.
    pub holder: Option<PortHolder>,
}

/// Process that holds a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortHolder {
    /// Job of the process.
    pub job: JobId,
    /// Process id inside the sandbox.
    pub pid: u32,
    /// Command of the job: its arguments joined by spaces, shortened.
    pub command: ByteBuf,
}

/// Previous content of a file that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OldContent {
    /// The file did not exist.
    Nothing,
    /// Previous content, at most [`crate::limits::MAX_OLD_BYTES`].
    Content(ByteBuf),
    /// The previous content is larger, or cannot be read.
    Unshown,
}

/// Way in which a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// The command exited with this code.
    Code(i32),
    /// This signal killed the command.
    Signal(i32),
}

impl Exit {
    /// Returns the code that a shell would report: the command's exit code, or 128 plus the signal
    /// number.
    pub const fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// Final report of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// Identifier of the job.
    pub job: JobId,
    /// Way in which the command ended.
    pub exit: Exit,
    /// True if the guest ended the job because its deadline had passed.
    pub timed_out: bool,
    /// True if the kernel killed a process of this job for lack of memory. The guest cannot see
    /// that; the host sets it where a memory controller counts such kills.
    pub oom: bool,
    /// True if the kernel refused a new process or thread during the job because the limit was
    /// reached. The guest cannot see that; the host sets it where the kernel counts refusals.
    pub fork_refused: bool,
    /// Time from start to end of the command, in microseconds.
    pub wall_us: u64,
    /// CPU time in user mode of the command and all children that it waited for, in microseconds.
    pub user_us: u64,
    /// CPU time in the kernel of the same processes, in microseconds.
    pub system_us: u64,
    /// Largest resident set size of a single process, in KiB.
    pub max_rss_kib: u64,
    /// Number of bytes written to standard output.
    pub stdout_bytes: u64,
    /// Number of bytes written to standard error.
    pub stderr_bytes: u64,
    /// Number of processes that outlived the command and were killed.
    pub killed: u32,
    /// Number of processes that outlived the command and still run.
    pub left_running: u32,
    /// Restrictions that a failed command met, as the guest reports them. The host reads them
    /// through [`ExitReport::seen_denials`], which checks them.
    pub denials: Vec<Denial>,
    /// End of the command in nanoseconds of CLOCK_MONOTONIC (clock_gettime(2)) of the machine on
    /// which it ran; 0 if unknown.
    pub ended_ns: u64,
    /// True if another job ran at the same time.
    pub had_company: bool,
    /// Number of bytes of lent input that the command has read; 0 for any other input.
    pub input_taken: u64,
}

impl ExitReport {
    /// Returns the denials of kinds that a guest can observe, with their number and texts limited.
    pub fn seen_denials(&self) -> Vec<Denial> {
        denial::seen(&self.denials)
    }

    /// Creates a report of which only job and exit are known. All other fields are zero, false or
    /// empty.
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

    /// Returns the time span of the command on the clock of [`Self::ended_ns`], extended by a
    /// microsecond at its start.
    pub const fn span_ns(&self) -> std::ops::RangeInclusive<u64> {
        let began = self
            .ended_ns
            .saturating_sub(self.wall_us.saturating_mul(1000).saturating_add(1000));
        began..=self.ended_ns
    }
}

/// Entry of the job list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Identifier of the job.
    pub job: JobId,
    /// Command and arguments.
    pub argv: Vec<ByteBuf>,
    /// Time since the start of the job, in milliseconds.
    pub age_ms: u64,
    /// True if the job has a terminal.
    pub has_pty: bool,
    /// True if the job's standard input is open. Otherwise no process reads bytes sent
    /// to it.
    pub has_input: bool,
    /// True if a request follows the output of the job.
    pub is_followed: bool,
    /// Stage of the job.
    pub state: JobState,
    /// Number of bytes of output so far.
    pub output_bytes: u64,
}

/// Stage of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// The command runs.
    Running,
    /// The command has ended, but processes that it started still run.
    Background(ExitReport),
    /// The job and all its processes have ended.
    Ended(ExitReport),
}

/// Log bytes of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChunk {
    /// True for standard error, false for standard output or a terminal.
    pub is_stderr: bool,
    /// Log bytes.
    pub bytes: ByteBuf,
}

/// Returns the text that stands for `bytes` bytes of a log that are not kept. It forms a line of
/// its own, so that all readers of a log count the same lines.
pub fn log_gap(bytes: u64) -> String {
    format!("\n[... {bytes} bytes are not kept any more ...]\n")
}

/// Metadata of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// File type.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits, without the file type.
    pub permissions: u32,
    /// Modification time in nanoseconds since the epoch.
    pub mtime_ns: i128,
    /// User id of the owner inside the sandbox.
    pub uid: u32,
    /// Group id inside the sandbox.
    pub gid: u32,
    /// Number of hard links.
    pub links: u64,
}

/// Entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Name; any bytes except `/` and NUL.
    pub name: ByteBuf,
    /// Metadata of the entry.
    pub stat: Stat,
}

/// Observations of the guest about itself and its environment, from which the host builds the
/// self-test and the isolation report. The guest does not judge them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Package version of the guest.
    pub release: String,
    /// Process id of the guest in its own pid namespace.
    pub pid: i32,
    /// User id of commands, and owner of files that the guest creates.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Host name.
    pub hostname: String,
    /// Kernel release.
    pub kernel: String,
    /// Machine architecture.
    pub arch: String,
    /// Effective capability set of the guest. Commands have no capabilities.
    pub cap_effective: u64,
    /// Capability bounding set.
    pub cap_bounding: u64,
    /// `NoNewPrivs` of `/proc/self/status`.
    pub no_new_privs: bool,
    /// Seccomp mode: 0 none, 2 filter.
    pub seccomp_mode: u32,
    /// Landlock ABI of the rules for commands; 0 for none.
    pub landlock_abi: u32,
    /// True if the creation of a user namespace was refused.
    pub userns_denied: bool,
    /// True if a mount was refused.
    pub mount_denied: bool,
    /// True if the creation of a VSOCK socket was refused.
    pub vsock_denied: bool,
    /// Names of the network interfaces.
    pub interfaces: Vec<String>,
    /// Working directory of the guest, and the default of its jobs.
    pub cwd: ByteBuf,
    /// File descriptors that were open in the guest when it became ready.
    pub open_fds: Vec<i32>,
    /// True if `/proc` is mounted and readable.
    pub has_proc: bool,
    /// Mount points inside the sandbox from `/proc/self/mountinfo`, as `target type options`.
    pub mounts: Vec<String>,
    /// Home directory of commands; empty if they have none.
    #[serde(default)]
    pub home: ByteBuf,
}
