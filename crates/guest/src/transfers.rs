//! Files on their way in and out, one bounded step at a time.
//!
//! A transfer is a state between steps; each step runs on a worker thread and brings the state
//! back. A host that gives no credit or sends no data therefore holds a descriptor here, and no
//! thread.

use crate::fault;
use crate::files::{self, Sink, Source, WriteSpec};
use crate::frame_writer::{FrameWriter, Sent};
use crate::link;
use crate::requests::PendingRequest;
use crate::serve::{Server, Token};
use crate::tree::Stepped;
use crate::tunnels::{Tunnel, Turn};
use crate::workers::Later;
use glovebox_proto::{Channel, Fault, RecvWindow, Reply, RequestId, SendWindow, WireError};
use rustix::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers kept for the next transfer.
const KEPT_BUFFERS: usize = 2;
/// Bytes whose copying costs less than another system call and another wake-up of the host.
const SMALL_BYTES: usize = 32 << 10;

/// What a worker brings back.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The frames of the answer, which ends the request.
    Answer(Vec<u8>),
    /// Part of the answer is out already, and the rest is queued.
    HalfAnswered,
    /// Part of a file, at the beginning of a buffer.
    Read(Source, Vec<u8>),
    /// The bytes in a buffer were written.
    Wrote(Sink, Vec<u8>),
    /// A step of a tree request.
    Tree(Box<Stepped>),
}

/// A few buffers for the next transfers, with anything in them: making one anew costs more than
/// filling it.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn all(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        // A panic ends the process, so a poisoned lock is never seen.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<u8> {
        self.all().pop().unwrap_or_default()
    }

    /// Keeps a buffer of moderate size.
    fn keep(&self, buffer: Vec<u8>) {
        let mut all = self.all();
        if all.len() < KEPT_BUFFERS && buffer.capacity() <= 2 * files::STEP_BYTES {
            all.push(buffer);
        }
    }
}

/// A file on its way out.
#[derive(Debug)]
pub(crate) struct Reading {
    /// `None` while a step runs.
    source: Option<Source>,
    window: SendWindow,
    is_cancelled: bool,
}

impl Reading {
    pub(crate) fn new(path: Vec<u8>, offset: u64, max_bytes: Option<u64>) -> Self {
        let source = Some(Source::new(path, offset, max_bytes));
        Self {
            source,
            window: SendWindow::new(),
            is_cancelled: false,
        }
    }

    pub(crate) fn credit(&mut self, bytes: u32) -> Result<(), WireError> {
        self.window.credit(bytes)
    }

    /// Returns whether the request can be answered at once.
    pub(crate) fn cancel(&mut self) -> bool {
        self.is_cancelled = true;
        self.source.is_some()
    }
}

/// Where a file being written stands.
#[derive(Debug)]
enum Stage {
    Wanted(WriteSpec),
    Open(Sink),
    /// A step runs.
    Busy,
}

/// A file on its way in.
#[derive(Debug)]
pub(crate) struct Writing {
    stage: Stage,
    window: RecvWindow,
    pending: Vec<u8>,
    is_complete: bool,
    is_cancelled: bool,
}

impl Writing {
    pub(crate) fn new(spec: WriteSpec) -> Self {
        Self {
            stage: Stage::Wanted(spec),
            window: RecvWindow::new(),
            pending: Vec::new(),
            is_complete: false,
            is_cancelled: false,
        }
    }

    /// Takes bytes from the host; the window bounds how many can pile up.
    pub(crate) fn arrived(&mut self, bytes: &[u8], is_last: bool) -> Result<(), WireError> {
        self.window.arrived(bytes.len() as u32)?;
        if self.is_complete {
            return Err(WireError::BadHeader("data after the end mark"));
        }
        self.pending.extend_from_slice(bytes);
        self.is_complete = is_last;
        Ok(())
    }

    /// Whether a step runs.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.stage, Stage::Busy)
    }

    /// Returns whether the request can be answered at once; dropping it then removes its traces.
    pub(crate) fn cancel(&mut self) -> bool {
        self.is_cancelled = true;
        !self.is_busy()
    }
}

