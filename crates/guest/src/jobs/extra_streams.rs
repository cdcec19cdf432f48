//! Streams of a job besides the three standard ones: keys and screen of a terminal that no standard stream carries, and
//! descriptors from 3 on. Each is carried by a request of its own (`JobStream`), which may come later than the job's first bytes, and after
//! its end.

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

/// Bytes of output that are kept while its request takes none.
const BUFFER_BYTES: usize = 64 << 10;

/// The request that carries a stream.
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
    /// Where input is written to, until it is closed.
    input: Option<OwnedFd>,
    /// Input that is not written yet.
    queue: VecDeque<u8>,
    /// The end mark was received.
    is_closing: bool,
    /// Counts what is read of the input, where that is lent.
    lent: Option<LentInput>,
    /// Bytes of lent input that were read in all, once the stream is over.
    taken: u64,
    /// Where output is read from, until its end.
    output: Option<OwnedFd>,
    /// Something may be there to read.
    is_readable: bool,
    /// Bytes that are read after the command's end at most; `None` while it runs.
    drain: Option<usize>,
    /// Output that is not sent yet.
    unsent: VecDeque<u8>,
    carrier: Option<Carrier>,
    is_over: bool,
}

impl JobStream {
    /// A stream that nothing carries yet.
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

    /// Watches both directions. One that cannot be watched is served whenever the job is.
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

    /// The command has ended: what it wrote is read, and no more.
    pub(super) fn begin_drain(&mut self) {
        if self.drain.is_none() {
            self.drain = Some(DRAIN_BYTES);
            self.is_readable = true;
        }
    }

    /// Nothing of the stream is used any more, but for what is not sent yet.
    pub(super) fn close(&mut self) {
        self.is_over = true;
        if let Some(lent) = self.lent.take() {
            self.taken = lent.taken();
        }
        self.input = None;
        self.output = None;
    }

    /// Does as much as the kernel, credit and the link allow now.
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
                // Nothing will ever read it; the host is not to wait for room because of that.
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

    /// Tells that all of lent input was read, if it was.
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
            // A terminal says EIO when the last process has closed it.
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

    /// Answers the request when nothing more comes.
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
    /// The extra stream that a request carries.
    fn stream_of(&mut self, request: RequestId) -> Option<&mut JobStream> {
        let is_carried = |stream: &&mut JobStream| {
            let carrier = stream.carrier.as_ref();
            carrier.is_some_and(|carrier| carrier.request == request)
        };
        self.extras.iter_mut().find(is_carried)
    }
}

impl Jobs {
    /// Carries an extra stream of a job by a request.
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

    /// An extra stream may have something to read, or take more.
    pub(crate) fn extra_ready(&mut self, requests: &mut Requests, job: JobId, index: usize) {
        if let Some(known) = self.table.get_mut(&job)
            && let Some(stream) = known.extras.get_mut(index)
        {
            stream.is_readable = true;
            stream.advance(requests);
        }
    }

    /// Takes input from a request that carries an extra stream. Returns false if it carries none.
    ///
    /// # Errors
    /// The host sent more than it had room for.
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
        // A terminal has no end.
        stream.is_closing |= is_last && stream.name != ExtraStream::Terminal;
        stream.write_input(requests);
        Ok(true)
    }

    /// Takes room for output of an extra stream. Returns false if the request carries none.
    ///
    /// # Errors
    /// More than was sent, or for a channel that it does not have.
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

    /// The request that carries an extra stream is given up: it is carried by none. A descriptor is closed, so that a
    /// command that goes on writing learns that nothing reads.
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
