//! Stream of one open request, with data in, out or both ways.

use crate::handle::SandboxCore;
use crate::link::{Incoming, WaitFailure};
use glovebox_proto::{Code, Fault, Reply};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which a guest may send nothing after the deadline of a command has passed. It may be
/// frozen for a moment while a client reads the sandbox's files.
const SILENCE: Duration = Duration::from_secs(5);

/// An open request. Dropping it before its reply cancels it.
#[derive(Debug)]
pub struct Stream {
    open: Arc<OpenRequest>,
    answer: Option<Result<Reply, Fault>>,
    /// Time by which the guest should have replied. `None` if the request has no deadline.
    deadline: Option<Instant>,
}

/// Input side of a stream, for another thread. It does not keep the request open.
#[derive(Debug, Clone)]
pub struct Input {
    open: Arc<OpenRequest>,
}

/// Id of one request on one link.
#[derive(Debug)]
struct OpenRequest {
    core: Arc<SandboxCore>,
    id: u32,
}

impl Stream {
    pub(crate) fn new(core: Arc<SandboxCore>, id: u32, deadline: Option<Instant>) -> Self {
        Self {
            open: Arc::new(OpenRequest { core, id }),
            answer: None,
            deadline,
        }
    }

    /// Sends input. Blocks while there is no credit.
    ///
    /// # Errors
    /// `job-ended` if the request has been answered; `invalid-argument` if it takes no input; the
    /// loss of the link.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Fault> {
        self.open.send(bytes)
    }

    /// Ends the input. Has no effect after the first call or after the reply.
    pub fn finish_input(&self) -> Result<(), Fault> {
        self.open.finish()
    }

    /// Returns a handle for input from another thread.
    pub fn input(&self) -> Input {
        Input {
            open: Arc::clone(&self.open),
        }
    }

    /// Waits for the next event. Taking data gives the guest credit to send more. After the reply,
    /// every further call returns it again. For a command with a deadline, waits a little longer
    /// than that; if the guest then sends nothing, returns `timed-out` in place of the reply.
    pub fn recv(&mut self) -> Incoming {
        let patience = self.deadline.and_then(|deadline| {
            let latest = deadline.max(Instant::now());
            latest.checked_add(SILENCE)
        });
        if let Some(incoming) = self.recv_until(patience) {
            return incoming;
        }
        let fault = Fault::failed(
            Code::TimedOut,
            format!(
                "the deadline of the command has passed, and the guest does not answer: nothing came for {} s, \
                 and what the command started may still run",
                SILENCE.as_secs()
            ),
        );
        let fault = fault
            .remedy("`glovebox kill NAME` ends a named sandbox from outside; `run` ends its own");
        self.answer = Some(Err(fault.clone()));
        Incoming::Reply(Err(fault))
    }

    /// As [`Self::recv`], but returns `None` after `wait`.
    pub fn recv_for(&mut self, wait: Duration) -> Option<Incoming> {
        self.recv_until(Instant::now().checked_add(wait))
    }

    fn recv_until(&mut self, deadline: Option<Instant>) -> Option<Incoming> {
        if let Some(answer) = &self.answer {
            return Some(Incoming::Reply(answer.clone()));
        }
        let answer = match self.open.core.link.recv(self.open.id, deadline) {
            Ok(Incoming::Reply(reply)) => self.open.core.finish(reply),
            Ok(data) => return Some(data),
            Err(WaitFailure::TimedOut) => return None,
            Err(WaitFailure::Lost(fault)) => Err(self.open.core.explain(fault)),
        };
        self.answer = Some(answer.clone());
        Some(Incoming::Reply(answer))
    }

    /// Asks the guest to cancel the request. The reply still comes.
    pub fn cancel(&self) -> Result<(), Fault> {
        self.open.cancel()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.open.core.link.release(self.open.id);
    }
}

impl Input {
    /// Sends input; see [`Stream::send`].
    pub fn send(&self, bytes: &[u8]) -> Result<(), Fault> {
        self.open.send(bytes)
    }

    /// Ends the input; see [`Stream::finish_input`].
    pub fn finish(&self) -> Result<(), Fault> {
        self.open.finish()
    }

    /// Cancels the request; see [`Stream::cancel`].
    pub fn cancel(&self) -> Result<(), Fault> {
        self.open.cancel()
    }
}

impl OpenRequest {
    fn send(&self, bytes: &[u8]) -> Result<(), Fault> {
        self.core
            .link
            .send_input(self.id, bytes)
            .map_err(|fault| self.core.explain(fault))
    }

    fn finish(&self) -> Result<(), Fault> {
        self.core
            .link
            .finish_input(self.id)
            .map_err(|fault| self.core.explain(fault))
    }

    fn cancel(&self) -> Result<(), Fault> {
        self.core
            .link
            .cancel(self.id)
            .map_err(|fault| self.core.explain(fault))
    }
}
