//! Holding what commands have started still, from inside: with every backend, for the guest does it.
//!
//! Unlike a sandbox that is frozen from outside, its guest answers on, so this is for whoever has to ask
//! it about files meanwhile. It ends with the request: whoever asked for it cannot leave anything held.

use crate::fault;
use crate::handle::Sandbox;
use crate::stream::{Incoming, Stream};
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
pub struct Held {
    request: Stream,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Who comes after this may rely on it; a guest that is gone holds nothing.
        if self.request.cancel().is_ok() {
            let _ = self.request.recv_for(RELEASE_WAIT);
        }
    }
}

impl Sandbox {
    /// Holds everything that commands have started still until the result is dropped. What would change
    /// files or start commands waits meanwhile, whoever asks for it, and this process too.
    ///
    /// # Errors
    /// `unsupported` where the guest cannot see what it has started, `busy` when that could not be held.
    pub fn hold(&self) -> Result<Held, Fault> {
        let mut request = self.open(Request::Hold)?;
        match request.recv_for(HOLD_WAIT) {
            Some(Incoming::Data {
                channel: Channel::Content,
                ..
            }) => Ok(Held { request }),
            Some(Incoming::Reply(Err(fault))) => Err(fault),
            Some(_) => Err(fault::internal("a hold was answered in the wrong way")),
            None => Err(Fault::failed(
                Code::TimedOut,
                "the guest did not hold its processes in time",
            )),
        }
    }
}
