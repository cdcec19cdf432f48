//! Why an allowed host was not reached.

use serde::{Deserialize, Serialize};
use std::io;

/// Why an allowed host was not reached. Where several addresses were tried it is that of the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectFailure {
    /// The name does not resolve.
    UnknownName,
    /// The resolver of this machine did not answer in time.
    NoResolverAnswer,
    /// Nobody listens on that port, or a firewall says so.
    Refused,
    /// There is no route to its addresses.
    Unreachable,
    /// None of its addresses answered in time.
    TimedOut,
    /// Something else, such as too many open files of this machine.
    Other,
}

impl ConnectFailure {
    /// A word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::UnknownName => "unknown-name",
            Self::NoResolverAnswer => "no-resolver-answer",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed-out",
            Self::Other => "other",
        }
    }

    /// What happened, as a clause.
    pub const fn clause(self) -> &'static str {
        match self {
            Self::UnknownName => "the name does not resolve",
            Self::NoResolverAnswer => "this machine's resolver did not answer in time",
            Self::Refused => "the connection was refused",
            Self::Unreachable => "there is no route to it",
            Self::TimedOut => "it did not answer in time",
            Self::Other => "this machine could not connect to it",
        }
    }
}

impl From<&io::Error> for ConnectFailure {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Other,
        }
    }
}
