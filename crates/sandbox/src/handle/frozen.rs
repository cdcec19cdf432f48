//! Sandbox that a caller has frozen from outside.

use crate::control;
use crate::process::freeze::FreezeGuard;
use glovebox_proto::Fault;
use std::os::fd::OwnedFd;

/// Frozen sandbox. Dropping it, or the death of the process that froze it, continues the processes.
#[derive(Debug)]
#[must_use = "the sandbox goes on when this is dropped"]
pub struct FrozenSandbox {
    pub(crate) kind: FrozenKind,
}

#[derive(Debug)]
pub(crate) enum FrozenKind {
    /// This process owns the sandbox and froze it.
    Own { hold: FreezeGuard },
    /// Its supervisor froze it, for as long as the connection lasts.
    Remote(OwnedFd),
}

impl FrozenSandbox {
    /// Checks that nothing in the sandbox has run since the freeze. A process can have itself
    /// continued; then data read meanwhile may be of different moments.
    ///
    /// # Errors
    /// `busy` if a process has run; the loss of the supervisor's connection.
    pub fn verify(&self) -> Result<(), Fault> {
        match &self.kind {
            FrozenKind::Own { hold } => hold.verify(),
            FrozenKind::Remote(socket) => control::verify(socket),
        }
    }
}

impl Drop for FrozenSandbox {
    fn drop(&mut self) {
        if let FrozenKind::Remote(socket) = &self.kind {
            control::hang_up(socket);
        }
    }
}
