//! What the host may ask of the guest. Paths, arguments and environment are bytes, as on Linux.

use crate::tree::Packing;
use crate::{Code, Fault, Glob, Grep, GrepTarget, Replacement};
use crate::{JobId, limits};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// One request. Variants are only ever appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Answers [`crate::Reply::Pong`] with the same bytes.
    Ping(ByteBuf),
    /// What is true inside, as the guest sees it. Answers [`crate::Reply::Facts`].
    Facts,
    /// Runs a command as a new job. Answers [`crate::Reply::Exited`] when it has ended, or
    /// [`crate::Reply::Started`] at once when `detach` is set.
    Exec(Exec),
    /// All jobs. Answers [`crate::Reply::Jobs`].
    JobList,
    /// Log bytes from `offset` on. Answers [`crate::Reply::Log`] as soon as there is at least one
    /// byte, the job has ended, or `wait_ms` has passed.
    JobRead {
        /// The job.
        job: JobId,
        /// First byte wanted, counted over standard output and error together.
        offset: u64,
        /// Most bytes wanted, at most [`limits::MAX_LOG_READ_BYTES`].
        max_bytes: u32,
        /// How long to wait for something to read.
        wait_ms: u64,
    },
    /// Waits for the end of a job. Answers [`crate::Reply::Exited`], or a `timed-out` fault.
    JobWait {
        /// The job.
        job: JobId,
        /// How long to wait; `None` for as long as it takes.
        wait_ms: Option<u64>,
    },
    /// Sends a signal to a job. Answers [`crate::Reply::Done`].
    JobSignal {
        /// The job.
        job: JobId,
        /// Signal number, 1 to 64.
        signal: i32,
        /// To everything the job started, or to its process group only.
        whole_tree: bool,
    },
    /// Asks a job to end: SIGTERM, then SIGKILL of everything it started after `grace_ms`.
    /// Answers [`crate::Reply::Exited`] when nothing is left.
    JobKill {
        /// The job.
        job: JobId,
        /// Milliseconds between the two.
        grace_ms: u64,
    },
    /// Follows a job live: output from `offset` on arrives as `Data`; `Data` on the input channel
    /// goes to its standard input while that is open ([`crate::JobInfo::has_input`]). Answers
    /// [`crate::Reply::Exited`] when the job ends; `Cancel` detaches and leaves the job running.
    JobAttach {
        /// The job.
        job: JobId,
        /// First log byte wanted; `None` starts with what comes next.
        offset: Option<u64>,
        /// Sends [`crate::Event::Stopped`] on [`crate::Channel::Content`].
        sends_events: bool,
    },
    /// New size of a job's terminal. Answers [`crate::Reply::Done`].
    JobResize {
        /// The job.
        job: JobId,
        /// The new size.
        size: WindowSize,
    },
    /// Content of a regular file, as `Data` on [`crate::Channel::Content`], then
    /// [`crate::Reply::Read`].
    FileRead {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// First byte wanted.
        offset: u64,
        /// Most bytes wanted; `None` for all.
        max_bytes: Option<u64>,
    },
    /// Writes a file from `Data` on [`crate::Channel::Input`] until its end mark. Answers
    /// [`crate::Reply::Written`].
    FileWrite {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// How to treat what is there.
        mode: WriteMode,
        /// Permission bits of a new file (an existing one keeps its own).
        permissions: u32,
        /// Make missing parent directories.
        make_parents: bool,
    },
    /// What a path is. Answers [`crate::Reply::Stat`].
    Stat {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Look at a symbolic link's target instead of the link.
        follow: bool,
    },
    /// Entries of a directory, sorted by name. Answers [`crate::Reply::List`].
    List {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Most entries wanted, at most [`limits::MAX_LIST_ENTRIES`].
        max_entries: u32,
    },
    /// Makes a directory. Answers [`crate::Reply::Done`].
    Mkdir {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Permission bits.
        permissions: u32,
        /// Make parents too, and accept an existing directory.
        make_parents: bool,
    },
    /// Removes a file, link or directory. Answers [`crate::Reply::Done`].
    Remove {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Remove a directory with all it holds.
        recursive: bool,
    },
    /// Renames. Answers [`crate::Reply::Done`].
    Rename {
        /// Old path.
        from: ByteBuf,
        /// New path.
        to: ByteBuf,
        /// Replace what is there.
        replace: bool,
    },
    /// Target of a symbolic link. Answers [`crate::Reply::Link`].
    ReadLink {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
    },
    /// Ends every job and then the guest. Answers [`crate::Reply::Done`] first.
    Shutdown,
    /// Everything below a directory, as [`crate::tree::ScanItem`]s on
    /// [`crate::Channel::Content`], sorted; files are not opened. Then [`crate::Reply::Tree`].
    TreeScan {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Most entries; more is a `too-large` fault.
        max_entries: u64,
        /// Deepest path in components; what is deeper is named, not entered.
        max_depth: u32,
        /// Whether what is sent is compressed.
        packing: Packing,
    },
    /// Changes a directory as [`crate::tree::PutItem`]s on [`crate::Channel::Input`] say, and sends
    /// a [`crate::tree::PutReceipt`] for each on [`crate::Channel::Content`]. Every file appears
    /// whole or not at all; nothing outside the directory is touched. Then [`crate::Reply::Tree`].
    TreePut {
        /// Absolute path, or relative to the workspace. It is made if it is missing.
        path: ByteBuf,
    },
    /// Reads the files named by [`crate::tree::Want`]s on [`crate::Channel::Input`], below a
    /// directory, as [`crate::tree::GotItem`]s on [`crate::Channel::Content`]. Then
    /// [`crate::Reply::Tree`].
    TreeGet {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// Whether what is sent is compressed.
        packing: Packing,
    },
    /// Replaces texts in a regular file: all of them, or none. Mode, line endings and what is not
    /// named stay as they are. Answers [`crate::Reply::Edited`].
    Edit {
        /// Absolute path, or relative to the workspace.
        path: ByteBuf,
        /// What to replace, each in the result of the one before.
        replacements: Vec<Replacement>,
    },
    /// Finds files by name. Answers [`crate::Reply::Globbed`].
    Glob(Glob),
    /// Finds lines. Answers [`crate::Reply::Grepped`].
    Grep(Grep),
    /// What is mounted has been exchanged: what the guest has opened or worked out from it is looked
    /// up anew. Answers [`crate::Reply::Done`].
    Renew,
    /// Holds everything that commands have started still for as long as this request is open, and keeps
    /// what would change files or start commands waiting. Sends a byte on
    /// [`crate::Channel::Content`] once nothing moves; ends when it is cancelled.
    Hold,
    /// Connects to a server of the sandbox, on its loopback: `Data` on [`crate::Channel::Input`] goes to it, and what it
    /// sends comes on [`crate::Channel::Content`]. Answers [`crate::Reply::Done`] when the server has closed its side.
    Connect {
        /// The port, not 0.
        port: u16,
    },
    /// Which ports servers of the sandbox listen on. Answers [`crate::Reply::Ports`].
    Ports,
    /// Carries a stream of a job besides the standard ones: `Data` on [`crate::Channel::Input`] goes to it, what it
    /// brings comes on [`crate::Channel::Stdout`], and [`crate::Event::InputTaken`] on [`crate::Channel::Content`]. What
    /// the job writes to it is kept until this request comes, which may be after the job's end. `Cancel` closes a
    /// descriptor. Answers [`crate::Reply::StreamEnded`] when the job has ended and all was sent.
    JobStream {
        /// The job.
        job: JobId,
        /// The stream. Each is carried by one request at a time.
        stream: ExtraStream,
    },
    /// Has a job go on without the request that started it, which is answered with [`crate::Reply::Started`]. Answers
    /// [`crate::Reply::Done`].
    JobRelease {
        /// The job.
        job: JobId,
    },
}

