//! Requests of the host to the guest. Paths, arguments and environment are bytes, as on Linux.

use crate::tree::Packing;
use crate::{Code, Fault, Glob, Grep, GrepTarget, Replacement};
use crate::{JobId, limits};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Request to the guest. Variants are only appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Returns the same bytes in [`crate::Reply::Pong`].
    Ping(ByteBuf),
    /// Reports the guest's observations about its environment. The reply is
    /// [`crate::Reply::Facts`].
    Facts,
    /// Runs a command as a new job. The reply is [`crate::Reply::Exited`] after its end, or
    /// [`crate::Reply::Started`] at once if `detach` is set.
    Exec(Exec),
    /// Lists all jobs. The reply is [`crate::Reply::Jobs`].
    JobList,
    /// Reads log bytes from `offset` on. The guest replies with [`crate::Reply::Log`] as soon as
    /// there is at least one byte, the job has ended, or `wait_ms` has passed.
    JobRead {
        /// Identifier of the job.
        job: JobId,
        /// Offset of the first byte, counted over standard output and error together.
        offset: u64,
        /// Most bytes to return, at most [`limits::MAX_LOG_READ_BYTES`].
        max_bytes: u32,
        /// Most milliseconds to wait for a byte.
        wait_ms: u64,
    },
    /// Waits for the end of a job. The reply is [`crate::Reply::Exited`], or a `timed-out` fault.
    JobWait {
        /// Identifier of the job.
        job: JobId,
        /// Most milliseconds to wait; `None` for no limit.
        wait_ms: Option<u64>,
    },
    /// Sends a signal to a job. The reply is [`crate::Reply::Done`].
    JobSignal {
        /// Identifier of the job.
        job: JobId,
        /// Signal number, 1 to 64.
        signal: i32,
        /// True for all processes of the job, false for its process group only.
        whole_tree: bool,
    },
    /// Ends a job: SIGTERM, and after `grace_ms` SIGKILL to all its processes. The guest replies
    /// with [`crate::Reply::Exited`] when no process is left.
    JobKill {
        /// Identifier of the job.
        job: JobId,
        /// Milliseconds between SIGTERM and SIGKILL.
        grace_ms: u64,
    },
    /// Follows a running job. Output from `offset` on arrives as `Data`. `Data` on the input
    /// channel goes to the job's standard input while that is open ([`crate::JobInfo::has_input`]).
    /// The reply is [`crate::Reply::Exited`] when the job ends. `Cancel` ends the request and
    /// leaves the job running.
    JobAttach {
        /// Identifier of the job.
        job: JobId,
        /// Offset of the first log byte; `None` for output from now on.
        offset: Option<u64>,
        /// True to receive [`crate::Event::Stopped`] on [`crate::Channel::Content`].
        sends_events: bool,
    },
    /// Sets the size of a job's terminal. The reply is [`crate::Reply::Done`].
    JobResize {
        /// Identifier of the job.
        job: JobId,
        /// New size.
        size: WindowSize,
    },
    /// Reads a regular file as `Data` on [`crate::Channel::Content`]. The reply is
    /// [`crate::Reply::Read`].
    FileRead {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Offset of the first byte.
        offset: u64,
        /// Most bytes to return; `None` for no limit.
        max_bytes: Option<u64>,
    },
    /// Writes a file from `Data` on [`crate::Channel::Input`] up to the end mark. The reply is
    /// [`crate::Reply::Written`].
    FileWrite {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Treatment of an existing file.
        mode: WriteMode,
        /// Permission bits of a new file. An existing file keeps its own.
        permissions: u32,
        /// True to create missing parent directories.
        make_parents: bool,
    },
    /// Returns metadata of a path. The reply is [`crate::Reply::Stat`].
    Stat {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// True to follow a symbolic link.
        follow: bool,
    },
    /// Lists a directory, sorted by name. The reply is [`crate::Reply::List`].
    List {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Most entries to return, at most [`limits::MAX_LIST_ENTRIES`].
        max_entries: u32,
    },
    /// Creates a directory. The reply is [`crate::Reply::Done`].
    Mkdir {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Permission bits.
        permissions: u32,
        /// True to create missing parents, and to accept an existing directory.
        make_parents: bool,
    },
    /// Removes a file, link or directory. The reply is [`crate::Reply::Done`].
    Remove {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// True to remove a directory with its content.
        recursive: bool,
    },
    /// Renames a file or directory. The reply is [`crate::Reply::Done`].
    Rename {
        /// Old path.
        from: ByteBuf,
        /// New path.
        to: ByteBuf,
        /// True to replace an existing file at the new path.
        replace: bool,
    },
    /// Reads a symbolic link. The reply is [`crate::Reply::Link`].
    ReadLink {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
    },
    /// Ends every job and then the guest. The guest replies with [`crate::Reply::Done`] before it
    /// ends.
    Shutdown,
    /// Lists everything below a directory as sorted [`crate::tree::ScanItem`]s on
    /// [`crate::Channel::Content`]. The guest opens no file. The reply is [`crate::Reply::Tree`].
    TreeScan {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Most entries. More yield a `too-large` fault.
        max_entries: u64,
        /// Most components of a path. A deeper path is reported as
        /// [`crate::tree::ScanItem::Missed`].
        max_depth: u32,
        /// Compression of the items.
        packing: Packing,
    },
    /// Changes a directory as the [`crate::tree::PutItem`]s on [`crate::Channel::Input`] specify,
    /// and returns a [`crate::tree::PutReceipt`] for each on [`crate::Channel::Content`]. Every
    /// file appears whole or not at all, and nothing outside the directory changes. The reply is
    /// [`crate::Reply::Tree`].
    TreePut {
        /// Absolute path, or relative to the workspace. The guest creates a missing directory.
        path: ByteBuf,
    },
    /// Reads the files that the [`crate::tree::Want`]s on [`crate::Channel::Input`] name below a
    /// directory, as [`crate::tree::GotItem`]s on [`crate::Channel::Content`]. The reply is
    /// [`crate::Reply::Tree`].
    TreeGet {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Compression of the items.
        packing: Packing,
    },
    /// Replaces texts in a regular file: all of them, or none. Permissions, line endings and all
    /// other content stay. The reply is [`crate::Reply::Edited`].
    Edit {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Replacements in order. Each applies to the result of the previous one.
        replacements: Vec<Replacement>,
    },
    /// Finds files by name. The reply is [`crate::Reply::Globbed`].
    Glob(Glob),
    /// Finds lines. The reply is [`crate::Reply::Grepped`].
    Grep(Grep),
    /// Tells the guest that the host has exchanged the mounts. The guest rebuilds its Landlock
    /// rules, which refer to directories and not to paths. The reply is [`crate::Reply::Done`].
    Renew,
    /// Freezes all processes of commands while this request is open, and defers requests that would
    /// change files or start commands. The guest sends one byte on [`crate::Channel::Content`] when
    /// everything has stopped. The request ends when the host cancels it.
    Hold,
    /// Connects to a server on the loopback address of the sandbox. `Data` on
    /// [`crate::Channel::Input`] goes to the server; bytes from the server come on
    /// [`crate::Channel::Content`]. The reply is [`crate::Reply::Done`] when the server has closed
    /// its side.
    Connect {
        /// Port number, not 0.
        port: u16,
    },
    /// Lists the ports on which servers in the sandbox listen. The reply is
    /// [`crate::Reply::Ports`].
    Ports,
    /// Carries a stream of a job other than the three standard ones. `Data` on
    /// [`crate::Channel::Input`] goes to the stream; its bytes come on [`crate::Channel::Stdout`],
    /// and [`crate::Event::InputTaken`] on [`crate::Channel::Content`]. The guest keeps bytes that
    /// the job writes until this request comes, which may be after the end of the job. `Cancel`
    /// closes a descriptor. The guest replies with [`crate::Reply::StreamEnded`] when the job has
    /// ended and all bytes were sent.
    JobStream {
        /// Identifier of the job.
        job: JobId,
        /// Stream to carry. Only one request at a time may carry it.
        stream: ExtraStream,
    },
    /// Detaches a job from the request that started it; that request receives
    /// [`crate::Reply::Started`]. The reply is [`crate::Reply::Done`].
    JobRelease {
        /// Identifier of the job.
        job: JobId,
    },
}