impl Server {
    /// Starts the next step of a transfer, if there is one to do.
    pub(crate) fn advance_transfer(&mut self, id: RequestId) {
        if self.hold.is_on()
            && self
                .requests
                .get(&id)
                .is_some_and(PendingRequest::changes_files)
        {
            return;
        }
        let is_congested = self.link.is_congested();
        let result = match self.requests.get_mut(&id) {
            Some(PendingRequest::Read(reading)) => {
                let room = reading.window.room() as usize;
                if is_congested || room == 0 {
                    return;
                }
                let Some(source) = reading.source.take() else {
                    return;
                };
                let frame_writer = Arc::clone(self.link.frame_writer());
                let buffers = Arc::clone(&self.buffers);
                let step = move |_: &mut Later| {
                    let (source, buffer) = match files::read_step(source, room, buffers.take()) {
                        Ok(read) => read,
                        Err(fault) => return answer(&frame_writer, id, &[], &Err(fault)),
                    };
                    if !source.is_end || source.read > SMALL_BYTES {
                        return Some(Ok(Outcome::Read(source, buffer)));
                    }
                    // What is small and the last leaves together with the answer: the host wakes once.
                    let content = buffer.get(..source.read).unwrap_or_default();
                    let sent = answer(&frame_writer, id, content, &Ok(source.reply()));
                    buffers.keep(buffer);
                    sent
                };
                self.workers.submit(id, Box::new(step))
            }
            Some(PendingRequest::Write(writing)) => {
                let has_work = writing.is_complete || !writing.pending.is_empty();
                let stage = match std::mem::replace(&mut writing.stage, Stage::Busy) {
                    Stage::Open(sink) if !has_work => {
                        writing.stage = Stage::Open(sink);
                        return;
                    }
                    Stage::Busy => return,
                    stage => stage,
                };
                let mut fresh = self.buffers.take();
                fresh.clear();
                let bytes = std::mem::replace(&mut writing.pending, fresh);
                let is_complete = writing.is_complete;
                let frame_writer = Arc::clone(self.link.frame_writer());
                let step =
                    move |later: &mut Later| match write_step(stage, bytes, is_complete, later) {
                        Ok(Step::Wrote(sink, bytes)) => Some(Ok(Outcome::Wrote(sink, bytes))),
                        Ok(Step::Done(reply)) => answer(&frame_writer, id, &[], &Ok(reply)),
                        Err(fault) => answer(&frame_writer, id, &[], &Err(fault)),
                    };
                self.workers.submit(id, Box::new(step))
            }
            Some(PendingRequest::Tree(_)) => return self.advance_tree(id),
            Some(PendingRequest::Tunnel(_)) => return self.advance_tunnel(id),
            _ => return,
        };
        if let Err(fault) = result {
            self.answer(id, &Err(fault));
        }
    }

    /// Begins a connection to a server of the sandbox.
    ///
    /// # Errors
    /// As [`Tunnel::connect`].
    pub(crate) fn connect(&mut self, id: RequestId, port: u16) -> Result<(), Fault> {
        let tunnel = Tunnel::connect(port)?;
        self.watch_tunnel(id, tunnel.socket())?;
        self.requests
            .insert(id, PendingRequest::Tunnel(Box::new(tunnel)));
        Ok(())
    }

    fn watch_tunnel(&self, id: RequestId, socket: &OwnedFd) -> Result<(), Fault> {
        self.watch(socket, Token::Tunnel(id))
            .map_err(|errno| fault::system(errno, "cannot watch a connection"))
    }

    /// Something is new about a tunnel's socket.
    pub(crate) fn tunnel_ready(&mut self, id: RequestId) {
        let Some(PendingRequest::Tunnel(tunnel)) = self.requests.get_mut(&id) else {
            return;
        };
        let is_new = match tunnel.socket_changed() {
            Ok(is_new) => is_new,
            Err(fault) => return self.answer(id, &Err(fault)),
        };
        if is_new
            && let Some(PendingRequest::Tunnel(tunnel)) = self.requests.get(&id)
            && let Err(fault) = self.watch_tunnel(id, tunnel.socket())
        {
            return self.answer(id, &Err(fault));
        }
        self.advance_tunnel(id);
    }

