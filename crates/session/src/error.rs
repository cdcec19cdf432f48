//! What keeps a piece of work from being done. Callers decide what becomes of it: an exit code, a status, a message.

use glovebox_proto::{Code, Fault, Remedy};
use glovebox_sandbox::Name;
use glovebox_settings::SettingsError;
use glovebox_workspace::SyncError;
use std::fmt;
use std::io;

/// What keeps a piece of work from being done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// What was asked for is wrong or forbidden, or this machine does not have it.
    Settings(SettingsError),
    /// A push or a pull failed.
    Sync(SyncError),
    /// A failure below, as it was reported.
    Fault(Fault),
}

impl Error {
    /// Wrong usage: `message` says what, `remedy` how to do it right.
    pub fn usage(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self::Settings(SettingsError::usage(message, remedy))
    }

    /// A refusal by a rule.
    pub fn refused(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self::Settings(SettingsError::refused(message, remedy))
    }

    /// An operating-system error while doing `what`.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::Settings(SettingsError::io(what, error))
    }

    /// There is no sandbox of this name.
    pub fn no_sandbox(name: &Name) -> Self {
        let fault = Fault::failed(
            Code::SandboxNotFound,
            format!("there is no sandbox `{name}`"),
        );
        Self::Fault(fault.remedy("`glovebox list` shows those there are"))
    }

    /// Replaces what to do about it.
    #[must_use]
    pub fn with_remedy(self, text: impl Into<Remedy>) -> Self {
        match self {
            Self::Settings(error) => Self::Settings(error.with_remedy(text)),
            Self::Sync(mut error) => {
                error.fault.remedy = Some(text.into());
                Self::Sync(error)
            }
            Self::Fault(fault) => Self::Fault(fault.remedy(text)),
        }
    }

    /// The failure as data.
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Settings(error) => error.into_fault(),
            Self::Sync(error) => error.fault,
            Self::Fault(fault) => fault,
        }
    }

    /// What is wrong, in one sentence.
    pub fn message(&self) -> &str {
        match self {
            Self::Settings(error) => error.message(),
            Self::Sync(error) => &error.fault.message,
            Self::Fault(fault) => &fault.message,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Self {
        Self::Settings(error)
    }
}

impl From<SyncError> for Error {
    fn from(error: SyncError) -> Self {
        Self::Sync(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
