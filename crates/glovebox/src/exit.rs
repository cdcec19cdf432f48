//! How a command of ours ends: one error type, one table of exit codes.
//!
//! `run` and `exec` stand in for the command they run, so their exit code is that command's; every
//! failure of our own is 125 there (124 a deadline, 126 and 127 as a shell). All other commands use
//! [`Kind`]'s own numbers. A failure is a [`Fault`] underneath, so that what a person reads and what
//! `--json` carries are the same facts.

use glovebox_proto::{Class, Code, Fault, Remedy};
use glovebox_settings::SettingsError;
use glovebox_workspace::{Direction, Stage, SyncError};
use std::io;

/// The command succeeded, and what it changed conflicts with the host (`run`).
pub(crate) const CONFLICT: u8 = 3;
/// The command passed its deadline (`run`, `exec`).
pub(crate) const TIMED_OUT: u8 = 124;
/// A failure of our own (`run`, `exec`), or no sandbox of the backend can be had here.
pub(crate) const OWN_FAILURE: u8 = 125;
/// The command cannot be executed (`run`, `exec`).
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found (`run`, `exec`).
pub(crate) const NOT_FOUND: u8 = 127;
/// Interrupted before there was anything to report.
pub(crate) const INTERRUPTED: u8 = 130;
/// Nobody reads our output any more: what a shell reports for a process that SIGPIPE ended.
pub(crate) const BROKEN_PIPE: u8 = 141;

/// Result of a command: its exit code, or what went wrong.
pub(crate) type CommandResult = Result<u8, CommandError>;

/// Decides the exit code of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It ran and did not succeed.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// Policy said no, or something else holds what was asked for.
    Refused,
    /// The sandbox or the way to it is gone.
    Lost,
    /// A limit is reached.
    Limit,
    /// Something that was named is not there: a sandbox, a path, a session, a checkpoint.
    NotFound,
    /// No sandbox of the backend can be had here.
    NoBackend,
    /// The user stopped it.
    Interrupted,
    /// Nobody reads our output any more.
    BrokenPipe,
    /// A command passed its deadline, and its guest did not say so.
    TimedOut,
}

impl Kind {
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Lost => 4,
            Self::Limit => 5,
            Self::NotFound => 6,
            Self::NoBackend => OWN_FAILURE,
            Self::Interrupted => INTERRUPTED,
            Self::TimedOut => TIMED_OUT,
            Self::BrokenPipe => BROKEN_PIPE,
        }
    }
}

/// What went wrong, with the exit code it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// Decides the exit code.
    pub kind: Kind,
    /// Sentence, remedy, and the words for programs.
    pub fault: Fault,
    /// Where a push or pull failed. The code on the outside is then `sync-failed`.
    pub at: Option<(Direction, Stage)>,
    /// Lines that belong below the sentence, such as a list to choose from. Each is escaped by
    /// itself when it is printed, so that none can pass for two.
    pub details: Vec<String>,
}

impl CommandError {
    /// A failure that is no part of a push or pull.
    pub(crate) const fn new(kind: Kind, fault: Fault) -> Self {
        Self {
            kind,
            fault,
            at: None,
            details: Vec::new(),
        }
    }

    /// The code that programs see.
    pub(crate) const fn code(&self) -> Code {
        match self.at {
            Some(_) if !matches!(self.fault.code, Code::Cancelled) => Code::SyncFailed,
            _ => self.fault.code,
        }
    }

    /// Wrong usage: `message` says what, `remedy` how to do it right.
    pub(crate) fn usage(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        let fault = Fault::failed(Code::InvalidArgument, message).remedy(remedy);
        Self::new(Kind::Usage, fault)
    }

    /// A refusal by policy.
    pub(crate) fn refused(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        let fault = Fault::refused(Code::PermissionDenied, message).remedy(remedy);
        Self::new(Kind::Refused, fault)
    }

    /// An operating-system error while doing `what`.
    pub(crate) fn io(what: impl Into<String>, error: &io::Error) -> Self {
        SettingsError::io(what.into(), error).into()
    }

    /// The user stopped us before the command began.
    pub(crate) fn interrupted() -> Self {
        Self::new(
            Kind::Interrupted,
            Fault::failed(Code::Cancelled, "interrupted"),
        )
    }

    /// Adds what to do about it.
    #[must_use]
    pub(crate) fn remedy(mut self, remedy: impl Into<Remedy>) -> Self {
        self.fault.remedy = Some(remedy.into());
        self
    }

    /// Adds lines below the sentence.
    #[must_use]
    pub(crate) fn details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    /// The exit code in commands other than `run` and `exec`.
    pub(crate) const fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// The exit code in `run` and `exec`, which stand in for the command they run.
    pub(crate) fn stand_in_code(&self) -> u8 {
        match (self.kind, self.fault.code) {
            (Kind::BrokenPipe, _) => BROKEN_PIPE,
            (Kind::Interrupted, _) => INTERRUPTED,
            (Kind::TimedOut, _) => TIMED_OUT,
            (_, Code::CommandNotFound) => NOT_FOUND,
            (_, Code::CommandNotExecutable) => NOT_EXECUTABLE,
            _ => OWN_FAILURE,
        }
    }
}

