//! State of an open request on the host's side: data received, room to send, and the protocol rules
//! that the guest must follow.

use super::incoming::Incoming;
use glovebox_proto::{Channel, Fault, RecvWindow, Reply, Request, SendWindow, WireError};
use std::collections::VecDeque;
use std::time::Instant;

/// Maximum size of a piece of data. Smaller pieces of one channel are joined, so that a guest that
/// sends single bytes uses no more memory than one that sends whole frames.
const PIECE_BYTES: usize = 64 << 10;

/// Streams of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamSet {
    /// True if the host sends data.
    pub(crate) has_input: bool,
    /// True if the guest sends data on [`Channel::Stdout`] and [`Channel::Stderr`].
    pub(crate) has_output: bool,
    /// True if the guest sends data on [`Channel::Content`].
    pub(crate) has_content: bool,
}

impl StreamSet {
    /// Returns the streams of a request.
    pub(crate) fn of(request: &Request) -> Self {
        let none = Self {
            has_input: false,
            has_output: false,
            has_content: false,
        };
        match request {
            Request::Exec(exec) if exec.detach => none,
            Request::Exec(exec) => Self {
                has_input: exec.stdin.is_open() || exec.pty.is_some(),
                has_output: exec.stream_output,
                has_content: exec.sends_events,
            },
            Request::JobAttach { sends_events, .. } => Self {
                has_input: true,
                has_output: true,
                has_content: *sends_events,
            },
            Request::JobStream { .. } => Self {
                has_input: true,
                has_output: true,
                has_content: true,
            },
            Request::FileRead { .. } | Request::TreeScan { .. } | Request::Hold => Self {
                has_content: true,
                ..none
            },
            Request::FileWrite { .. } => Self {
                has_input: true,
                ..none
            },
            Request::TreePut { .. } | Request::TreeGet { .. } | Request::Connect { .. } => Self {
                has_input: true,
                has_content: true,
                ..none
            },
            _ => none,
        }
    }

    /// Returns true if the guest may send data on a channel.
    pub(crate) fn allows(self, channel: Channel) -> bool {
        match channel {
            Channel::Input => false,
            Channel::Stdout | Channel::Stderr => self.has_output,
            Channel::Content => self.has_content,
        }
    }
}

/// State of one stream from the guest.
#[derive(Debug, Clone, Copy, Default)]
struct InboundStream {
    window: RecvWindow,
    has_ended: bool,
}

/// Buffer that collects all content of a request.
#[derive(Debug)]
struct ContentBuffer {
    bytes: Vec<u8>,
    max_bytes: u64,
}

/// An open request.
#[derive(Debug)]
pub(crate) struct Exchange {
    flow: StreamSet,
    gathering: Option<ContentBuffer>,
    events: VecDeque<Incoming>,
    inbound: [InboundStream; 3],
    outbound: SendWindow,
    has_finished_input: bool,
    /// Time until which the thread that waits for the reply polls instead of sleeping.
    pub(crate) spin_deadline: Option<Instant>,
    is_answered: bool,
    /// True if no thread waits for the request. Data that still arrives is discarded until the
    /// reply.
    pub(crate) is_abandoned: bool,
}

fn slot(channel: Channel) -> usize {
    match channel {
        Channel::Input | Channel::Stdout => 0,
        Channel::Stderr => 1,
        Channel::Content => 2,
    }
}

fn violation(what: &str) -> WireError {
    WireError::BadPayload {
        what: "frame",
        detail: what.to_owned(),
    }
}

impl Exchange {
    pub(crate) fn new(flow: StreamSet) -> Self {
        Self {
            flow,
            gathering: None,
            events: VecDeque::new(),
            inbound: [InboundStream::default(); 3],
            outbound: SendWindow::new(),
            has_finished_input: !flow.has_input,
            spin_deadline: None,
            is_answered: false,
            is_abandoned: false,
        }
    }

    /// Collects all content in a buffer instead of delivering it. More than `max_bytes` is a
    /// violation of the protocol.
    pub(crate) fn gather(&mut self, max_bytes: u64) {
        let bytes = Vec::new();
        self.gathering = Some(ContentBuffer { bytes, max_bytes });
    }

    /// Takes the collected content.
    pub(crate) fn gathered(&mut self) -> Vec<u8> {
        let gathering = self.gathering.take();
        gathering.map_or_else(Vec::new, |gathering| gathering.bytes)
    }