/// Stream of a job other than the three standard ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtraStream {
    /// Terminal of a job of which not all standard streams are the terminal. Carries the keys, and
    /// the screen unless standard output or standard error is the terminal.
    Terminal,
    /// Descriptor with this number, one of [`Exec::descriptors`].
    Descriptor(u32),
}

/// Command to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Command and arguments; no shell is involved. The guest looks the command up in the `PATH` of
    /// the job's environment unless it contains a slash.
    pub argv: Vec<ByteBuf>,
    /// Working directory; `None` for the guest's default (`/workspace`).
    pub cwd: Option<ByteBuf>,
    /// Variables to add to the guest's base environment. Later ones win.
    pub env: Vec<EnvVar>,
    /// True to start from an empty environment instead of the base environment.
    pub clear_env: bool,
    /// Source of standard input.
    pub stdin: Stdin,
    /// Size of the job's controlling terminal; `None` for no terminal.
    pub pty: Option<WindowSize>,
    /// Standard streams that are the terminal. Ignored without a terminal.
    pub terminal_use: TerminalUse,
    /// Descriptors besides the three standard ones, at most [`limits::MAX_DESCRIPTORS`].
    pub descriptors: Vec<Descriptor>,
    /// Deadline in milliseconds. The guest then sends SIGTERM, and after the grace period SIGKILL
    /// to all processes of the job. `None` for no deadline.
    pub timeout_ms: Option<u64>,
    /// Milliseconds between SIGTERM and SIGKILL.
    pub grace_ms: u64,
    /// True to send output as `Data` while the job runs. Output then blocks the job while the
    /// channel has no credit.
    pub stream_output: bool,
    /// Amounts of output to keep for [`Request::JobRead`].
    pub log: LogCaps,
    /// Treatment of processes that still run when the command has ended.
    pub background: Background,
    /// True to reply with `Started` at once. The job does not depend on this request then.
    pub detach: bool,
    /// Name of a program written with [`WriteMode::Program`], to execute instead of a command from
    /// `PATH`. A `not-found` fault means that the host must write it again. `None` for an ordinary
    /// command.
    pub program: Option<ByteBuf>,
    /// File mode creation mask of the command, at most [`limits::MAX_UMASK`]; `None` for the
    /// guest's own.
    pub umask: Option<u32>,
    /// True to send standard output and error as one stream, in the order of writing. A terminal
    /// always does that.
    pub merge: bool,
    /// True to receive [`crate::Event`]s on [`crate::Channel::Content`].
    pub sends_events: bool,
}

