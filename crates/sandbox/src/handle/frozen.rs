//! A sandbox that a caller holds still from outside.

use crate::control;
use crate::process::freeze::FreezeGuard;
use glovebox_proto::Fault;
use std::os::fd::OwnedFd;

/// A sandbox that is held still. Dropping it lets the processes go on; so does the death of the
/// process that holds it.
#[derive(Debug)]
#[must_use = "the sandbox goes on when this is dropped"]
pub struct FrozenSandbox {
    pub(crate) kind: FrozenKind,
}

#[derive(Debug)]
pub(crate) enum FrozenKind {
    /// The sandbox is this process's own.
    Own { hold: FreezeGuard },
    /// Its supervisor holds it for as long as the connection lasts.
    Remote(OwnedFd),
}

impl FrozenSandbox {
    /// Whether nothing in the sandbox has run since it stood still. A process can have itself continued, and
    /// what was read meanwhile is then of different moments.
    ///
    /// # Errors
    /// `busy` when something has run; a loss when nobody can tell any more.
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
