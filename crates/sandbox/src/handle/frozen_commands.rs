//! Holding what commands have started still, from inside: with every backend, for the guest does it.
//!
//! Unlike a sandbox that is frozen from outside, its guest answers on, so this is for whoever has to ask
//! it about files meanwhile. It ends with the request: whoever asked for it cannot leave anything held.

use crate::fault;
use crate::handle::Sandbox;
use crate::handle::stream::Stream;
use crate::link::Incoming;
use glovebox_proto::{Channel, Code, Fault, Request};
use std::time::Duration;

/// The guest gives up sooner.
const HOLD_WAIT: Duration = Duration::from_secs(10);
/// How long letting go may take.
const RELEASE_WAIT: Duration = Duration::from_secs(5);

/// A sandbox in which nothing moves but the guest. Dropping it lets everything go on; so does the death
/// of this process.
#[derive(Debug)]
#[must_use = "everything goes on when this is dropped"]
pub struct FrozenCommands {
    request: Stream,
    is_released: bool,
}

impl FrozenCommands {
    /// Lets everything go on, and says whether it stood still until now.
    ///
    /// # Errors
    /// `busy` when something went on although it was stopped, so that what was read meanwhile is of different
    /// moments; the loss of the link.
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
            // Who comes after this may rely on it; a guest that is gone holds nothing.
            let _ = self.end_hold();
        }
    }
}

impl Sandbox {
    /// Holds everything that commands have started still until the result is dropped. What would change
    /// files or start commands waits meanwhile, whoever asks for it, and this process too.
    ///
    /// # Errors
    /// `unsupported` where the guest cannot see what it has started, `busy` when that could not be held.
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
