//! Errors of a request.

use crate::policy::name::Host;
use glovebox_proto::EgressReason;

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The request is invalid: its URL, method, headers or body.
    #[error("{0}")]
    Request(String),
    /// The policy does not allow the host, or the host's name leads to an address that is not
    /// allowed.
    #[error("{host}:{port} may not be reached: {}", clause(*.reason))]
    Refused {
        /// Requested host.
        host: Host,
        /// Requested port.
        port: u16,
        /// Reason of the refusal.
        reason: EgressReason,
    },
    /// The host could not be reached, or ended the connection early.
    #[error("{host}:{port} could not be asked: {reason}")]
    Failed {
        /// Requested host.
        host: Host,
        /// Requested port.
        port: u16,
        /// Cause, escaped for display.
        reason: String,
    },
    /// The response was not complete in time.
    #[error("{host}:{port} did not answer in time")]
    TimedOut {
        /// Requested host.
        host: Host,
        /// Requested port.
        port: u16,
    },
    /// The response exceeds its size limit.
    #[error("the {part} of the answer of {host}:{port} is longer than {max_bytes} bytes")]
    TooLarge {
        /// Requested host.
        host: Host,
        /// Requested port.
        port: u16,
        /// Part that is too large: `head` or `body`.
        part: &'static str,
        /// Limit of that part, in bytes.
        max_bytes: usize,
    },
    /// The response is a redirect that the request does not permit, or that cannot be followed.
    #[error("the answer of {host}:{port} leads elsewhere, {reason}")]
    Redirect {
        /// Host that sent the redirect.
        host: Host,
        /// Requested port.
        port: u16,
        /// Reason for which the redirect is not followed.
        reason: String,
    },
    /// The caller has used up its budget of requests or bytes.
    #[error("{0}")]
    Budget(String),
}

impl FetchError {
    /// Returns the host and port that the error is about. `None` if the request was invalid or over
    /// budget.
    pub const fn host(&self) -> Option<(&Host, u16)> {
        match self {
            Self::Request(_) | Self::Budget(_) => None,
            Self::Refused { host, port, .. }
            | Self::Failed { host, port, .. }
            | Self::TimedOut { host, port }
            | Self::TooLarge { host, port, .. }
            | Self::Redirect { host, port, .. } => Some((host, *port)),
        }
    }
}

const fn clause(reason: EgressReason) -> &'static str {
    match reason {
        EgressReason::Port => "its host is listed, with another port",
        EgressReason::Denied => "it is denied",
        EgressReason::Private => "its name leads to a private address",
        EgressReason::Never => "it is an address that is never reached",
        _ => "it is not among the hosts that are allowed",
    }
}