impl From<Fault> for CommandError {
    fn from(fault: Fault) -> Self {
        let kind = match (fault.class, fault.code) {
            (_, Code::SandboxNotFound | Code::NotFound | Code::JobNotFound) => Kind::NotFound,
            (_, Code::TooManySandboxes | Code::LimitUnavailable | Code::TooLarge | Code::Busy) => {
                Kind::Limit
            }
            (_, Code::BackendUnavailable) => Kind::NoBackend,
            (_, Code::AlreadyExists | Code::Conflict) | (Class::Refused, _) => Kind::Refused,
            (_, Code::InvalidArgument) => Kind::Usage,
            (_, Code::Cancelled) => Kind::Interrupted,
            (Class::Lost, _) | (_, Code::SandboxNotRunning) => Kind::Lost,
            (Class::Failed, _) => Kind::Failed,
        };
        Self::new(kind, fault)
    }
}

impl From<SettingsError> for CommandError {
    fn from(error: SettingsError) -> Self {
        let kind = match &error {
            SettingsError::Usage { .. } => Kind::Usage,
            SettingsError::Refused { .. } => Kind::Refused,
            SettingsError::Io { kind, .. } if *kind == io::ErrorKind::BrokenPipe => {
                Kind::BrokenPipe
            }
            SettingsError::Io { .. } | SettingsError::Fault(_) => return error.into_fault().into(),
        };
        Self::new(kind, error.into_fault())
    }
}

impl From<glovebox_session::Error> for CommandError {
    fn from(error: glovebox_session::Error) -> Self {
        use glovebox_session::Error;
        match error {
            Error::Settings(error) => error.into(),
            Error::Sync(error) => error.into(),
            Error::Fault(fault) => fault.into(),
        }
    }
}

impl From<SyncError> for CommandError {
    fn from(error: SyncError) -> Self {
        let at = (error.direction, error.stage);
        let mut told = Self::from(error.fault);
        if told.kind == Kind::Usage {
            told.kind = Kind::Failed;
        }
        if told.kind != Kind::Interrupted {
            told.fault.message = format!("the {} failed at {}: {}", at.0, at.1, told.fault.message);
        }
        Self {
            at: Some(at),
            ..told
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_of_our_own_is_125_in_a_stand_in() {
        for &code in Code::ALL {
            let error = CommandError::from(Fault::failed(code, "x"));
            let want = match code {
                Code::CommandNotFound => 127,
                Code::CommandNotExecutable => 126,
                Code::Cancelled => 130,
                _ => 125,
            };
            assert_eq!(error.stand_in_code(), want, "{code}");
        }
        assert_eq!(CommandError::usage("x", "y").stand_in_code(), 125);
    }

    #[test]
    fn classes_have_their_own_exit_codes() {
        assert_eq!(
            CommandError::from(Fault::failed(Code::Io, "x")).exit_code(),
            1
        );
        assert_eq!(CommandError::usage("x", "y").exit_code(), 2);
        assert_eq!(
            CommandError::from(Fault::refused(Code::PermissionDenied, "x")).exit_code(),
            3
        );
        assert_eq!(
            CommandError::from(Fault::failed(Code::AlreadyExists, "x")).exit_code(),
            3
        );
        assert_eq!(
            CommandError::from(Fault::lost(Code::LinkLost, "x")).exit_code(),
            4
        );
        let timed_out = CommandError::new(Kind::TimedOut, Fault::failed(Code::TimedOut, "x"));
        assert_eq!(
            (timed_out.exit_code(), timed_out.stand_in_code()),
            (124, 124)
        );
        assert_eq!(
            CommandError::from(Fault::refused(Code::TooManySandboxes, "x")).exit_code(),
            5
        );
        assert_eq!(CommandError::interrupted().exit_code(), 130);
        let sync =
            |code| CommandError::from(SyncError::pull(Stage::Apply, Fault::failed(code, "x")));
        for (code, exit_code) in [
            (Code::NoSpace, 1),
            (Code::Conflict, 3),
            (Code::LinkLost, 1),
            (Code::TooLarge, 5),
            (Code::SandboxNotFound, 6),
        ] {
            assert_eq!(sync(code).exit_code(), exit_code, "{code}");
            assert_eq!(sync(code).code(), Code::SyncFailed);
        }
        assert_eq!(sync(Code::Cancelled).exit_code(), 130);
        assert_eq!(
            sync(Code::NoSpace).fault.message,
            "the pull failed at apply: x"
        );
    }
}
