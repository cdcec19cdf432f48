//! Streams of a job besides the three standard ones: input and output of a terminal that no
//! standard stream carries, and descriptors from 3 on. Each is carried by a request of its own
//! (`JobStream`), which may arrive after the job's first bytes and even after its end.

use super::job::{DRAIN_BYTES, Job, LentInput};
use super::{Jobs, no_such_job};
use crate::poll::{Poll, Token};
use crate::requests::{PendingRequest, Requests};
use glovebox_proto::{
    Channel, Code, EVENT_BYTES, Event, ExtraStream, Fault, JobId, RecvWindow, Reply, RequestId,
    SendWindow, WireError,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::VecDeque;

/// Bytes of output buffered while the carrying request accepts none.
const BUFFER_BYTES: usize = 64 << 10;

/// Request that carries a stream.
#[derive(Debug)]
struct Carrier {
    request: RequestId,
    received: RecvWindow,
    sent: SendWindow,
    events: SendWindow,
}

/// An extra stream.
#[derive(Debug)]
pub(crate) struct JobStream {
    name: ExtraStream,
    /// Descriptor to write input to; `None` once closed.
    input: Option<OwnedFd>,
    /// Input that is not written yet.
    queue: VecDeque<u8>,
    /// True if the end mark was received.
    is_closing: bool,
    /// Counter of the input that the command has read, for lent input.
    lent: Option<LentInput>,
    /// Total bytes of lent input read; set when the stream is over.
    taken: u64,
    /// Descriptor to read output from; `None` after its end.
    output: Option<OwnedFd>,
    /// True if a read may find output.
    is_readable: bool,
    /// Bytes still to be read after the command's end at most; `None` while it runs.
    drain: Option<usize>,
    /// Output that is not sent yet.
    unsent: VecDeque<u8>,
    carrier: Option<Carrier>,
    is_over: bool,
}

impl JobStream {
    /// Creates a stream without a carrier.
    pub(super) const fn new(
        name: ExtraStream,
        input: Option<OwnedFd>,
        lent: Option<LentInput>,
        output: Option<OwnedFd>,
    ) -> Self {
        Self {
            name,
            input,
            queue: VecDeque::new(),
            is_closing: false,
            lent,
            taken: 0,
            output,
            is_readable: true,
            drain: None,
            unsent: VecDeque::new(),
            carrier: None,
            is_over: false,
        }
    }

    /// Watches both directions. A descriptor that cannot be watched is served whenever the job is.
    pub(super) fn watch(&self, poll: &Poll, id: JobId, index: usize) {
        if let Some(input) = &self.input {
            let _ = poll.watch_stream(input, Token::ExtraInput(id, index));
        }
        if let Some(output) = &self.output {
            let _ = poll.watch_stream(output, Token::ExtraOutput(id, index));
        }
    }

    /// True if everything that the command wrote has been read.
    pub(super) fn is_drained(&self) -> bool {
        self.output.is_none() || !self.is_readable || self.drain == Some(0)
    }

    /// Handles the end of the command: output up to `DRAIN_BYTES` is still read.
    pub(super) fn begin_drain(&mut self) {
        if self.drain.is_none() {
            self.drain = Some(DRAIN_BYTES);
            self.is_readable = true;
        }
    }

    /// Closes the descriptors. Output that is not sent yet is kept.
    pub(super) fn close(&mut self) {
        self.is_over = true;
        if let Some(lent) = self.lent.take() {
            self.taken = lent.taken();
        }
        self.input = None;
        self.output = None;
    }

    /// Writes, reads and sends as much as the kernel, credit and the link allow now.
    pub(super) fn advance(&mut self, requests: &mut Requests) {
        self.write_input(requests);
        loop {
            self.send_output(requests);
            if !self.read_output() {
                break;
            }
        }
        self.answer(requests);
    }

    fn write_input(&mut self, requests: &mut Requests) {
        let mut is_broken = self.input.is_none();
        let mut consumed = 0;
        while !self.queue.is_empty() {
            let count = match &self.input {
                Some(input) if !is_broken => {
                    match rustix::io::write(input, self.queue.as_slices().0) {
                        Ok(count) => count,
                        Err(Errno::INTR) => continue,
                        Err(Errno::AGAIN) => break,
                        Err(_) => {
                            is_broken = true;
                            continue;
                        }
                    }
                }
                // Nothing will read this input. Dropping it returns its credit, so that the host
                // does not wait.
                _ => self.queue.len(),
            };
            self.queue.drain(..count);
            consumed += count;
            if let Some(lent) = self.lent.as_mut().filter(|_| !is_broken) {
                lent.written += count as u64;
            }
        }
        if let Some(carrier) = &mut self.carrier {
            let credit = carrier.received.consumed(consumed as u32);
            if let Some(credit) = credit.filter(|_| consumed > 0) {
                requests
                    .link
                    .credit(carrier.request, Channel::Input, credit);
            }
        }
        if is_broken || (self.is_closing && self.queue.is_empty()) {
            self.input = None;
        }
        if self.queue.is_empty() {
            self.tell_taken(requests);
        }
    }

    /// Sends an event if the command has read all lent input.
    fn tell_taken(&mut self, requests: &mut Requests) {
        if let (Some(lent), Some(carrier)) = (&mut self.lent, &mut self.carrier)
            && let Some(taken) = lent.news()
            && carrier.events.room() >= EVENT_BYTES as u32
        {
            lent.told = taken;
            carrier.events.spend(EVENT_BYTES as u32);
            let event = Event::InputTaken(taken).encode();
            requests
                .link
                .data(carrier.request, Channel::Content, &event);
        }
    }

    /// Reads once, if there is room. Returns true if there may be more.
    fn read_output(&mut self) -> bool {
        let Some(output) = &self.output else {
            return false;
        };
        let room = self
            .drain
            .unwrap_or_else(|| BUFFER_BYTES.saturating_sub(self.unsent.len()));
        if !self.is_readable || room == 0 {
            return false;
        }
        let mut buffer = [0; 16 << 10];
        let room = room.min(buffer.len());
        match rustix::io::read(output, &mut buffer[..room]) {
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => {
                self.is_readable = false;
                false
            }
            // A terminal returns EIO after the last process has closed it.
            Ok(0) | Err(_) => {
                self.output = None;
                false
            }
            Ok(count) => {
                self.unsent.extend(&buffer[..count]);
                if let Some(drain) = &mut self.drain {
                    *drain -= count;
                }
                true
            }
        }
    }

    fn send_output(&mut self, requests: &mut Requests) {
        let Some(carrier) = &mut self.carrier else {
            return;
        };
        while !self.unsent.is_empty() && !requests.link.is_congested() {
            let bytes = self.unsent.as_slices().0;
            let count = bytes.len().min(carrier.sent.room() as usize);
            if count == 0 {
                return;
            }
            requests
                .link
                .data(carrier.request, Channel::Stdout, &bytes[..count]);
            carrier.sent.spend(count as u32);
            self.unsent.drain(..count);
        }
    }

    /// Answers the carrying request when nothing more will be sent.
    fn answer(&mut self, requests: &mut Requests) {
        if self.is_over
            && self.unsent.is_empty()
            && let Some(carrier) = self.carrier.take()
        {
            let ended = Reply::StreamEnded { taken: self.taken };
            requests.answer(carrier.request, &Ok(ended));
        }
    }
}

impl Job {
    /// Returns the extra stream that a request carries.
    fn stream_of(&mut self, request: RequestId) -> Option<&mut JobStream> {
        let is_carried = |stream: &&mut JobStream| {
            let carrier = stream.carrier.as_ref();
            carrier.is_some_and(|carrier| carrier.request == request)
        };
        self.extras.iter_mut().find(is_carried)
    }
}

impl Jobs {
    /// Lets a request carry an extra stream of a job.
    ///
    /// # Errors
    /// `JobNotFound`; `InvalidArgument` if there is no such stream or another request carries it.
    pub(crate) fn carry_stream(
        &mut self,
        requests: &mut Requests,
        request: RequestId,
        job: JobId,
        name: ExtraStream,
    ) -> Result<(), Fault> {
        let known = self.table.get_mut(&job).ok_or_else(|| no_such_job(job))?;
        let stream = known.extras.iter_mut().find(|stream| stream.name == name);
        let stream = stream.filter(|stream| stream.carrier.is_none());
        let Some(stream) = stream else {
            let message = format!("job {job} has no such stream, or it is carried already");
            return Err(Fault::failed(Code::InvalidArgument, message));
        };
        stream.carrier = Some(Carrier {
            request,
            received: RecvWindow::new(),
            sent: SendWindow::new(),
            events: SendWindow::new(),
        });
        requests.open.insert(request, PendingRequest::Job(job));
        stream.advance(requests);
        Ok(())
    }

    /// Handles readiness of an extra stream, in either direction.
    pub(crate) fn extra_ready(&mut self, requests: &mut Requests, job: JobId, index: usize) {
        if let Some(known) = self.table.get_mut(&job)
            && let Some(stream) = known.extras.get_mut(index)
        {
            stream.is_readable = true;
            stream.advance(requests);
        }
    }

    /// Takes input from a request that carries an extra stream. Returns false if the request
    /// carries none.
    ///
    /// # Errors
    /// The host sent more than its window.
    pub(super) fn feed_extra(
        known: &mut Job,
        requests: &mut Requests,
        request: RequestId,
        bytes: &[u8],
        is_last: bool,
    ) -> Result<bool, WireError> {
        let Some(stream) = known.stream_of(request) else {
            return Ok(false);
        };
        if let Some(carrier) = &mut stream.carrier {
            carrier.received.arrived(bytes.len() as u32)?;
        }
        stream.queue.extend(bytes);
        // Input of a terminal has no end.
        stream.is_closing |= is_last && stream.name != ExtraStream::Terminal;
        stream.write_input(requests);
        Ok(true)
    }

    /// Takes credit for output of an extra stream. Returns false if the request carries none.
    ///
    /// # Errors
    /// The credit exceeds what was sent, or the stream does not have the channel.
    pub(super) fn credit_extra(
        known: &mut Job,
        requests: &mut Requests,
        request: RequestId,
        channel: Channel,
        bytes: u32,
    ) -> Result<bool, WireError> {
        let Some(stream) = known.stream_of(request) else {
            return Ok(false);
        };
        if let Some(carrier) = &mut stream.carrier {
            match channel {
                Channel::Stdout => carrier.sent.credit(bytes)?,
                Channel::Content => carrier.events.credit(bytes)?,
                Channel::Input | Channel::Stderr => {
                    return Err(WireError::BadHeader(
                        "credit for a channel that a stream does not have",
                    ));
                }
            }
        }
        stream.advance(requests);
        Ok(true)
    }

    /// Detaches a cancelled request from its extra stream. A descriptor is closed, so that a
    /// command that keeps writing gets an error.
    pub(super) fn drop_carrier(known: &mut Job, request: RequestId) {
        if let Some(stream) = known.stream_of(request) {
            stream.carrier = None;
            if stream.name != ExtraStream::Terminal {
                stream.unsent.clear();
                stream.close();
            }
        }
    }
}
