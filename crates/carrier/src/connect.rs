//! A pipe to a guest, and who opens it.

use glovebox_proto::{Class, Fault};
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Opens pipes to the guest of one machine.
pub trait Connect: Debug + Send + Sync {
    /// Opens a pipe. Blocks at most until `deadline`.
    ///
    /// # Errors
    /// What failed, and whether another attempt has a chance.
    fn connect(&self, attempt: Attempt, deadline: Instant) -> Result<Pipe, ConnectFailure>;
}

/// Place of a pipe in a guest's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The first: the guest is brought up behind it.
    First,
    /// A later one: it leads to the guest that runs.
    Again,
}

/// A connection, as bytes in both directions. Dropping it closes the connection.
#[derive(Debug)]
pub struct Pipe {
    /// Bytes from the other side; a socket or a pipe of this process.
    pub reader: OwnedFd,
    /// Bytes to the other side. May be another handle on the reader's socket.
    pub writer: OwnedFd,
    /// Bytes that were read already and belong in front of the reader's.
    pub early: Vec<u8>,
    /// The connection behind it.
    pub end: Box<dyn PipeEnd>,
}

/// The connection behind a [`Pipe`].
pub trait PipeEnd: Debug + Send {
    /// Reason of its end, in one sentence, once it has ended and the reason is known.
    fn reason(&self) -> Option<String> {
        None
    }
}

/// Failure to open a pipe.
#[derive(Debug)]
pub enum ConnectFailure {
    /// The service cannot be reached now, or asks to wait; nothing is said about the guest.
    Retry {
        /// The failure.
        fault: Fault,
        /// Time for which the service wants to be left alone.
        after: Option<Duration>,
    },
    /// The guest, the machine or the permission is gone: no later attempt succeeds.
    Final(Fault),
}

impl ConnectFailure {
    /// Makes the failure of an attempt that did not lead to the guest. Where no later one has a chance, a connection
    /// that was there before is lost.
    pub fn of_attempt(attempt: Attempt, mut fault: Fault, has_chance: bool) -> Self {
        if has_chance {
            return Self::Retry {
                fault: fault.retryable(),
                after: None,
            };
        }
        if attempt == Attempt::Again {
            fault.class = Class::Lost;
        }
        Self::Final(fault)
    }
}
