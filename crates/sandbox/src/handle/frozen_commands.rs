//! Freeze of all commands by the guest, available with every backend.
//!
//! Unlike in a sandbox that is frozen from outside, the guest still handles requests, so a client
//! can read files meanwhile. The freeze ends with its request, so a client that dies cannot leave
//! anything frozen.

use crate::fault;
use crate::handle::Sandbox;
use crate::handle::stream::Stream;
use crate::link::Incoming;
use glovebox_proto::{Channel, Code, Fault, Request};
use std::time::Duration;

/// Maximum time to wait for the freeze. The guest gives up sooner.
const HOLD_WAIT: Duration = Duration::from_secs(10);
/// Maximum time to wait for the end of the freeze.
const RELEASE_WAIT: Duration = Duration::from_secs(5);

/// Sandbox in which nothing but the guest runs. Dropping it, or the death of this process,
/// continues the commands.
#[derive(Debug)]
#[must_use = "everything goes on when this is dropped"]
pub struct FrozenCommands {
    request: Stream,
    is_released: bool,
}

impl FrozenCommands {
    /// Continues the commands and checks that none ran until now.
    ///
    /// # Errors
    /// `busy` if a process continued although it was stopped, so that data read meanwhile may be of
    /// different moments; the loss of the link.
    pub fn release(mut self) -> Result<(), Fault> {
        self.end_hold()
    }

    fn end_hold(&mut self) -> Result<(), Fault> {
        self.is_released = true;
        self.request.cancel()?;
        match self.request.recv_for(RELEASE_WAIT) {
            Some(Incoming::Reply(Err(fault))) if fault.code != Code::Cancelled => Err(fault),
            Some(_) => Ok(()),
            None => Err(Fault::failed(
                Code::TimedOut,
                "the guest did not let go of what it held in time",
            )),
        }
    }
}

impl Drop for FrozenCommands {
    fn drop(&mut self) {
        if !self.is_released {
            // Waits, because the caller may rely on running commands afterwards. A guest that is
            // gone holds none.
            let _ = self.end_hold();
        }
    }
}

impl Sandbox {
    /// Freezes everything that commands have started until the result is dropped. Requests that
    /// change files or start commands wait meanwhile, from every client including this process.
    ///
    /// # Errors
    /// `unsupported` if the guest cannot see the processes that it started; `busy` if they could
    /// not be frozen.
    pub fn freeze_commands(&self) -> Result<FrozenCommands, Fault> {
        let mut request = self.open(Request::Hold)?;
        match request.recv_for(HOLD_WAIT) {
            Some(Incoming::Data {
                channel: Channel::Content,
                ..
            }) => Ok(FrozenCommands {
                request,
                is_released: false,
            }),
            Some(Incoming::Reply(Err(fault))) => Err(fault),
            Some(_) => Err(fault::internal("a hold was answered in the wrong way")),
            None => Err(Fault::failed(
                Code::TimedOut,
                "the guest did not hold its processes in time",
            )),
        }
    }
}
