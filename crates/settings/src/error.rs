//! What can be wrong with settings. Callers decide what becomes of it: an exit code, a status, a message.

use glovebox_proto::{Code, Fault, Remedy, Setting};
use std::fmt;
use std::io;

/// What is wrong with settings, or keeps them from being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsError {
    /// A value, a key or a file is wrong.
    Usage {
        /// What is wrong.
        message: String,
        /// How to do it right.
        remedy: Remedy,
    },
    /// A rule forbids it.
    Refused {
        /// What is forbidden, and why.
        message: String,
        /// How to allow it, or what to do in its place.
        remedy: Remedy,
    },
    /// The operating system cannot do what is needed.
    Io {
        /// The kind of the system's error.
        kind: io::ErrorKind,
        /// What cannot be done, and why.
        message: String,
        /// What to do about it.
        remedy: Option<Remedy>,
    },
    /// A failure below, as it was reported.
    Fault(Fault),
}

impl SettingsError {
    /// Wrong usage: `message` says what, `remedy` how to do it right.
    pub fn usage(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self::Usage {
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// A refusal by a rule.
    pub fn refused(message: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self::Refused {
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// What is wrong with a configuration file; without it everything would go on.
    pub(crate) fn in_file(message: impl Into<String>) -> Self {
        let remedy = Remedy::advice([
            "correct the file, or pass ".into(),
            Setting::NoConfig.into(),
            " to go without it".into(),
        ]);
        Self::usage(message, remedy)
    }

    /// An operating-system error while doing `what`.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        let text = error.to_string();
        // The number behind the words helps nobody who reads them.
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

    /// The failure as data.
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

    /// Replaces what to do about it.
    #[must_use]
    pub fn with_remedy(mut self, text: impl Into<Remedy>) -> Self {
        match &mut self {
            Self::Usage { remedy, .. } | Self::Refused { remedy, .. } => *remedy = text.into(),
            Self::Io { remedy, .. } => *remedy = Some(text.into()),
            Self::Fault(fault) => fault.remedy = Some(text.into()),
        }
        self
    }

    /// What is wrong, in one sentence.
    pub fn message(&self) -> &str {
        match self {
            Self::Usage { message, .. }
            | Self::Refused { message, .. }
            | Self::Io { message, .. } => message,
            Self::Fault(fault) => &fault.message,
        }
    }

    /// What to do about it, where that is known.
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
