//! Why a request has no answer.

use crate::policy::name::Host;
use glovebox_proto::EgressReason;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// It cannot be made: its address, method, headers or body.
    #[error("{0}")]
    Request(String),
    /// The policy does not open its host, or does not open where the host's name leads.
    #[error("{host}:{port} may not be reached: {}", clause(*.reason))]
    Refused {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
        /// Why not.
        reason: EgressReason,
    },
    /// The host was not reached, or broke off.
    #[error("{host}:{port} could not be asked: {reason}")]
    Failed {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
        /// What happened, safe to show.
        reason: String,
    },
    /// There was no whole answer in time.
    #[error("{host}:{port} did not answer in time")]
    TimedOut {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
    },
    /// The answer has more bytes than it may.
    #[error("the {part} of the answer of {host}:{port} is longer than {max_bytes} bytes")]
    TooLarge {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
        /// `head` or `body`.
        part: &'static str,
        /// What it may have.
        max_bytes: usize,
    },
    /// It leads elsewhere where that is not wanted, or too often.
    #[error("the answer of {host}:{port} leads elsewhere, {reason}")]
    Redirect {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
        /// Why that is not followed.
        reason: String,
    },
    /// The caller has made as many requests, sent or received as many bytes as it may.
    #[error("{0}")]
    Budget(String),
}

impl FetchError {
    /// The host and the port that it is about, if one was asked or would have been.
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
