//! Errors of settings. The caller turns them into an exit code, a status or a message.

use glovebox_proto::{Code, Fault, Remedy, Setting};
use std::fmt;
use std::io;

/// Error in settings, or in reading them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsError {
    /// A value, a key or a file is invalid.
    Usage {
        /// Sentence that names the problem.
        message: String,
        /// Correct form.
        remedy: Remedy,
    },
    /// A rule forbids the value.
    Refused {
        /// Sentence that names the forbidden value and the reason.
        message: String,
        /// Way to permit it, or an alternative.
        remedy: Remedy,
    },
    /// The operating system failed.
    Io {
        /// Kind of the system's error.
        kind: io::ErrorKind,
        /// Sentence that names the failed operation and the reason.
        message: String,
        /// Hint; `None` if there is none.
        remedy: Option<Remedy>,
    },
    /// Fault of a lower layer, unchanged.
    Fault(Fault),
}

impl SettingsError {
    /// Creates an error for invalid usage. `remedy` is the correct form.
    pub fn usage(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self::Usage {
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// Creates an error for a refusal by a rule.
    pub fn refused(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self::Refused {
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// Creates an error for a problem in a configuration file, with the hint to run without it.
    pub(crate) fn in_file(message: impl Into<String>) -> Self {
        let remedy = Remedy::advice([
            "correct the file, or pass ".into(),
            Setting::NoConfig.into(),
            " to go without it".into(),
        ]);
        Self::usage(message, remedy)
    }

    /// Creates an error for a failed system call; `what` is the operation.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        let text = error.to_string();
        // Error numbers do not help users.
        let number = error
            .raw_os_error()
            .map(|errno| format!(" (os error {errno})"));
        let words = number
            .and_then(|number| text.strip_suffix(&number))
            .unwrap_or(&text);
        Self::Io {
            kind: error.kind(),
            message: format!("cannot {what}: {words}"),
            remedy: None,
        }
    }

    /// Converts the error into a fault.
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Usage { message, remedy } => {
                Fault::failed(Code::InvalidArgument, message).remedy(remedy)
            }
            Self::Refused { message, remedy } => {
                Fault::refused(Code::PermissionDenied, message).remedy(remedy)
            }
            Self::Io {
                kind,
                message,
                remedy,
            } => {
                let code = match kind {
                    io::ErrorKind::NotFound => Code::NotFound,
                    io::ErrorKind::PermissionDenied => Code::PermissionDenied,
                    io::ErrorKind::AlreadyExists => Code::AlreadyExists,
                    io::ErrorKind::StorageFull => Code::NoSpace,
                    _ => Code::Io,
                };
                Fault {
                    remedy,
                    ..Fault::failed(code, message)
                }
            }
            Self::Fault(fault) => fault,
        }
    }

    /// Replaces the hint.
    #[must_use]
    pub fn with_remedy(mut self, text: impl Into<Remedy>) -> Self {
        match &mut self {
            Self::Usage { remedy, .. } | Self::Refused { remedy, .. } => *remedy = text.into(),
            Self::Io { remedy, .. } => *remedy = Some(text.into()),
            Self::Fault(fault) => fault.remedy = Some(text.into()),
        }
        self
    }

    /// Returns the sentence that names the problem.
    pub fn message(&self) -> &str {
        match self {
            Self::Usage { message, .. }
            | Self::Refused { message, .. }
            | Self::Io { message, .. } => message,
            Self::Fault(fault) => &fault.message,
        }
    }

    /// Returns the hint, or `None` if there is none.
    pub fn remedy(&self) -> Option<&Remedy> {
        match self {
            Self::Usage { remedy, .. } | Self::Refused { remedy, .. } => Some(remedy),
            Self::Io { remedy, .. } => remedy.as_ref(),
            Self::Fault(fault) => fault.remedy.as_ref(),
        }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for SettingsError {}

impl From<Fault> for SettingsError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
