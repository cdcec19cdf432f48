//! Errors of this crate. Callers turn them into an exit code, a status or a message.

use glovebox_proto::{Code, Fault, Remedy};
use glovebox_sandbox::Name;
use glovebox_settings::SettingsError;
use glovebox_workspace::SyncError;
use std::fmt;
use std::io;

/// Reason why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The request is invalid or forbidden, or this machine lacks what it needs.
    Settings(SettingsError),
    /// A push or a pull failed.
    Sync(SyncError),
    /// A fault of a lower layer, unchanged.
    Fault(Fault),
}

impl Error {
    /// Creates a usage error: `message` says what is wrong, `remedy` how to correct it.
    pub fn usage(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self::Settings(SettingsError::usage(message, remedy))
    }

    /// Creates an error for a request that a rule refuses.
    pub fn refused(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self::Settings(SettingsError::refused(message, remedy))
    }

    /// Creates an error of the operating system. `what` names the operation.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::Settings(SettingsError::io(what, error))
    }

    /// Creates the error for a sandbox that does not exist.
    pub fn no_sandbox(name: &Name) -> Self {
        let fault = Fault::failed(
            Code::SandboxNotFound,
            format!("there is no sandbox `{name}`"),
        );
        Self::Fault(fault.remedy("`glovebox list` shows those there are"))
    }

    /// Replaces the hint.
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

    /// Converts to a fault.
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Settings(error) => error.into_fault(),
            Self::Sync(error) => error.fault,
            Self::Fault(fault) => fault,
        }
    }

    /// Returns the message, one sentence.
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
