//! One call under way: its way to the sandbox. Whatever a tool waits for, it waits for here, so that
//! giving up a call gives up what it asked for, and nothing is waited for without end.

use crate::ToolSession;
use crate::policy::Ask;
use glovebox_proto::{Code, Fault, Reply, Request, WriteMode};
use glovebox_sandbox::{Incoming, Sandbox, Stream};
use serde_bytes::ByteBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a waiting call looks whether it was given up.
const LOOK: Duration = Duration::from_millis(50);
/// What an answer about files may take: disks can be slow. Longer than any deadline inside.
const PATIENCE: Duration = Duration::from_mins(5);

/// Client that a call comes from.
#[derive(Debug, Clone, Copy)]
pub struct CallClient<'a> {
    /// Asked what a rule asks about the call.
    pub asker: &'a dyn Ask,
    /// Set before a call is given up whose command is to end with it, although commands of this client go on otherwise.
    pub ends_command: &'a AtomicBool,
}

/// A call of one tool.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) session: &'a ToolSession,
    /// The client it comes from, asked also about what it calls in turn.
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

    /// Whether its command goes on when it is given up.
    pub(crate) fn keeps_command(&self) -> bool {
        let is_ended = |client: CallClient<'_>| client.ends_command.load(Ordering::Relaxed);
        self.session.waits().keeps_commands() && !self.client.is_some_and(is_ended)
    }

    /// The same call's business elsewhere: it is given up with this one.
    pub(crate) fn on<'b>(&self, session: &'b ToolSession) -> Call<'b>
    where
        'a: 'b,
    {
        Call::new(session, self.cancel).of_client(self.client)
    }

    /// What has to be found out even when the call is given up.
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

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The guest's own faults, `cancelled`, `timed-out`, and the loss of the sandbox.
    pub(crate) fn ask(&self, request: Request) -> Result<Reply, Fault> {
        self.ask_for(request, PATIENCE)
    }

    /// [`Self::ask`] with what the request itself may take.
    pub(crate) fn ask_for(&self, request: Request, inner: Duration) -> Result<Reply, Fault> {
        self.answer(self.sandbox().open(request)?, inner)
    }

    /// The answer to an open request, within `wait` and some more.
    fn answer(&self, mut stream: Stream, wait: Duration) -> Result<Reply, Fault> {
        loop {
            if let Incoming::Reply(reply) = self.next(&mut stream, wait)? {
                return reply;
            }
        }
    }

    /// What comes next from an open request, within `wait` and some more.
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

    /// The first bytes of a file, at most `max_bytes`, and its size.
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
                    // TRUST: the guest may send more than was asked for.
                    let room = (max_bytes as usize).saturating_sub(content.len());
                    content.extend_from_slice(&bytes[..bytes.len().min(room)]);
                }
                Incoming::Reply(Ok(Reply::Read { size, .. })) => return Ok((content, size)),
                Incoming::Reply(Ok(other)) => return Err(unexpected(&other)),
                Incoming::Reply(Err(fault)) => return Err(fault),
            }
        }
    }

    /// Writes a file, with its parents.
    pub(crate) fn write(
        &self,
        path: &str,
        mode: WriteMode,
        permissions: u32,
        content: &[u8],
    ) -> Result<Reply, Fault> {
        self.written(self.begin_write(path, mode, permissions, content)?)
    }

    /// Has a file written; there is time for something else before it is [`Self::written`].
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

    /// What came of [`Self::begin_write`].
    pub(crate) fn written(&self, stream: Stream) -> Result<Reply, Fault> {
        self.answer(stream, Duration::ZERO)
    }
}

/// The caller wants it no more.
pub(crate) fn given_up() -> Fault {
    Fault::failed(Code::Cancelled, "the call was cancelled")
}

/// An answer to another question.
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
