//! Requests that did not succeed: the four layers of the service's errors, and the faults they
//! become.

use crate::base_url::BaseUrl;
use glovebox_carrier::ConnectFailure;
use glovebox_proto::{Class, Code, Fault};
use std::time::Duration;

/// Longest time that a service may ask to be left alone.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum ServiceError {
    /// The request did not reach the service.
    NotSent(String),
    /// The service may have done the work, but its answer did not come.
    NoAnswer(String),
    /// The service answered with this status.
    Status {
        status: u16,
        message: String,
        retry_after: Option<Duration>,
    },
    /// The service says that the operation failed.
    Failed(String),
    /// The answer is not what the service's description says.
    Malformed(String),
    /// The request could not be made here.
    Local(Fault),
}

impl ServiceError {
    /// True if the same request may succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::NoAnswer(_) => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Failed(_) | Self::Malformed(_) | Self::Local(_) => false,
        }
    }

    /// True if the service has certainly not begun the work.
    pub(crate) fn is_undone(&self) -> bool {
        matches!(
            self,
            Self::NotSent(_)
                | Self::Status {
                    status: 401 | 403 | 429,
                    ..
                }
        )
    }

    /// True if the service does not take the credential.
    pub(crate) fn is_refused_key(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: 401 | 403,
                ..
            }
        )
    }

    /// True if the path or the machine does not exist.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: 404 | 410,
                ..
            }
        )
    }

    /// How long the service wants to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => retry_after.map(|after| after.min(MAX_RETRY_AFTER)),
            _ => None,
        }
    }

    /// What happened, for the end of a sentence.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::NotSent(reason) => format!("it cannot be reached: {reason}"),
            Self::NoAnswer(reason) => format!("its answer did not come: {reason}"),
            Self::Status {
                status, message, ..
            } if message.is_empty() => format!("it answered with status {status}"),
            Self::Status {
                status, message, ..
            } => format!("it answered with status {status}: {message}"),
            Self::Failed(message) => format!("it says: {message}"),
            Self::Malformed(reason) => format!("its answer cannot be read: {reason}"),
            Self::Local(fault) => fault.message.clone(),
        }
    }

    /// The failure of an attempt to open a pipe, or to look at the service.
    pub(crate) fn into_failure(self, base: &BaseUrl) -> ConnectFailure {
        let code = match self {
            Self::Local(fault) => return ConnectFailure::Final(fault),
            Self::Status {
                status: 401 | 403, ..
            } => return ConnectFailure::Final(not_authenticated(base)),
            Self::Status { status: 429, .. } => Code::RateLimited,
            _ => Code::CarrierFailed,
        };
        let fault = Fault::failed(code, format!("AIO Sandbox at {base}: {}", self.reason()));
        let fault = match self {
            Self::NotSent(_) => {
                fault.remedy("check the base URL, and whether the service runs there")
            }
            _ => fault,
        };
        if !self.is_passing() {
            return ConnectFailure::Final(fault);
        }
        ConnectFailure::Retry {
            fault: fault.retryable(),
            after: self.retry_after(),
        }
    }
}

/// The service does not take the credential, or wants one.
pub(crate) fn not_authenticated(base: &BaseUrl) -> Fault {
    Fault::refused(
        Code::NotAuthenticated,
        format!("AIO Sandbox at {base} does not accept the key, or needs one"),
    )
    .remedy("set AIO_API_KEY, or aio.key_file to a file that holds the key")
}

/// A fault of this carrier.
pub(crate) fn carrier_failed(base: &BaseUrl, what: &str) -> Fault {
    Fault::failed(
        Code::CarrierFailed,
        format!("AIO Sandbox at {base}: {what}"),
    )
}

/// The same fault in the life of a guest, which is lost by it.
pub(crate) fn as_lost(fault: Fault) -> Fault {
    let code = match fault.code {
        Code::CarrierFailed => Code::LinkLost,
        code => code,
    };
    Fault {
        class: Class::Lost,
        code,
        is_retryable: false,
        ..fault
    }
}
