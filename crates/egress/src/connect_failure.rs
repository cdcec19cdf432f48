//! Reasons for which an allowed host could not be reached.

use crate::proxy_variable::ProxyVariable;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Reason for which an allowed host could not be reached. If several addresses were tried, the
/// reason of the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectFailure {
    /// The name does not resolve.
    UnknownName,
    /// The resolver of this machine did not answer in time.
    NoResolverAnswer,
    /// Nothing listens on that port, or a firewall rejected the connection.
    Refused,
    /// No route leads to its addresses.
    Unreachable,
    /// None of its addresses answered in time.
    TimedOut,
    /// Any other error, such as too many open files on this machine.
    Other,
    /// The machine's proxy refused to open a connection.
    ProxyRefused {
        /// Environment variable that names the proxy.
        variable: ProxyVariable,
        /// HTTP status of the proxy's response.
        status: u16,
    },
    /// The machine's proxy could not be reached, or sent no valid response in time.
    ProxyUnreached {
        /// Environment variable that names the proxy.
        variable: ProxyVariable,
    },
}

impl ConnectFailure {
    /// Returns the identifier of the reason for machine-readable output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::UnknownName => "unknown-name",
            Self::NoResolverAnswer => "no-resolver-answer",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed-out",
            Self::Other => "other",
            Self::ProxyRefused { .. } => "proxy-refused",
            Self::ProxyUnreached { .. } => "proxy-unreached",
        }
    }
}

/// Writes the reason as a clause for messages.
impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownName => "the name does not resolve",
            Self::NoResolverAnswer => "this machine's resolver did not answer in time",
            Self::Refused => "the connection was refused",
            Self::Unreachable => "there is no route to it",
            Self::TimedOut => "it did not answer in time",
            Self::Other => "this machine could not connect to it",
            Self::ProxyRefused { variable, status } => {
                let name = variable.name();
                let why = match status {
                    407 => ": it wants other credentials",
                    _ => "",
                };
                return write!(
                    f,
                    "this machine's proxy (`{name}`) refused it with status {status}{why}"
                );
            }
            Self::ProxyUnreached { variable } => {
                let name = variable.name();
                return write!(f, "this machine's proxy (`{name}`) does not answer");
            }
        })
    }
}

impl std::error::Error for ConnectFailure {}

impl From<ConnectFailure> for io::Error {
    fn from(failure: ConnectFailure) -> Self {
        Self::other(failure)
    }
}

impl From<&io::Error> for ConnectFailure {
    fn from(error: &io::Error) -> Self {
        let known = error.get_ref().and_then(|inner| inner.downcast_ref());
        if let Some(known) = known {
            return *known;
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Other,
        }
    }
}