/// Relation between a job and its terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalUse {
    /// For standard input, output and error: true if the stream is the terminal. The terminal's
    /// output is sent as standard output.
    pub streams: [bool; 3],
    /// True if the command is in the terminal's foreground from the start. Otherwise the guest
    /// moves it there when it continues the command, after a stop because the command used the
    /// terminal ([`crate::Event::Stopped`]).
    pub is_foreground: bool,
}

impl TerminalUse {
    /// All standard streams are the terminal, and the command is in its foreground.
    pub const WHOLE: Self = Self {
        streams: [true; 3],
        is_foreground: true,
    };
}

/// Additional descriptor of a command: one end of a pipe. [`Request::JobStream`] carries the other
/// end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Number, from 3 to [`limits::MAX_DESCRIPTOR`].
    pub number: u32,
    /// Direction of the stream.
    pub direction: DescriptorDirection,
}

/// Direction of an additional descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DescriptorDirection {
    /// The command reads lent input, as with [`Stdin::Lent`].
    Lent {
        /// True to receive [`crate::Event::InputTaken`] whenever the command has read all bytes
        /// sent so far. This is slower.
        is_followed: bool,
    },
    /// The command writes.
    Output,
}

/// Amounts of output that a job's log keeps: its beginning and end in memory, more in a bounded
/// file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCaps {
    /// Number of bytes to keep from the beginning.
    pub head_bytes: u32,
    /// Number of bytes to keep from the end.
    pub tail_bytes: u32,
    /// Number of further bytes to keep in a file; 0 for no file.
    pub spill_bytes: u64,
}

impl Default for LogCaps {
    fn default() -> Self {
        Self {
            head_bytes: 64 << 10,
            tail_bytes: 64 << 10,
            spill_bytes: 8 << 20,
        }
    }
}

impl LogCaps {
    /// Largest caps that a guest accepts.
    pub const MAX: Self = Self {
        head_bytes: 4 << 20,
        tail_bytes: 4 << 20,
        spill_bytes: 1 << 30,
    };
}

/// Environment variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvVar {
    /// Name, without `=`.
    pub name: ByteBuf,
    /// Value.
    pub value: ByteBuf,
}

/// Source of a job's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    /// `/dev/null`. A command that asks a question fails at once instead of waiting.
    Null,
    /// `Data` frames on the input channel.
    Stream,
    /// Same as [`Self::Stream`], but [`crate::ExitReport::input_taken`] reports the number of bytes
    /// that the command has read.
    Lent {
        /// True to receive [`crate::Event::InputTaken`] whenever the command has read all bytes
        /// sent so far. This is slower.
        is_followed: bool,
    },
}

impl Stdin {
    /// Returns true unless standard input is `/dev/null`.
    pub const fn is_open(self) -> bool {
        !matches!(self, Self::Null)
    }
}

