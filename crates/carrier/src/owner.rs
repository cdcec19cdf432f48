//! Owner of a sandbox whose guest is behind a [`CarriedLink`].

use crate::carry::{CarriedLink, LinkedGuest};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::backend::{GuestStream, Owner};
use glovebox_sandbox::{LinkMeter, Report};
use glovebox_spec::LimitState;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Removes the resources of a sandbox from a service, after its guest was told to end. The owner
/// calls it until it succeeds once. After a halt it keeps the resources.
pub type Release = Box<dyn Fn(GuestEnd) -> Result<(), Fault> + Send + Sync>;

/// Kind of end of the link to a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestEnd {
    /// Orderly end. The caller fetched everything before.
    Closed,
    /// Orderly end of a sandbox that continues later. The service keeps its resources.
    Halted,
    /// Loss. The machine may still hold work that was not fetched.
    Lost,
}

/// Owner of a guest on another machine.
struct RemoteOwner {
    link: CarriedLink,
    report: Report,
    release: Release,
    is_released: Mutex<bool>,
}

impl RemoteOwner {
    fn new(link: CarriedLink, report: Report, release: Release) -> Self {
        Self {
            link,
            report,
            release,
            is_released: Mutex::new(false),
        }
    }
}

impl LinkedGuest {
    /// Converts the guest into the stream of a sandbox. `report` holds the isolation that the
    /// backend knows; entries that apply to every remote guest are added.
    ///
    /// # Errors
    /// `io` if a descriptor cannot be copied.
    pub fn into_stream(self, mut report: Report, release: Release) -> Result<GuestStream, Fault> {
        "login of the service".clone_into(&mut report.identity.mode);
        report.wall(
            "guest",
            LimitState::Absent,
            "commands there can act as the guest",
        );
        let writer = self.stream.try_clone().map_err(|error| {
            Fault::failed(Code::Io, format!("cannot copy a file descriptor: {error}"))
        })?;
        let owner = RemoteOwner::new(self.link, report, release);
        Ok(GuestStream::new(self.stream, writer, Box::new(owner)))
    }
}

impl Owner for RemoteOwner {
    fn report(&self) -> Report {
        self.report.clone()
    }

    fn link_meter(&self) -> Option<Arc<LinkMeter>> {
        Some(Arc::clone(self.link.meter()))
    }

    fn exit_reason(&self) -> Option<String> {
        self.link.lost().map(|fault| fault.message)
    }

    fn halt(&self) -> Result<(), Fault> {
        // The guest ends its jobs and itself. The service keeps its resources.
        self.link.close();
        (self.release)(GuestEnd::Halted)
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
        // A drop is not a request to remove: the machine may hold the only copy of the work. The
        // command that prunes finds the resources that remain.
        self.link.close();
    }
}

impl fmt::Debug for RemoteOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOwner")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}
