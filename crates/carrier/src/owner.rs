//! The owner of a sandbox whose guest is behind a [`CarriedLink`].

use crate::carry::CarriedLink;
use glovebox_proto::Fault;
use glovebox_sandbox::Report;
use glovebox_sandbox::backend::Owner;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Takes away what a service holds for a sandbox, after its guest was told to end. Called until it succeeds once.
pub type Release = Box<dyn Fn(GuestEnd) -> Result<(), Fault> + Send + Sync>;

/// How the link to a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestEnd {
    /// In order: everything that was wanted of it was fetched before.
    Closed,
    /// It was lost: work that nobody fetched may still be there.
    Lost,
}

/// The one who answers for a guest on another machine.
pub struct RemoteOwner {
    link: CarriedLink,
    report: Report,
    release: Release,
    is_released: Mutex<bool>,
}

impl RemoteOwner {
    /// Answers for the guest behind `link`.
    pub fn new(link: CarriedLink, report: Report, release: Release) -> Self {
        Self {
            link,
            report,
            release,
            is_released: Mutex::new(false),
        }
    }
}

impl Owner for RemoteOwner {
    fn report(&self) -> Report {
        self.report.clone()
    }

    fn exit_reason(&self) -> Option<String> {
        self.link.lost().map(|fault| fault.message)
    }

    fn halt(&self) -> Result<(), Fault> {
        // The guest ends its jobs and itself; what the service holds stays.
        self.link.close();
        Ok(())
    }

    fn kill(&self) -> Result<(), Fault> {
        let end = match self.link.lost() {
            Some(_) => GuestEnd::Lost,
            None => GuestEnd::Closed,
        };
        self.link.close();
        let mut is_released = self
            .is_released
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !*is_released {
            (self.release)(end)?;
            *is_released = true;
        }
        Ok(())
    }
}

impl Drop for RemoteOwner {
    fn drop(&mut self) {
        // Nobody is left to tell; the command that prunes finds what stays.
        let _ = self.kill();
    }
}

impl fmt::Debug for RemoteOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOwner")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}
