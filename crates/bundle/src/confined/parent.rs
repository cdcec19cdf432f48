//! Parent process: starts a child per bundle, feeds it, limits its answer and time, and reports its
//! exit.

use super::request::{Answer, Header, Work};
use crate::limits::{MAX_ANSWER_BYTES, MAX_MAP_BYTES, MAX_SOURCE_BYTES};
use crate::{ExtractOptions, Extraction, Language, Problem, WrappedBundle, extract, source_map};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Limits of an extraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtractLimits {
    /// Maximum time from the start of the child to its answer. The child also limits its processor
    /// time, to ten seconds.
    pub wall: Duration,
}

impl Default for ExtractLimits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(20),
        }
    }
}

/// Reason for a missing extraction. A fault of the bundle itself is not an error but a problem in
/// the [`Extraction`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The child could not be started, or a pipe to it failed.
    #[error("the process that reads bundles could not be started: {0}")]
    Start(#[source] io::Error),
    /// The machine lacks a mechanism that confines the child. The bundle was not read.
    #[error("the process that reads bundles cannot be confined, so the bundle was not read: {0}")]
    NotConfined(String),
    /// The child did not answer in time and was killed.
    #[error("reading the bundle took longer than {} ms and was ended", .0.as_millis())]
    TimedOut(Duration),
    /// The child used up its processor time.
    #[error("reading the bundle took more processor time than it may and was ended")]
    CpuTime,
    /// The child reached its memory limit.
    #[error("reading the bundle took more memory than it may and was ended")]
    OutOfMemory,
    /// The child's stack overflowed.
    #[error("the bundle nests so deeply that reading it overflowed the stack")]
    StackOverflow,
    /// The child made a system call that reading a bundle does not need.
    #[error(
        "the process that read the bundle asked the kernel for what it may not have and was ended"
    )]
    ForbiddenCall,
    /// The child exited in another way.
    #[error("the process that read the bundle ended without an answer ({status}){}{message}", if .message.is_empty() { "" } else { ": " })]
    Crashed {
        /// Exit status of the child.
        status: ExitStatus,
        /// First line of its standard error, without control characters.
        message: String,
    },
    /// The answer is larger than any bundle's content.
    #[error("the process that read the bundle answered more than {0} bytes")]
    AnswerTooLarge(usize),
    /// The answer could not be parsed.
    #[error("the process that read the bundle gave an answer that is none: {0}")]
    AnswerMalformed(String),
}

/// Extractor that reads each bundle in a child process.
#[derive(Debug, Clone)]
pub struct ConfinedExtractor {
    command: Vec<OsString>,
    limits: ExtractLimits,
}

