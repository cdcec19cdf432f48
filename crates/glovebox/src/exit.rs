//! The error type of the commands and the table of exit codes.
//!
//! `run` and `exec` stand in for the command they run, so their exit code is that command's; every
//! failure of Glovebox itself is 125 there (124 for a timeout, 126 and 127 as in a shell). All
//! other commands use the numbers of [`Kind`]. Each failure holds a [`Fault`], so that a person and
//! `--json` get the same facts.

use glovebox_proto::{Class, Code, Fault, Remedy};
use glovebox_settings::SettingsError;
use glovebox_workspace::{Direction, Stage, SyncError};
use std::io;

/// The command succeeded, and its changes conflict with the host's files (`run`).
pub(crate) const CONFLICT: u8 = 3;
/// The command exceeded its timeout (`run`, `exec`).
pub(crate) const TIMED_OUT: u8 = 124;
/// Failure of Glovebox itself (`run`, `exec`), or the backend is unavailable on this machine.
pub(crate) const OWN_FAILURE: u8 = 125;
/// The command cannot be executed (`run`, `exec`).
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found (`run`, `exec`).
pub(crate) const NOT_FOUND: u8 = 127;
/// The user interrupted before there was a result.
pub(crate) const INTERRUPTED: u8 = 130;
/// The reader of our output has closed it: the code that a shell reports for a process killed by
/// SIGPIPE.
pub(crate) const BROKEN_PIPE: u8 = 141;

/// Result of a command: its exit code, or the error.
pub(crate) type CommandResult = Result<u8, CommandError>;

/// Class of a failure. It decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The operation ran and failed.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// A policy forbids the operation, or the object is in use.
    Refused,
    /// The sandbox or the connection to it is lost.
    Lost,
    /// A limit is reached.
    Limit,
    /// A named object does not exist: a sandbox, path, session or checkpoint.
    NotFound,
    /// The backend is unavailable on this machine.
    NoBackend,
    /// The user stopped the operation.
    Interrupted,
    /// The reader of our output has closed it.
    BrokenPipe,
    /// A command exceeded its timeout, and the guest sent no [`Code::TimedOut`].
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

/// Failure of a command, with its exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandError {
    /// Class of the failure; decides the exit code.
    pub kind: Kind,
    /// Message, hint, and the code for programs.
    pub fault: Fault,
    /// Direction and stage of a failed push or pull; its code for programs is then `sync-failed`.
    /// None for any other failure.
    pub at: Option<(Direction, Stage)>,
    /// Lines below the message, such as a list to choose from. Each is escaped separately when it
    /// is printed, so that no entry can look like two.
    pub details: Vec<String>,
}

impl CommandError {
    /// Creates a failure that is not part of a push or pull.
    pub(crate) const fn new(kind: Kind, fault: Fault) -> Self {
        Self {
            kind,
            fault,
            at: None,
            details: Vec::new(),
        }
    }

    /// Returns the code that programs see.
    pub(crate) const fn code(&self) -> Code {
        match self.at {
            Some(_) if !matches!(self.fault.code, Code::Cancelled) => Code::SyncFailed,
            _ => self.fault.code,
        }
    }

    /// Creates a usage error: `message` names the mistake, `remedy` the correction.
    pub(crate) fn usage(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        let fault = Fault::failed(Code::InvalidArgument, message).remedy(remedy);
        Self::new(Kind::Usage, fault)
    }

    /// Creates a refusal by policy.
    pub(crate) fn refused(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        let fault = Fault::refused(Code::PermissionDenied, message).remedy(remedy);
        Self::new(Kind::Refused, fault)
    }

    /// Creates an error from an operating-system error that occurred while doing `what`.
    pub(crate) fn io(what: impl Into<String>, error: &io::Error) -> Self {
        SettingsError::io(what.into(), error).into()
    }

    /// Creates the error for an interruption by the user before the command began.
    pub(crate) fn interrupted() -> Self {
        Self::new(
            Kind::Interrupted,
            Fault::failed(Code::Cancelled, "interrupted"),
        )
    }

    /// Sets the hint.
    #[must_use]
    pub(crate) fn remedy(mut self, remedy: impl Into<Remedy>) -> Self {
        self.fault.remedy = Some(remedy.into());
        self
    }

    /// Sets the lines below the message.
    #[must_use]
    pub(crate) fn details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    /// Returns the exit code in commands other than `run` and `exec`.
    pub(crate) const fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// Returns the exit code in `run` and `exec`, which stand in for the command they run.
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