/// A stream of a job besides the three standard ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtraStream {
    /// The terminal, where some standard stream is another: its keys, and its screen unless standard output or
    /// standard error is the terminal.
    Terminal,
    /// The descriptor with this number, one of [`Exec::descriptors`].
    Descriptor(u32),
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Command and arguments; no shell is involved. The command is looked up in the `PATH` of the
    /// job's environment unless it has a slash.
    pub argv: Vec<ByteBuf>,
    /// Working directory; `None` for the guest's default (`/workspace`).
    pub cwd: Option<ByteBuf>,
    /// Variables added to the guest's base environment, later ones winning.
    pub env: Vec<EnvVar>,
    /// Start from nothing instead of from the base environment.
    pub clear_env: bool,
    /// Where standard input comes from.
    pub stdin: Stdin,
    /// Give the job a terminal of this size, its controlling one.
    pub pty: Option<WindowSize>,
    /// What of the job is in that terminal. Without effect where there is none.
    pub terminal_use: TerminalUse,
    /// Descriptors besides the three standard ones, at most [`limits::MAX_DESCRIPTORS`].
    pub descriptors: Vec<Descriptor>,
    /// Ends the job when it passes: SIGTERM, grace, SIGKILL of everything it started.
    pub timeout_ms: Option<u64>,
    /// Milliseconds between SIGTERM and SIGKILL.
    pub grace_ms: u64,
    /// Send output as `Data` while it runs (with back-pressure).
    pub stream_output: bool,
    /// What to keep of the output for `JobRead`.
    pub log: LogCaps,
    /// What happens to processes still running when the command itself has ended.
    pub background: Background,
    /// Answer `Started` at once and leave the job running without this request.
    pub detach: bool,
    /// Execute the program that was written under this name with [`WriteMode::Program`], and look up no
    /// command. A `not-found` fault means that it has to be written again.
    pub program: Option<ByteBuf>,
    /// File mode creation mask of the command; `None` for the guest's own. At most [`limits::MAX_UMASK`].
    pub umask: Option<u32>,
    /// Standard output and error are one stream, in the order in which they were written; a terminal always is.
    pub merge: bool,
    /// Sends [`crate::Event`]s on [`crate::Channel::Content`].
    pub sends_events: bool,
}

