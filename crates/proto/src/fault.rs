//! Failures that cross the wire, in one form and with stable codes.

use crate::Remedy;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Kind of a failure, which decides who must act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Policy forbids the operation. The caller must ask for permission instead of retrying.
    Refused,
    /// The operation ran and did not succeed.
    Failed,
    /// The connection, the guest or the backend is gone.
    Lost,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Lost => "lost",
        })
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// Cause of a failure as a stable word. Scripts match on it; messages may change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// Every code, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the stable kebab-case word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Returns one sentence about the use of the code, for the generated reference.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+),)+ }
            }
        }
    };
}

codes! {
    /// A bug in Glovebox.
    Internal = "internal",
    /// The request itself is malformed: an empty command, a NUL byte, a value out of range.
    InvalidArgument = "invalid-argument",
    /// An input exceeds a documented bound.
    TooLarge = "too-large",
    /// The path does not exist.
    NotFound = "not-found",
    /// Something already exists where a new thing was to be made.
    AlreadyExists = "already-exists",
    /// The file system or the sandbox's walls do not permit it.
    PermissionDenied = "permission-denied",
    /// The path is a directory where a file was needed.
    IsDirectory = "is-directory",
    /// The path is not a directory where one was needed.
    NotDirectory = "not-directory",
    /// The directory still has entries.
    NotEmpty = "not-empty",
    /// The path is neither a regular file nor a directory (a device, FIFO or socket).
    SpecialFile = "special-file",
    /// No space, quota or inodes are left.
    NoSpace = "no-space",
    /// The file system is read-only there.
    ReadOnly = "read-only",
    /// The command was not found (exit code 127 in a shell).
    CommandNotFound = "command-not-found",
    /// The command exists but cannot be executed (exit code 126 in a shell).
    CommandNotExecutable = "command-not-executable",
    /// The working directory does not exist or cannot be entered.
    CwdNotFound = "cwd-not-found",
    /// There is no such job.
    JobNotFound = "job-not-found",
    /// The job has ended already.
    JobEnded = "job-ended",
    /// A limit on jobs, requests or processes is reached; try again when something has ended.
    Busy = "busy",
    /// The caller gave the request up.
    Cancelled = "cancelled",
    /// A deadline passed.
    TimedOut = "timed-out",
    /// This guest or backend cannot do that.
    Unsupported = "unsupported",
    /// A primitive the sandbox needs is missing on this machine.
    Unavailable = "unavailable",
    /// A limit marked as required cannot be enforced here.
    LimitUnavailable = "limit-unavailable",
    /// The sandbox did not pass its own checks before use.
    SelfTestFailed = "self-test-failed",
    /// There is no such sandbox.
    SandboxNotFound = "sandbox-not-found",
    /// The sandbox exists but is not running.
    SandboxNotRunning = "sandbox-not-running",
    /// The configured number of sandboxes is reached.
    TooManySandboxes = "too-many-sandboxes",
    /// The connection to the guest ended.
    LinkLost = "link-lost",
    /// The peer broke the protocol.
    Protocol = "protocol",
    /// The carrier command could not start the guest.
    CarrierFailed = "carrier-failed",
    /// An operating-system error with no code of its own; the message has the details.
    Io = "io",
    /// Content is not what was announced or collected: it changed meanwhile, or somebody lies.
    DigestMismatch = "digest-mismatch",
    /// A push or a pull failed; direction and stage say where, and the cause is in the message.
    SyncFailed = "sync-failed",
    /// A path was changed on both sides.
    Conflict = "conflict",
    /// The text to be replaced is not in the file.
    NoMatch = "no-match",
    /// The text to be replaced stands in several places.
    AmbiguousMatch = "ambiguous-match",
    /// The file was changed by somebody else in the middle of the operation.
    ContentChanged = "content-changed",
    /// The file holds content that the caller has not read, and writing would destroy it.
    UnseenContent = "unseen-content",
    /// The toolset or a rule of the policy does not permit the call, or asks and nobody may answer.
    PolicyRefused = "policy-refused",
    /// The quota or the credit of the account at the model's provider is used up.
    QuotaExhausted = "quota-exhausted",
    /// The bundle has no signature of a key that the server accepts today.
    Unsigned = "unsigned",
    /// The changes are not those that were shown when they were approved.
    Changed = "changed",
    /// The service of a backend does not accept the token or the key, or wants one.
    NotAuthenticated = "not-authenticated",
    /// The service of a backend takes no more requests for a while; the message says how long.
    RateLimited = "rate-limited",
    /// The backend cannot start sandboxes in this place at all.
    BackendUnavailable = "backend-unavailable",
    /// The program of a backend's service is not on this machine, or cannot be started.
    CliNotFound = "cli-not-found",
    /// The program of a backend's service cannot do what is needed of it.
    CliTooOld = "cli-too-old",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Failure as it crosses the wire and reaches callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Kind of the failure.
    pub class: Class,
    /// Stable word for programs.
    pub code: Code,
    /// Sentence for people: the problem and its place.
    pub message: String,
    /// Hint on how to avoid the failure; `None` if there is none.
    pub remedy: Option<Remedy>,
    /// True if the same call is safe to repeat and may succeed later.
    pub is_retryable: bool,
}

impl Fault {
    /// Creates a fault for an operation that ran and failed.
    pub fn failed(code: Code, message: impl Into<String>) -> Self {
        Self {
            class: Class::Failed,
            code,
            message: message.into(),
            remedy: None,
            is_retryable: false,
        }
    }

    /// Creates a fault for a refusal by policy.
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Self {
            class: Class::Refused,
            ..Self::failed(code, message)
        }
    }

    /// Creates a fault for a connection, guest or backend that is gone.
    pub fn lost(code: Code, message: impl Into<String>) -> Self {
        Self {
            class: Class::Lost,
            ..Self::failed(code, message)
        }
    }

    /// Sets the hint on how to avoid the failure.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<Remedy>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Marks the call as safe to repeat.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.is_retryable = true;
        self
    }
}
