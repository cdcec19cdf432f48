//! Requests that the host makes for a call: they are sent as frames, and responses arrive on
//! standard input.

use super::output::Output;
use glovebox_js::tool_call::{CallMessage, FrameDecoder};
use glovebox_js::tool_fetch::{FetchCall, FetchGrant, FetchReply, MAX_REPLY_BYTES, RedirectMode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Requests of one call.
pub(super) struct Fetches {
    output: Output,
    grant: Option<FetchGrant>,
    begun: Cell<u32>,
    sent_bytes: Cell<u64>,
    open: RefCell<BTreeSet<u32>>,
    frames: RefCell<FrameDecoder>,
}

/// Request as the tool has made it.
pub(super) struct ToolRequest {
    pub(super) method: String,
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    /// Body in base64.
    pub(super) body: String,
    pub(super) redirect: RedirectMode,
}

impl Fetches {
    pub(super) fn new(output: &Output, grant: Option<FetchGrant>) -> Self {
        Self {
            output: output.clone(),
            grant,
            begun: Cell::new(0),
            sent_bytes: Cell::new(0),
            open: RefCell::default(),
            frames: RefCell::new(FrameDecoder::new(MAX_REPLY_BYTES)),
        }
    }

    pub(super) const fn is_granted(&self) -> bool {
        self.grant.is_some()
    }

    /// Sends a request to the host and returns its number, or the reason for which it may not be
    /// made.
    pub(super) fn begin(&self, wanted: ToolRequest) -> Result<u32, String> {
        let Some(grant) = self.grant else {
            return Err("no host is granted".to_owned());
        };
        if self.begun.get() >= grant.requests {
            return Err(format!(
                "one call makes at most {} requests",
                grant.requests
            ));
        }
        let bytes = self
            .sent_bytes
            .get()
            .saturating_add(wanted.body.len() as u64 / 4 * 3);
        if bytes > grant.sent_bytes {
            return Err(format!(
                "the bodies of the requests of one call have at most {} bytes together",
                grant.sent_bytes
            ));
        }
        self.sent_bytes.set(bytes);
        let id = self.begun.get() + 1;
        self.begun.set(id);
        self.open.borrow_mut().insert(id);
        self.output.send(&CallMessage::Fetch(FetchCall {
            id,
            method: wanted.method,
            url: wanted.url,
            headers: wanted.headers,
            body: wanted.body,
            redirect: wanted.redirect,
        }));
        Ok(id)
    }

    /// Aborts a request if it is pending.
    pub(super) fn abort(&self, id: u32) {
        if self.open.borrow_mut().remove(&id) {
            self.output.send(&CallMessage::FetchAbort { id });
        }
    }

    /// Returns true if a response is pending.
    pub(super) fn is_open(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    /// Waits for the response to a pending request. `None` if there is none before `until`.
    pub(super) fn wait(&self, until: Instant) -> Option<FetchReply> {
        loop {
            if let Some(reply) = self.next_reply() {
                // The response to an aborted request is dropped.
                if self.open.borrow_mut().remove(&reply.id) {
                    return Some(reply);
                }
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if !is_readable(left) {
                return None;
            }
            let mut piece = vec![0; PIECE_BYTES];
            match read(rustix::stdio::stdin(), &mut piece) {
                Ok(count) if count > 0 => self.frames.borrow_mut().push(&piece[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // Without a host the result of the call cannot be reported.
                _ => std::process::exit(1),
            }
        }
    }

    fn next_reply(&self) -> Option<FetchReply> {
        let frame = self.frames.borrow_mut().next_frame();
        let reply = frame.map(|frame| frame.map(|frame| serde_json::from_slice(&frame)));
        match reply {
            Ok(None) => None,
            Ok(Some(Ok(reply))) => Some(reply),
            // A valid host does not send such frames.
            Ok(Some(Err(_))) | Err(_) => std::process::exit(1),
        }
    }
}

/// Returns true if standard input becomes readable within `left`.
fn is_readable(left: Duration) -> bool {
    let stdin = rustix::stdio::stdin();
    let mut asked = [PollFd::new(&stdin, PollFlags::IN)];
    let left = Timespec::try_from(left).ok();
    // After an interruption the caller polls again; its clock decides about the end.
    poll(&mut asked, left.as_ref()).is_ok_and(|ready| ready > 0)
}