/// What of a job is in its terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalUse {
    /// Standard input, output and error: true for each that is the terminal. Output and error are then one stream,
    /// sent as standard output.
    pub streams: [bool; 3],
    /// True if the command is in the terminal's foreground from the start. Otherwise it is put there when it is stopped
    /// for reading or changing it, which [`crate::Event::Stopped`] tells.
    pub is_foreground: bool,
}

impl TerminalUse {
    /// The terminal is the command's alone.
    pub const WHOLE: Self = Self {
        streams: [true; 3],
        is_foreground: true,
    };
}

/// A descriptor that a command gets besides the three standard ones: one end of a pipe, whose other end
/// [`Request::JobStream`] carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number, from 3 to [`limits::MAX_DESCRIPTOR`].
    pub number: u32,
    /// What the command does with it.
    pub direction: DescriptorDirection,
}

/// What a command does with a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DescriptorDirection {
    /// Reads what is lent, as [`Stdin::Lent`].
    Lent {
        /// Sends [`crate::Event::InputTaken`] whenever all that has come was read. Slower.
        is_followed: bool,
    },
    /// Writes.
    Output,
}

/// How much output a job's log keeps: its beginning and its end in memory, more in a bounded file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCaps {
    /// Bytes kept from the beginning.
    pub head_bytes: u32,
    /// Bytes kept from the end.
    pub tail_bytes: u32,
    /// Bytes kept in a file besides; 0 for none.
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
    /// The largest caps a guest accepts.
    pub const MAX: Self = Self {
        head_bytes: 4 << 20,
        tail_bytes: 4 << 20,
        spill_bytes: 1 << 30,
    };
}

/// One environment variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvVar {
    /// Name, without `=`.
    pub name: ByteBuf,
    /// Value.
    pub value: ByteBuf,
}

/// Where a job's standard input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    /// `/dev/null`, so that a command that asks a question fails at once.
    Null,
    /// `Data` frames on the input channel.
    Stream,
    /// As [`Self::Stream`]; [`crate::ExitReport::input_taken`] says how much of it was read.
    Lent {
        /// Sends [`crate::Event::InputTaken`] whenever all that has come was read. Slower.
        is_followed: bool,
    },
}

impl Stdin {
    /// True unless there is none.
    pub const fn is_open(self) -> bool {
        !matches!(self, Self::Null)
    }
}

/// What happens to processes still running when the command itself has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Background {
    /// They are killed, then the reply is sent.
    Kill,
    /// They stay until the sandbox ends; the reply is sent when the command ends.
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

/// How a written file treats what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteMode {
    /// Write a new file beside it and rename it over: readers see old or new, never half.
    Replace,
    /// Fail with `already-exists` if something is there.
    CreateNew,
    /// Add to the end.
    Append,
    /// [`Self::Replace`] by somebody who knows what is there, and fail with `unseen-content` otherwise;
    /// what was there is given back. Answers [`crate::Reply::WrittenOver`].
    ReplaceKnown(WritePrecondition),
    /// Not into the file system: into memory of the guest, sealed, as the program that [`Exec::program`]
    /// names by the same path. At most [`limits::MAX_PROGRAM_BYTES`], and the last few are kept.
    Program,
}

/// What a writer knows of the file that is replaced. A file that is not there, an empty one, and one
/// that has the written content already, may be replaced by anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WritePrecondition {
    /// Nothing.
    Nothing,
    /// The BLAKE3 digest of its content; at most [`limits::MAX_EDIT_BYTES`] are compared.
    Digest([u8; 32]),
    /// It may be replaced whatever it is.
    Anything,
}

impl Request {
    /// Checks everything that can be checked without touching the system. Both sides call it: the
    /// host to give its caller a good error early, the guest because it must not rely on that.
    ///
    /// # Errors
    /// `invalid-argument` or `too-large`, naming the field.
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
    /// A command with everything else at its default: no input, streamed output, leftovers killed.
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