impl ConfinedExtractor {
    /// Creates an extractor. `command` is the program and the arguments that run
    /// [`serve_extraction`](super::serve_extraction).
    pub fn new(
        command: impl IntoIterator<Item = impl Into<OsString>>,
        limits: ExtractLimits,
    ) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self { command, limits }
    }

    /// Reads a bundle. Blocks until the child exits or the limit of time is reached. Faults of the
    /// bundle are problems in the result.
    ///
    /// # Errors
    /// If the child did not answer.
    pub fn extract(
        &self,
        source: &[u8],
        options: ExtractOptions,
    ) -> Result<Extraction, ExtractError> {
        self.extract_with_map(source, None, options)
    }

    /// Reads a bundle with a source map, which takes precedence over one in the bundle's last
    /// comment.
    ///
    /// # Errors
    /// If the child did not answer.
    pub fn extract_with_map(
        &self,
        source: &[u8],
        map: Option<&[u8]>,
        options: ExtractOptions,
    ) -> Result<Extraction, ExtractError> {
        let (source, inside) = source_map::split(source);
        // A map that is too large is cut one byte above the limit, which suffices for the child to
        // report it.
        let most = MAX_MAP_BYTES + 1;
        let map = map.or(inside).map(|map| &map[..map.len().min(most)]);
        if source.len() > MAX_SOURCE_BYTES {
            return Ok(extract::too_large(source.len()));
        }
        let header = Header {
            work: Work::Extract,
            options,
            source_bytes: source.len(),
            map_bytes: map.map(<[u8]>::len),
        };
        match self.ask(&header, &[source, map.unwrap_or_default()])? {
            Answer::Extraction(extraction) => Ok(extraction),
            _ => Err(another_answer()),
        }
    }

    /// Converts a JavaScript bundle to a module that can be run for its declaration. The inner
    /// error holds the problems of the bundle.
    ///
    /// # Errors
    /// If the child did not answer.
    pub fn wrap(&self, source: &[u8]) -> Result<Result<WrappedBundle, Vec<Problem>>, ExtractError> {
        let (source, _) = source_map::split(source);
        if source.len() > MAX_SOURCE_BYTES {
            return Ok(Err(extract::too_large(source.len()).problems));
        }
        let header = Header {
            work: Work::Wrap,
            options: Language::JavaScript.into(),
            source_bytes: source.len(),
            map_bytes: None,
        };
        match self.ask(&header, &[source])? {
            Answer::Wrapped(wrapped) => Ok(wrapped),
            _ => Err(another_answer()),
        }
    }

    fn ask(&self, header: &Header, parts: &[&[u8]]) -> Result<Answer, ExtractError> {
        let mut request = serde_json::to_vec(header)
            .map_err(|error| ExtractError::Start(io::Error::other(error)))?;
        request.push(b'\n');
        for part in parts {
            request.extend_from_slice(part);
        }
        self.converse(&request)?.into_answer()
    }

    fn converse(&self, request: &[u8]) -> Result<ChildExit, ExtractError> {
        let (program, arguments) = self.command.split_first().ok_or_else(|| {
            ExtractError::Start(io::Error::new(io::ErrorKind::InvalidInput, "no command"))
        })?;
        let deadline = Instant::now() + self.limits.wall;
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            // With one arena per thread, glibc reads a file in /proc when it returns memory. The
            // filter of the child kills it for that.
            .env("MALLOC_ARENA_MAX", "1")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(ExtractError::Start)?;
        let mut child = Running(child);
        let talked = talk(&mut child.0, request, deadline);
        if !matches!(talked, Ok(Talk::Ended { .. })) {
            // `Running` kills the child on return.
            return Err(match talked {
                Ok(Talk::TooLarge) => ExtractError::AnswerTooLarge(MAX_ANSWER_BYTES),
                Err(error) => ExtractError::Start(error),
                _ => ExtractError::TimedOut(self.limits.wall),
            });
        }
        // The child has closed its outputs: it has exited or is about to. If it stays, it is killed
        // at the deadline.
        let status = child.end_within(deadline).map_err(ExtractError::Start)?;
        match (talked, status) {
            (Ok(Talk::Ended { answer, complaint }), Some(status)) => Ok(ChildExit {
                status,
                answer,
                complaint,
            }),
            _ => Err(ExtractError::TimedOut(self.limits.wall)),
        }
    }
}

fn another_answer() -> ExtractError {
    ExtractError::AnswerMalformed("it is the answer to something else".to_owned())
}

/// Child that is killed on drop.
struct Running(Child);

