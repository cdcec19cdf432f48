//! Failed requests: the four layers of the service's errors, and the faults they become.

use crate::base_url::BaseUrl;
use glovebox_carrier::ConnectFailure;
use glovebox_proto::{Class, Code, Fault};
use std::time::Duration;

/// Maximum pause that a service can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// Reason why a request has no result.
#[derive(Debug)]
pub(crate) enum ServiceError {
    /// The request did not reach the service.
    NotSent(String),
    /// The service may have done the work, but no response arrived.
    NoAnswer(String),
    /// The service responded with this status.
    Status {
        status: u16,
        message: String,
        retry_after: Option<Duration>,
    },
    /// The service reports that the operation failed.
    Failed(String),
    /// The response does not match the service's specification.
    Malformed(String),
    /// The request could not be made on this machine.
    Local(Fault),
}

impl ServiceError {
    /// Returns true if the same request may succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::NoAnswer(_) => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Failed(_) | Self::Malformed(_) | Self::Local(_) => false,
        }
    }

    /// Returns true if the service has certainly not begun the work.
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

    /// Returns true if the service refuses the credential.
    pub(crate) fn is_refused_key(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: 401 | 403,
                ..
            }
        )
    }

    /// Returns true if the path or the machine does not exist.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: 404 | 410,
                ..
            }
        )
    }

    /// Returns the pause that the service asks for. None if it asks for none.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => retry_after.map(|after| after.min(MAX_RETRY_AFTER)),
            _ => None,
        }
    }

    /// Describes the failure, as the end of a sentence.
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

    /// Converts the error into the failure of an attempt to open a pipe or to probe the service.
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

/// Creates the fault for a missing or refused credential.
pub(crate) fn not_authenticated(base: &BaseUrl) -> Fault {
    Fault::refused(
        Code::NotAuthenticated,
        format!("AIO Sandbox at {base} does not accept the key, or needs one"),
    )
    .remedy("set AIO_API_KEY, or aio.key_file to a file that holds the key")
}

/// Creates a fault of this transport.
pub(crate) fn carrier_failed(base: &BaseUrl, what: &str) -> Fault {
    Fault::failed(
        Code::CarrierFailed,
        format!("AIO Sandbox at {base}: {what}"),
    )
}

/// Converts a fault after the guest has started: the guest is lost.
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
