//! Host side of an exchange: requests it and waits for it.

use super::{Answer, MODE, Order};
use crate::launch::{Init, LaunchError, receive_answer};
use crate::plan::Plan;
use crate::sys::starter::StartedProgram;
use crate::{channel, program};
use rustix::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Error of an exchange.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// A process inside has a file open for writing. Nothing has changed.
    #[error("a file in the sandbox is open for writing")]
    Busy,
    /// The namespaces of the sandbox cannot be reached.
    #[error("the sandbox's mounts cannot be reached")]
    OutOfReach,
    /// A step failed.
    #[error(transparent)]
    Failed(#[from] LaunchError),
}

/// A process that is ready to make an exchange. It is started before it is needed, because loading
/// a program takes as long as deciding about the exchange.
#[derive(Debug)]
pub struct Exchange {
    process: StartedProgram,
    link: OwnedFd,
    started: Instant,
}

impl Exchange {
    /// Starts the guest program at `program`. No process of a sandbox may be able to write to that
    /// file.
    ///
    /// # Errors
    /// [`LaunchError::Spawn`].
    pub fn spawn(program: &Path) -> Result<Self, LaunchError> {
        let (process, link) = program::start(program, &[MODE]).map_err(LaunchError::Spawn)?;
        Ok(Self {
            process,
            link,
            started: Instant::now(),
        })
    }

    /// Makes the overlays of `plan` in the sandbox of `init` permanently read-only. Afterwards
    /// their writable layers may be moved, and new ones made at the paths of `plan`.
    ///
    /// # Errors
    /// [`ExchangeError`]. Unless it is `Busy` or `OutOfReach`, the sandbox must be ended.
    pub fn close(
        self,
        init: &Init,
        plan: &Plan,
        deadline: Duration,
    ) -> Result<ClosedExchange, ExchangeError> {
        {
            let spaces = init.spaces();
            let spaces = spaces.as_ref().ok_or(ExchangeError::OutOfReach)?;
            let fds = [spaces.user.as_fd(), spaces.mount.as_fd()];
            match channel::send(&self.link, &Order::of(plan), &fds) {
                // The process has ended. Its earlier answer names the cause.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                sent => sent.map_err(LaunchError::Spawn)?,
            }
        }
        match self.answer(deadline)? {
            Answer::Closed => Ok(ClosedExchange(self)),
            Answer::Busy => Err(ExchangeError::Busy),
            Answer::Broken(broken) => Err(LaunchError::Step(broken).into()),
            Answer::Done => Err(LaunchError::Vanished.into()),
        }
    }

    fn answer(&self, deadline: Duration) -> Result<Answer, LaunchError> {
        receive_answer(&self.process, &self.link, self.started, deadline)
    }
}

/// An exchange whose first step is complete.
#[derive(Debug)]
#[must_use = "nothing inside can write until this is finished"]
pub struct ClosedExchange(Exchange);

impl ClosedExchange {
    /// Puts the new overlays in place. The caller drops the returned value when there is time: that
    /// waits for the end of the process.
    ///
    /// # Errors
    /// [`LaunchError`]; the sandbox must then be ended.
    pub fn finish(self, deadline: Duration) -> Result<Exchange, LaunchError> {
        channel::send(&self.0.link, &(), &[]).map_err(LaunchError::Malformed)?;
        match self.0.answer(deadline)? {
            Answer::Done => Ok(self.0),
            Answer::Broken(broken) => Err(LaunchError::Step(broken)),
            Answer::Closed | Answer::Busy => Err(LaunchError::Vanished),
        }
    }
}
