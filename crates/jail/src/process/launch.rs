//! Launch of a command, and the errors of starting it.

use super::Strings;
use crate::sys::warden::{ControllingTerminal, LimitEntry, Stage};
use rustix::fd::BorrowedFd;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::Resource;
use std::ffi::CStr;

/// A command to start, with everything decided.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Arguments, beginning with the command's name; at least one.
    pub argv: &'a Strings,
    /// The whole environment, as `NAME=value`.
    pub env: &'a Strings,
    /// Paths to execute, tried in order by the rules of execvp(3). Relative ones are resolved in
    /// `cwd`.
    pub candidates: &'a Strings,
    /// Program that is executed instead of a candidate, by its descriptor. It must not be a script,
    /// because the interpreter could not open it.
    pub program: Option<BorrowedFd<'a>>,
    /// Working directory; `None` for that of this process.
    pub cwd: Option<&'a CStr>,
    /// Standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Further descriptors, each with its number in the command, at least 3. Cannot be combined
    /// with `program`.
    pub descriptors: &'a [(BorrowedFd<'a>, u32)],
    /// Terminal that becomes the command's controlling terminal.
    pub terminal: Option<ControllingTerminal<'a>>,
    /// Resource limits, applied as soft and hard limit. They can only be lowered: a value above the
    /// current hard limit sets that limit.
    pub limits: &'a [(Resource, u64)],
    /// File mode creation mask; `None` for that of this process.
    pub umask: Option<Mode>,
}

impl Launch<'_> {
    pub(super) fn limit_entries(&self) -> Vec<LimitEntry> {
        let lower = |&(resource, wanted): &(Resource, u64)| {
            let hard = rustix::process::getrlimit(resource)
                .maximum
                .unwrap_or(u64::MAX);
            let value = wanted.min(hard);
            LimitEntry {
                resource: resource as u64,
                soft: value,
                hard: value,
            }
        };
        self.limits.iter().map(lower).collect()
    }
}

/// Error of starting a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// No candidate exists (127 in a shell).
    #[error("no such command")]
    NotFound,
    /// A candidate exists but cannot be executed (126 in a shell).
    #[error("the command cannot be executed: {0}")]
    NotExecutable(Errno),
    /// The working directory cannot be entered.
    #[error("the working directory cannot be entered: {0}")]
    Cwd(Errno),
    /// Arguments and environment together exceed the limit of execve(2).
    #[error("arguments and environment are larger than the kernel accepts")]
    TooLarge,
    /// The limit on processes or memory is reached.
    #[error("no more processes can be started")]
    NoProcesses,
    /// A restriction could not be applied, so the command was not run.
    #[error("the command could not be confined: {0}")]
    Confine(Errno),
    /// Another process killed the new one, or kept it stopped, before it ran.
    #[error("the new process was killed before the command ran")]
    Interrupted,
    /// Any other error.
    #[error("the command could not be started: {0}")]
    Other(Errno),
}

impl SpawnError {
    pub(super) fn new(stage: Stage, errno: Errno) -> Self {
        match (stage, errno) {
            (_, Errno::AGAIN | Errno::NOMEM) => Self::NoProcesses,
            (Stage::Exec, Errno::NOENT) => Self::NotFound,
            (Stage::Exec, Errno::TOOBIG) => Self::TooLarge,
            // These errnos report a bad file rather than the system's state: it is not an
            // executable.
            (Stage::Exec, _) => Self::NotExecutable(errno),
            (Stage::Cwd, _) => Self::Cwd(errno),
            (Stage::Limit | Stage::Confine, _) => Self::Confine(errno),
            (Stage::Interrupted, _) => Self::Interrupted,
            (Stage::Fork | Stage::Stdio, _) => Self::Other(errno),
        }
    }
}
