//! Call in progress, and its requests to the sandbox. Every wait of a tool goes through this
//! module, so that each ends when the call is cancelled, and none is without a deadline.

use crate::ToolSession;
use crate::policy::Ask;
use glovebox_proto::{Code, Fault, Reply, Request, WriteMode};
use glovebox_sandbox::{Incoming, Sandbox, Stream};
use serde_bytes::ByteBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval at which a waiting call checks for its cancellation.
const LOOK: Duration = Duration::from_millis(50);
/// Time for a reply of the guest, beyond the time that the request itself may take. Slow disks need
/// minutes. Longer than any deadline inside the guest.
const PATIENCE: Duration = Duration::from_mins(5);

/// Client that a call comes from.
#[derive(Debug, Clone, Copy)]
pub struct CallClient<'a> {
    /// Answers the questions of rules about the call.
    pub asker: &'a dyn Ask,
    /// Set by the client before it cancels a call whose command must end too, although the wait
    /// policy keeps commands of cancelled calls.
    pub ends_command: &'a AtomicBool,
}

/// Call of a tool.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) session: &'a ToolSession,
    /// Client that made the call. It is also asked about the calls that this one makes in turn.
    pub(crate) client: Option<CallClient<'a>>,
    cancel: &'a AtomicBool,
}

impl<'a> Call<'a> {
    pub(crate) fn new(session: &'a ToolSession, cancel: &'a AtomicBool) -> Self {
        Self {
            session,
            client: None,
            cancel,
        }
    }

    pub(crate) fn of_client(mut self, client: Option<CallClient<'a>>) -> Self {
        self.client = client;
        self
    }

    /// Returns true if the command goes on after the call was cancelled.
    pub(crate) fn keeps_command(&self) -> bool {
        let is_ended = |client: CallClient<'_>| client.ends_command.load(Ordering::Relaxed);
        self.session.waits().keeps_commands() && !self.client.is_some_and(is_ended)
    }

    /// Returns a call in another session that is cancelled together with this one.
    pub(crate) fn on<'b>(&self, session: &'b ToolSession) -> Call<'b>
    where
        'a: 'b,
    {
        Call::new(session, self.cancel).of_client(self.client)
    }

    /// Returns a call that cannot be cancelled, for requests that must be completed.
    pub(crate) fn to_the_end(&self) -> Call<'a> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Call {
            cancel: &NEVER,
            ..*self
        }
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        self.session.sandbox()
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// Faults of the guest, `cancelled`, `timed-out`, and the loss of the sandbox.
    pub(crate) fn ask(&self, request: Request) -> Result<Reply, Fault> {
        self.ask_for(request, PATIENCE)
    }

    /// Same as [`Self::ask`], for a request that may itself take `inner`.
    pub(crate) fn ask_for(&self, request: Request, inner: Duration) -> Result<Reply, Fault> {
        self.answer(self.sandbox().open(request)?, inner)
    }

    /// Waits for the reply to an open request, for `wait` and [`PATIENCE`] at most.
    fn answer(&self, mut stream: Stream, wait: Duration) -> Result<Reply, Fault> {
        loop {
            if let Incoming::Reply(reply) = self.next(&mut stream, wait)? {
                return reply;
            }
        }
    }

    /// Waits for the next item of an open request, for `wait` and [`PATIENCE`] at most.
    ///
    /// # Errors
    /// `cancelled`, and `timed-out` if the guest sends nothing in that time.
    pub(crate) fn next(&self, stream: &mut Stream, wait: Duration) -> Result<Incoming, Fault> {
        let until = Instant::now() + wait + PATIENCE;
        loop {
            if let Some(incoming) = stream.recv_for(LOOK) {
                return Ok(incoming);
            }
            if self.is_given_up() {
                return Err(given_up());
            }
            if Instant::now() >= until {
                let fault = Fault::failed(Code::TimedOut, "the sandbox did not answer in time");
                return Err(fault.remedy(
                    "try again; the user sees whether it still lives with `glovebox list`",
                ));
            }
        }
    }

    /// Reads the first `max_bytes` bytes of a file. Returns them with the size of the file.
    pub(crate) fn read(&self, path: &str, max_bytes: u64) -> Result<(Vec<u8>, u64), Fault> {
        let mut stream = self.sandbox().open(Request::FileRead {
            path: ByteBuf::from(path.as_bytes()),
            offset: 0,
            max_bytes: Some(max_bytes),
        })?;
        let mut content = Vec::new();
        loop {
            match self.next(&mut stream, Duration::ZERO)? {
                Incoming::Data { bytes, .. } => {
                    // TRUST: the guest may send more than was requested.
                    let room = (max_bytes as usize).saturating_sub(content.len());
                    content.extend_from_slice(&bytes[..bytes.len().min(room)]);
                }
                Incoming::Reply(Ok(Reply::Read { size, .. })) => return Ok((content, size)),
                Incoming::Reply(Ok(other)) => return Err(unexpected(&other)),
                Incoming::Reply(Err(fault)) => return Err(fault),
            }
        }
    }

    /// Writes a file and creates its missing parent directories.
    pub(crate) fn write(
        &self,
        path: &str,
        mode: WriteMode,
        permissions: u32,
        content: &[u8],
    ) -> Result<Reply, Fault> {
        self.written(self.begin_write(path, mode, permissions, content)?)
    }

    /// Sends a file to be written, without waiting for the reply: [`Self::written`] takes it.
    pub(crate) fn begin_write(
        &self,
        path: &str,
        mode: WriteMode,
        permissions: u32,
        content: &[u8],
    ) -> Result<Stream, Fault> {
        self.sandbox()
            .send_file(path.as_bytes(), mode, permissions, content)
    }

    /// Waits for the reply to [`Self::begin_write`].
    pub(crate) fn written(&self, stream: Stream) -> Result<Reply, Fault> {
        self.answer(stream, Duration::ZERO)
    }
}

/// Fault of a call that its caller cancelled.
pub(crate) fn given_up() -> Fault {
    Fault::failed(Code::Cancelled, "the call was cancelled")
}

/// Fault for a reply of the wrong type.
pub(crate) fn unexpected(reply: &Reply) -> Fault {
    let debug = format!("{reply:?}");
    let word = debug
        .split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default();
    Fault::lost(
        Code::Protocol,
        format!("the guest answered something else: {word}"),
    )
}
