//! What to start, and why it could not be.

use super::Strings;
use crate::sys::warden::{ControllingTerminal, LimitEntry, Stage};
use rustix::fd::BorrowedFd;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::Resource;
use std::ffi::CStr;

/// A command with everything decided.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Arguments, the command's name first; at least one.
    pub argv: &'a Strings,
    /// The whole environment, as `NAME=value`.
    pub env: &'a Strings,
    /// Paths to execute, tried in order by the rules of execvp(3). Relative ones count from `cwd`.
    pub candidates: &'a Strings,
    /// A program that is executed instead of a candidate, by its descriptor. It must not be a script,
    /// which its interpreter could not open.
    pub program: Option<BorrowedFd<'a>>,
    /// Working directory; `None` for that of this process.
    pub cwd: Option<&'a CStr>,
    /// Standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Further descriptors, each with the number that the command gets it as, at least 3. Not together with `program`.
    pub descriptors: &'a [(BorrowedFd<'a>, u32)],
    /// Terminal that becomes the command's controlling one.
    pub terminal: Option<ControllingTerminal<'a>>,
    /// Resource limits, soft and hard alike. Only ever lowered: a value above the current hard
    /// limit leaves that in place.
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

/// Why a command did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// No candidate exists (127 in a shell).
    #[error("no such command")]
    NotFound,
    /// A candidate exists and cannot be executed (126 in a shell).
    #[error("the command cannot be executed: {0}")]
    NotExecutable(Errno),
    /// The working directory cannot be entered.
    #[error("the working directory cannot be entered: {0}")]
    Cwd(Errno),
    /// Arguments and environment together exceed what execve(2) takes.
    #[error("arguments and environment are larger than the kernel accepts")]
    TooLarge,
    /// The limit on processes or memory is reached.
    #[error("no more processes can be started")]
    NoProcesses,
    /// The command could not be confined as asked, so it was not run.
    #[error("the command could not be confined: {0}")]
    Confine(Errno),
    /// Another process killed or kept stopping the new one before it ran.
    #[error("the new process was killed before the command ran")]
    Interrupted,
    /// Anything else.
    #[error("the command could not be started: {0}")]
    Other(Errno),
}

impl SpawnError {
    pub(super) fn new(stage: Stage, errno: Errno) -> Self {
        match (stage, errno) {
            (_, Errno::AGAIN | Errno::NOMEM) => Self::NoProcesses,
            (Stage::Exec, Errno::NOENT) => Self::NotFound,
            (Stage::Exec, Errno::TOOBIG) => Self::TooLarge,
            // Bad input, and not the system's state: these say "not an executable file".
            (Stage::Exec, _) => Self::NotExecutable(errno),
            (Stage::Cwd, _) => Self::Cwd(errno),
            (Stage::Limit | Stage::Confine, _) => Self::Confine(errno),
            (Stage::Interrupted, _) => Self::Interrupted,
            (Stage::Fork | Stage::Stdio, _) => Self::Other(errno),
        }
    }
}