/// Treatment of processes that still run when the command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Background {
    /// The guest kills them before it replies.
    Kill,
    /// They run until the sandbox ends. The guest replies when the command ends.
    Keep,
}

/// Size of a terminal in character cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// Treatment of an existing file by a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteMode {
    /// Writes a new file beside the old one and renames it. Readers see old or new content, never a
    /// part.
    Replace,
    /// Fails with `already-exists` if the path exists.
    CreateNew,
    /// Appends to the file.
    Append,
    /// Same as [`Self::Replace`], but fails with `unseen-content` unless the precondition holds.
    /// The reply is [`crate::Reply::WrittenOver`] with the previous content.
    ReplaceKnown(WritePrecondition),
    /// Keeps the content in sealed memory of the guest instead of a file. [`Exec::program`] refers
    /// to it by the same path. At most [`limits::MAX_PROGRAM_BYTES`]; the guest keeps only the most
    /// recent programs.
    Program,
}

/// Knowledge of the writer about the file to replace. No knowledge is needed to replace a missing
/// file, an empty file, or a file that already has the new content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WritePrecondition {
    /// The writer does not know the content.
    Nothing,
    /// BLAKE3 digest of the content. At most [`limits::MAX_EDIT_BYTES`] are compared.
    Digest([u8; 32]),
    /// Any content may be replaced.
    Anything,
}

impl Request {
    /// Checks everything that needs no access to the system. The host calls it to give its caller a
    /// good error early; the guest calls it because it must not rely on the host.
    ///
    /// # Errors
    /// `invalid-argument` or `too-large`; the message names the field.
    pub fn validate(&self) -> Result<(), Fault> {
        match self {
            Self::Exec(exec) => exec.validate(),
            Self::JobSignal { signal, .. } if !(1..=64).contains(signal) => {
                Err(invalid(format!("signal {signal} is not between 1 and 64")))
            }
            Self::JobRead { wait_ms, .. } => deadline(Some(*wait_ms)),
            Self::JobWait { wait_ms, .. } => deadline(*wait_ms),
            Self::JobKill { grace_ms, .. } => deadline(Some(*grace_ms)),
            Self::FileRead { path, .. }
            | Self::FileWrite { path, .. }
            | Self::Stat { path, .. }
            | Self::List { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Remove { path, .. }
            | Self::TreeScan { path, .. }
            | Self::TreePut { path }
            | Self::TreeGet { path, .. }
            | Self::ReadLink { path } => check_path(path, "path"),
            Self::Edit { path, replacements } => {
                check_path(path, "path")?;
                if replacements.is_empty() {
                    return Err(invalid("the edit replaces nothing"));
                }
                if replacements.len() > limits::MAX_REPLACEMENTS {
                    return Err(invalid(format!(
                        "the edit has {} replacements; at most {} can be made at once",
                        replacements.len(),
                        limits::MAX_REPLACEMENTS
                    )));
                }
                Ok(())
            }
            Self::Glob(glob) => {
                check_path(&glob.path, "path")?;
                glob.validate()
            }
            Self::Grep(grep) => {
                if let GrepTarget::Path(path) = &grep.target {
                    check_path(path, "path")?;
                }
                grep.validate()
            }
            Self::Connect { port: 0 } => Err(invalid("0 is no port; ports are 1 to 65535")),
            Self::Rename { from, to, .. } => {
                check_path(from, "source path")?;
                check_path(to, "target path")
            }
            _ => Ok(()),
        }
    }
}

impl Exec {
    /// Creates a command with default settings: no input, streamed output, remaining processes
    /// killed.
    pub fn new<I, A>(argv: I) -> Self
    where
        I: IntoIterator<Item = A>,
        A: Into<Vec<u8>>,
    {
        Self {
            argv: argv
                .into_iter()
                .map(|arg| ByteBuf::from(arg.into()))
                .collect(),
            cwd: None,
            env: Vec::new(),
            clear_env: false,
            stdin: Stdin::Null,
            pty: None,
            terminal_use: TerminalUse::WHOLE,
            descriptors: Vec::new(),
            timeout_ms: None,
            grace_ms: 2000,
            stream_output: true,
            log: LogCaps::default(),
            background: Background::Kill,
            detach: false,
            program: None,
            umask: None,
            merge: false,
            sends_events: false,
        }
    }