    /// Goes on with a tunnel that may have been waiting for credit, room or data.
    fn advance_tunnel(&mut self, id: RequestId) {
        let Self {
            requests,
            link,
            scratch,
            ..
        } = self;
        let Some(PendingRequest::Tunnel(tunnel)) = requests.get_mut(&id) else {
            return;
        };
        match tunnel.advance(id, link, scratch) {
            Turn::Waits => {}
            Turn::More => self.ready_transfers.push(id),
            Turn::Over(ended) => {
                let answer = ended
                    .map(|()| Reply::Done)
                    .map_err(|errno| fault::system(errno, "the connection broke off"));
                self.answer(id, &answer);
            }
        }
    }

    /// Forgets the requests that workers have answered by themselves.
    pub(crate) fn forget_answered(&mut self) {
        for id in self.link.frame_writer().answered() {
            self.requests.remove(&id);
        }
    }

    /// Books what the workers brought back.
    pub(crate) fn take_results(&mut self) {
        while !self.link.is_congested() {
            let Some((id, result)) = self.workers.result() else {
                return;
            };
            match result {
                Ok(Outcome::Answer(frames)) => {
                    self.requests.remove(&id);
                    self.link.frame_writer().push(&[&frames]);
                }
                Ok(Outcome::HalfAnswered) => {}
                Ok(Outcome::Read(source, buffer)) => {
                    self.was_read(id, source, &buffer);
                    self.buffers.keep(buffer);
                }
                Ok(Outcome::Wrote(sink, buffer)) => {
                    self.was_written(id, sink, buffer.len());
                    self.buffers.keep(buffer);
                }
                Ok(Outcome::Tree(stepped)) => self.tree_stepped(id, *stepped),
                Err(fault) => self.answer(id, &Err(fault)),
            }
        }
    }

    fn was_read(&mut self, id: RequestId, source: Source, buffer: &[u8]) {
        let Some(PendingRequest::Read(reading)) = self.requests.get_mut(&id) else {
            return;
        };
        if reading.is_cancelled {
            return self.answer(id, &Err(fault::cancelled()));
        }
        let bytes = buffer.get(..source.read).unwrap_or_default();
        if !bytes.is_empty() {
            reading.window.spend(bytes.len() as u32);
            self.link.data_now(id, Channel::Content, bytes);
        }
        if source.is_end {
            return self.answer(id, &Ok(source.reply()));
        }
        reading.source = Some(source);
        self.ready_transfers.push(id);
    }

    fn was_written(&mut self, id: RequestId, sink: Sink, count: usize) {
        let Some(PendingRequest::Write(writing)) = self.requests.get_mut(&id) else {
            return;
        };
        if writing.is_cancelled {
            drop(sink);
            return self.answer(id, &Err(fault::cancelled()));
        }
        writing.stage = Stage::Open(sink);
        if let Some(credit) = writing.window.consumed(count as u32) {
            self.link.credit(id, Channel::Input, credit);
        }
        self.ready_transfers.push(id);
    }
}

/// What a step of writing comes to.
enum Step {
    /// The bytes in the buffer were written; more may come.
    Wrote(Sink, Vec<u8>),
    Done(Reply),
}

/// Opens, writes, and puts in place, as far as the bytes go.
fn write_step(
    stage: Stage,
    bytes: Vec<u8>,
    is_complete: bool,
    later: &mut Later,
) -> Result<Step, Fault> {
    let mut sink = match stage {
        Stage::Wanted(spec) => Sink::open(spec)?,
        Stage::Open(sink) => sink,
        Stage::Busy => return Err(fault::cancelled()),
    };
    sink.write(&bytes)?;
    if is_complete {
        return sink.commit(later).map(Step::Done);
    }
    Ok(Step::Wrote(sink, bytes))
}

/// Ends a request from a worker, with the last of its content, or brings that back for the loop to send.
pub(crate) fn answer(
    frame_writer: &FrameWriter,
    id: RequestId,
    content: &[u8],
    answer: &Result<Reply, Fault>,
) -> Option<Result<Outcome, Fault>> {
    let frames = link::answer_frames(id, content, answer);
    match frame_writer.answer(id, &frames) {
        Sent::All => None,
        Sent::Part => Some(Ok(Outcome::HalfAnswered)),
        Sent::Nothing => Some(Ok(Outcome::Answer(frames))),
    }
}