impl Running {
    /// Waits for the child to exit; `None` at the deadline.
    fn end_within(&mut self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither has an effect if the child was already waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

enum Talk {
    Ended { answer: Vec<u8>, complaint: Vec<u8> },
    TooLarge,
    TimedOut,
}

/// Writes the request and reads the outputs as the child allows, until it has closed both outputs.
/// Doing one after the other could block both sides on a full pipe.
fn talk(child: &mut Child, request: &[u8], deadline: Instant) -> io::Result<Talk> {
    let missing = || io::Error::other("a pipe of the child is missing");
    let mut input: Option<ChildStdin> = Some(child.stdin.take().ok_or_else(missing)?);
    let mut output: Option<ChildStdout> = Some(child.stdout.take().ok_or_else(missing)?);
    let mut errors: Option<ChildStderr> = Some(child.stderr.take().ok_or_else(missing)?);
    for pipe in [
        input.as_ref().map(AsFd::as_fd),
        output.as_ref().map(AsFd::as_fd),
        errors.as_ref().map(AsFd::as_fd),
    ]
    .into_iter()
    .flatten()
    {
        rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK)?;
    }
    let mut rest = request;
    let mut answer = Vec::new();
    let mut complaint = Vec::new();
    while output.is_some() || errors.is_some() {
        if !wait_for_any(input.as_ref(), output.as_ref(), errors.as_ref(), deadline)? {
            return Ok(Talk::TimedOut);
        }
        if let Some(pipe) = &mut input {
            match pipe.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The child exited or closed its input early. Its exit status tells more.
                Err(_) => rest = &[],
            }
            if rest.is_empty() {
                input = None;
            }
        }
        if read_some(&mut output, &mut answer)? {
            output = None;
        }
        if read_some(&mut errors, &mut complaint)? {
            errors = None;
        }
        if answer.len() > MAX_ANSWER_BYTES {
            return Ok(Talk::TooLarge);
        }
        // The rest of standard error is read and dropped: a full pipe would block the child.
        const MAX_COMPLAINT_BYTES: usize = 4096;
        complaint.truncate(MAX_COMPLAINT_BYTES);
    }
    Ok(Talk::Ended { answer, complaint })
}

/// Waits until a pipe is ready; false at the deadline.
fn wait_for_any(
    input: Option<&ChildStdin>,
    output: Option<&ChildStdout>,
    errors: Option<&ChildStderr>,
    deadline: Instant,
) -> io::Result<bool> {
    let mut pipes = Vec::with_capacity(3);
    pipes.extend(input.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
    pipes.extend(output.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    pipes.extend(errors.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut pipes, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the bytes that are available. Returns true at the end of the pipe.
fn read_some(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) -> io::Result<bool> {
    const CHUNK_BYTES: usize = 16 * 1024;
    let Some(pipe) = pipe else { return Ok(true) };
    let mut chunk = [0; CHUNK_BYTES];
    match pipe.read(&mut chunk) {
        Ok(0) => Ok(true),
        Ok(count) => {
            into.extend_from_slice(&chunk[..count]);
            Ok(false)
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Exit of the child.
struct ChildExit {
    status: ExitStatus,
    answer: Vec<u8>,
    complaint: Vec<u8>,
}

impl ChildExit {
    fn into_answer(self) -> Result<Answer, ExtractError> {
        if !self.status.success() {
            return Err(self.into_error());
        }
        // TRUST: untrusted text went through the process that sent these bytes. Their number is
        // bounded. They are decoded once, here, into data that is never used as a path, a command
        // or a length.
        match serde_json::from_slice(&self.answer) {
            Ok(Answer::NotConfined(reason)) => Err(ExtractError::NotConfined(clean(&reason))),
            Ok(Answer::NoInput(reason)) => Err(ExtractError::AnswerMalformed(clean(&reason))),
            Ok(answer) => Ok(answer),
            Err(error) => Err(ExtractError::AnswerMalformed(clean(&error.to_string()))),
        }
    }

    /// Derives the error from the exit status and standard error. The Rust runtime names its reason
    /// for an abort on standard error only: a confined process cannot even send itself SIGABRT.
    fn into_error(self) -> ExtractError {
        const SIGXCPU: i32 = 24;
        const SIGSYS: i32 = 31;
        let complaint = String::from_utf8_lossy(&self.complaint);
        if self.status.signal() == Some(SIGXCPU) {
            ExtractError::CpuTime
        } else if complaint.contains("has overflowed its stack") {
            ExtractError::StackOverflow
        } else if complaint.contains("memory allocation of") || complaint.contains("out of memory")
        {
            ExtractError::OutOfMemory
        } else if self.status.signal() == Some(SIGSYS) {
            ExtractError::ForbiddenCall
        } else {
            ExtractError::Crashed {
                status: self.status,
                message: clean(complaint.trim().lines().next().unwrap_or_default()),
            }
        }
    }
}

fn clean(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let shown = text.chars().map(crate::source::shown);
    shown.take(MAX_CHARS).collect()
}
