//! The parent: starts a child per bundle, feeds it, bounds its answer and its time, and says how it ended.

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

/// How long an extraction may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtractLimits {
    /// From the start of the child to its answer. The child's own limit on processor time is
    /// ten seconds.
    pub wall: Duration,
}

impl Default for ExtractLimits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(20),
        }
    }
}

/// Why there is no extraction. What is wrong with the bundle itself is no error but a problem in the [`Extraction`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The child could not be started or talked to.
    #[error("the process that reads bundles could not be started: {0}")]
    Start(#[source] io::Error),
    /// The machine does not give a wall that the child needs. The bundle was not read.
    #[error("the process that reads bundles cannot be confined, so the bundle was not read: {0}")]
    NotConfined(String),
    /// The child did not answer in time and was ended.
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
    /// The child asked the kernel for something that reading a bundle does not need.
    #[error(
        "the process that read the bundle asked the kernel for what it may not have and was ended"
    )]
    ForbiddenCall,
    /// The child ended in another way.
    #[error("the process that read the bundle ended without an answer ({status}){}{message}", if .message.is_empty() { "" } else { ": " })]
    Crashed {
        /// How.
        status: ExitStatus,
        /// The first line of what it said, without control characters.
        message: String,
    },
    /// The answer is larger than a bundle's content can be.
    #[error("the process that read the bundle answered more than {0} bytes")]
    AnswerTooLarge(usize),
    /// The answer is none.
    #[error("the process that read the bundle gave an answer that is none: {0}")]
    AnswerMalformed(String),
}

/// Reads bundles, each in a process of its own.
#[derive(Debug, Clone)]
pub struct ConfinedExtractor {
    command: Vec<OsString>,
    limits: ExtractLimits,
}

impl ConfinedExtractor {
    /// `command` is the program and its arguments with which [`serve_extraction`](super::serve_extraction) is reached.
    pub fn new(
        command: impl IntoIterator<Item = impl Into<OsString>>,
        limits: ExtractLimits,
    ) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self { command, limits }
    }

    /// Reads a bundle. All that is wrong with the bundle is in the result.
    ///
    /// # Errors
    /// When the child did not answer.
    pub fn extract(
        &self,
        source: &[u8],
        options: ExtractOptions,
    ) -> Result<Extraction, ExtractError> {
        self.extract_with_map(source, None, options)
    }

    /// The same with the source map of the bundle, which goes before one that the bundle has in its last comment.
    ///
    /// # Errors
    /// When the child did not answer.
    pub fn extract_with_map(
        &self,
        source: &[u8],
        map: Option<&[u8]>,
        options: ExtractOptions,
    ) -> Result<Extraction, ExtractError> {
        let (source, inside) = source_map::split(source);
        // One that is too large is told of by the child, which needs no more of it to see that.
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

    /// Makes a bundle in JavaScript a module that can be run for what it declares, or says why not.
    ///
    /// # Errors
    /// When the child did not answer.
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
            // With an arena for each thread glibc reads a file of /proc when it gives memory back, which ends the child.
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
            // It is ended by `Running`, whatever it does.
            return Err(match talked {
                Ok(Talk::TooLarge) => ExtractError::AnswerTooLarge(MAX_ANSWER_BYTES),
                Err(error) => ExtractError::Start(error),
                _ => ExtractError::TimedOut(self.limits.wall),
            });
        }
        // It closed its outputs, so it has ended or is about to; one that only closed them is ended here.
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

/// A child that does not outlive the conversation.
struct Running(Child);

impl Running {
    /// How it ended, or none at the deadline.
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
        // Both do nothing for one that has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

enum Talk {
    Ended { answer: Vec<u8>, complaint: Vec<u8> },
    TooLarge,
    TimedOut,
}

/// Writes the request and reads the answer, whichever the child is ready for, until it has closed both outputs.
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
                // It ended without reading everything: how, is seen from its status.
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
        const MAX_COMPLAINT_BYTES: usize = 4096;
        complaint.truncate(MAX_COMPLAINT_BYTES);
    }
    Ok(Talk::Ended { answer, complaint })
}

/// Waits until one of the pipes can be used; false at the deadline.
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

/// Reads what is there. True when the pipe has ended.
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

/// A child that has ended.
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
        // TRUST: the bytes come from a process that untrusted text went through; their number is bounded, and they
        // are decoded once, here, into data that is nowhere used as a path, a command or a length.
        match serde_json::from_slice(&self.answer) {
            Ok(Answer::NotConfined(reason)) => Err(ExtractError::NotConfined(clean(&reason))),
            Ok(Answer::NoInput(reason)) => Err(ExtractError::AnswerMalformed(clean(&reason))),
            Ok(answer) => Ok(answer),
            Err(error) => Err(ExtractError::AnswerMalformed(clean(&error.to_string()))),
        }
    }

    /// The status says that it was ended; which of the runtime's reasons for ending itself it was, the runtime says on
    /// standard error. Behind the walls it cannot even send itself the signal of an abort.
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