    /// Handles stream bytes. Returns the credit to send at once, for a request that is abandoned or
    /// collects its content.
    pub(crate) fn data(
        &mut self,
        channel: Channel,
        bytes: &[u8],
        is_last: bool,
    ) -> Result<Option<u32>, WireError> {
        // TRUST: the guest chooses channel, size and order. Only the channels of the request are
        // accepted, within their windows and before their ends. Empty frames are ignored.
        if !self.flow.allows(channel) {
            return Err(violation("data on a channel the request does not have"));
        }
        let inbound = &mut self.inbound[slot(channel)];
        if inbound.has_ended || self.is_answered {
            return Err(violation("data after its end"));
        }
        inbound.window.arrived(bytes.len() as u32)?;
        inbound.has_ended = is_last;
        if self.is_abandoned {
            return Ok(inbound.window.consumed(bytes.len() as u32));
        }
        if let (Some(gathering), Channel::Content) = (&mut self.gathering, channel) {
            if gathering.bytes.len() as u64 + bytes.len() as u64 > gathering.max_bytes {
                return Err(violation("more content than was asked for"));
            }
            gathering.bytes.extend_from_slice(bytes);
            return Ok(inbound.window.consumed(bytes.len() as u32));
        }
        if bytes.is_empty() && !is_last {
            return Ok(None);
        }
        if let Some(Incoming::Data {
            channel: tail,
            bytes: piece,
            is_last: end,
        }) = self.events.back_mut()
            && *tail == channel
            && piece.len() + bytes.len() <= PIECE_BYTES
        {
            piece.extend_from_slice(bytes);
            *end = is_last;
        } else {
            self.events.push_back(Incoming::Data {
                channel,
                bytes: bytes.to_vec(),
                is_last,
            });
        }
        Ok(None)
    }

    /// Returns the buffer for `len` more bytes of a channel, if they are collected and allowed. The
    /// caller reads them into it and then calls [`Self::placed`]. With `None` the caller passes
    /// them to [`Self::data`], which reports a violation.
    pub(crate) fn place(&mut self, channel: Channel, len: u32) -> Option<&mut Vec<u8>> {
        // TRUST: checked against the caller's bound before any byte is stored.
        let is_expected = channel == Channel::Content
            && self.flow.allows(channel)
            && !self.inbound[slot(channel)].has_ended
            && !self.is_answered
            && !self.is_abandoned;
        let gathering = self.gathering.as_mut().filter(|_| is_expected)?;
        let fits = gathering.bytes.len() as u64 + u64::from(len) <= gathering.max_bytes;
        fits.then_some(&mut gathering.bytes)
    }

    /// Accounts for bytes that were read into the buffer of [`Self::place`]. Returns the credit to
    /// send at once.
    pub(crate) fn placed(
        &mut self,
        channel: Channel,
        count: u32,
        is_last: bool,
    ) -> Result<Option<u32>, WireError> {
        let inbound = &mut self.inbound[slot(channel)];
        inbound.window.arrived(count)?;
        inbound.has_ended = is_last;
        Ok(inbound.window.consumed(count))
    }

    /// Adds credit for input.
    pub(crate) fn credit(&mut self, channel: Channel, bytes: u32) -> Result<(), WireError> {
        if channel != Channel::Input || !self.flow.has_input {
            return Err(violation("credit for a channel the request does not have"));
        }
        self.outbound.credit(bytes)
    }

    /// Handles the reply.
    pub(crate) fn answer(&mut self, reply: Result<Reply, Fault>) -> Result<(), WireError> {
        if self.is_answered {
            return Err(violation("a second reply"));
        }
        self.is_answered = true;
        self.events.push_back(Incoming::Reply(reply));
        Ok(())
    }

    /// Returns true if the reply has arrived, whether or not it was taken.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Takes the next event, with the credit to send for it.
    pub(crate) fn take(&mut self) -> Option<(Incoming, Option<(Channel, u32)>)> {
        let event = self.events.pop_front()?;
        let credit = match &event {
            Incoming::Data {
                channel,
                bytes,
                is_last,
            } if !is_last && !self.is_answered => self.inbound[slot(*channel)]
                .window
                .consumed(bytes.len() as u32)
                .map(|credit| (*channel, credit)),
            _ => None,
        };
        Some((event, credit))
    }

    /// Reserves room for up to `wanted` bytes of input, as far as there is credit.
    pub(crate) fn spend(&mut self, wanted: u32) -> SendState {
        if self.is_answered {
            return SendState::Answered;
        }
        if self.has_finished_input {
            return SendState::Finished;
        }
        let count = wanted.min(self.outbound.room());
        self.outbound.spend(count);
        SendState::Room(count)
    }

    /// Ends the input. Returns false if it had ended before or the request has been answered.
    pub(crate) fn finish_input(&mut self) -> bool {
        !std::mem::replace(&mut self.has_finished_input, true) && !self.is_answered
    }
}

/// State of a request's input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    /// This many bytes were reserved. 0 means that the caller must wait for credit.
    Room(u32),
    /// The request has been answered.
    Answered,
    /// The input was ended, or the request has none.
    Finished,
}

#[cfg(test)]
impl Exchange {
    /// Returns the number of events that wait to be taken.
    pub(crate) fn pieces(&self) -> usize {
        self.events.len()
    }
}
