//! Pipe to a guest, and the trait that opens it.

use glovebox_proto::{Class, Fault};
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Opener of pipes to the guest of one machine.
pub trait Connect: Debug + Send + Sync {
    /// Opens a pipe. Blocks until `deadline` at most.
    ///
    /// # Errors
    /// The fault, and whether another attempt may succeed.
    fn connect(&self, attempt: Attempt, deadline: Instant) -> Result<Pipe, ConnectFailure>;
}

/// Position of an attempt in the life of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// First attempt: the guest is started behind the pipe.
    First,
    /// Later attempt: the pipe leads to the running guest.
    Again,
}

/// Connection, as bytes in both directions. Dropping it closes the connection.
#[derive(Debug)]
pub struct Pipe {
    /// Bytes from the other side; a socket or a pipe of this process.
    pub reader: OwnedFd,
    /// Bytes to the other side. May be another handle on the reader's socket.
    pub writer: OwnedFd,
    /// Bytes that were read already. They precede those of `reader`.
    pub early: Vec<u8>,
    /// Connection behind the pipe.
    pub end: Box<dyn PipeEnd>,
}

/// Connection behind a [`Pipe`].
pub trait PipeEnd: Debug + Send {
    /// Returns the reason for its end, as a sentence; `None` if it is open or the reason is
    /// unknown.
    fn reason(&self) -> Option<String> {
        None
    }
}

/// Failure to open a pipe.
#[derive(Debug)]
pub enum ConnectFailure {
    /// The service cannot be reached now, or asks to wait. The state of the guest is unknown.
    Retry {
        /// The failure.
        fault: Fault,
        /// Pause that the service asks for.
        after: Option<Duration>,
    },
    /// The guest, the machine or the permission is gone. No later attempt can succeed.
    Final(Fault),
}

impl ConnectFailure {
    /// Returns the failure of an attempt that did not lead to the guest. Without `has_chance`, a
    /// later attempt means that an established connection is lost.
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