    fn validate(&self) -> Result<(), Fault> {
        match self.argv.first() {
            None => return Err(invalid("the command is empty")),
            Some(name) if name.is_empty() => {
                return Err(invalid("the command's name is an empty string"));
            }
            Some(_) => {}
        }
        if self.argv.len() > limits::MAX_ARGS {
            return Err(too_large(
                &format!("{} arguments", self.argv.len()),
                limits::MAX_ARGS,
            ));
        }
        for (index, arg) in self.argv.iter().enumerate() {
            check_string(arg, || format!("argument {index}"))?;
        }
        if let Some(cwd) = &self.cwd {
            check_path(cwd, "working directory")?;
        }
        if let Some(program) = &self.program {
            check_path(program, "program")?;
        }
        if self.env.len() > limits::MAX_ARGS {
            return Err(too_large(
                &format!("{} variables", self.env.len()),
                limits::MAX_ARGS,
            ));
        }
        for var in &self.env {
            let name = String::from_utf8_lossy(&var.name);
            if var.name.is_empty() || var.name.contains(&b'=') {
                return Err(invalid(format!("`{name}` is not a variable name")));
            }
            check_string(&var.name, || "a variable name".to_owned())?;
            check_string(&var.value, || format!("the value of `{name}`"))?;
            if var.name.len() + var.value.len() + 1 > limits::MAX_ARG_BYTES {
                return Err(too_large(
                    &format!("the variable `{name}`"),
                    limits::MAX_ARG_BYTES,
                ));
            }
        }
        deadline(self.timeout_ms)?;
        deadline(Some(self.grace_ms))?;
        if self.timeout_ms == Some(0) {
            return Err(invalid("a deadline of 0 ms leaves no time to run"));
        }
        if self.umask.is_some_and(|umask| umask > limits::MAX_UMASK) {
            return Err(invalid("the umask has bits that are no permissions"));
        }
        if let Some(size) = self.pty
            && (size.rows == 0 || size.cols == 0)
        {
            return Err(invalid("a terminal needs at least one row and one column"));
        }
        self.validate_descriptors()?;
        let (caps, max) = (self.log, LogCaps::MAX);
        if caps.head_bytes > max.head_bytes
            || caps.tail_bytes > max.tail_bytes
            || caps.spill_bytes > max.spill_bytes
        {
            return Err(invalid("the log caps exceed what a guest keeps"));
        }
        Ok(())
    }
}

impl Exec {
    fn validate_descriptors(&self) -> Result<(), Fault> {
        let count = self.descriptors.len();
        if count > limits::MAX_DESCRIPTORS {
            return Err(invalid(format!(
                "{count} descriptors are passed on; at most {} can be",
                limits::MAX_DESCRIPTORS
            )));
        }
        if count > 0 && (self.program.is_some() || self.detach) {
            return Err(invalid("this command cannot have descriptors"));
        }
        for (index, descriptor) in self.descriptors.iter().enumerate() {
            let number = descriptor.number;
            if !(3..=limits::MAX_DESCRIPTOR).contains(&number) {
                return Err(invalid(format!(
                    "descriptor {number} is not between 3 and {}",
                    limits::MAX_DESCRIPTOR
                )));
            }
            let mut before = self.descriptors[..index].iter();
            if before.any(|other| other.number == number) {
                return Err(invalid(format!("descriptor {number} is passed on twice")));
            }
        }
        Ok(())
    }
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::failed(Code::InvalidArgument, message)
}

fn too_large(what: &str, max: usize) -> Fault {
    Fault::failed(
        Code::TooLarge,
        format!("{what}: Linux accepts at most {max}"),
    )
    .remedy("pass large inputs through a file or standard input")
}

fn check_string(bytes: &[u8], what: impl Fn() -> String) -> Result<(), Fault> {
    if bytes.contains(&0) {
        return Err(invalid(format!("{} contains a NUL byte", what())));
    }
    if bytes.len() > limits::MAX_ARG_BYTES {
        return Err(too_large(
            &format!("{} has {} bytes", what(), bytes.len()),
            limits::MAX_ARG_BYTES,
        ));
    }
    Ok(())
}

fn check_path(path: &[u8], what: &str) -> Result<(), Fault> {
    if path.is_empty() {
        return Err(invalid(format!("the {what} is empty")));
    }
    if path.contains(&0) {
        return Err(invalid(format!("the {what} contains a NUL byte")));
    }
    if path.len() >= limits::MAX_PATH_BYTES {
        return Err(too_large(
            &format!("the {what}"),
            limits::MAX_PATH_BYTES - 1,
        ));
    }
    Ok(())
}

fn deadline(ms: Option<u64>) -> Result<(), Fault> {
    match ms {
        Some(ms) if ms > limits::MAX_TIMEOUT_MS => Err(invalid(format!(
            "{ms} ms is longer than the longest deadline, 30 days"
        ))),
        _ => Ok(()),
    }
}
