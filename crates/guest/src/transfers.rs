//! File transfers in both directions, one bounded step at a time.
//!
//! A transfer is a state between steps; each step runs on a worker thread and returns the state. So
//! a host that gives no credit or sends no data holds a descriptor here, but no thread.

use crate::effect::Effect;
use crate::fault;
use crate::files::{self, FileSink, Source, WriteSpec};
use crate::frame_writer::{FrameWriter, SendOutcome};
use crate::link::{self, Link};
use crate::tree::TreeStep;
use crate::workers::{DeferredCloses, Work};
use glovebox_proto::{Channel, Fault, RecvWindow, Reply, RequestId, SendWindow, WireError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of buffers kept for the next transfers.
const KEPT_BUFFERS: usize = 2;
/// Number of bytes up to which copying is cheaper than another system call and another wake-up of
/// the host.
const SMALL_BYTES: usize = 32 << 10;

/// Step of a transfer, for a worker.
type Step = Work<StepOutcome>;

/// Result of a step.
#[derive(Debug)]
pub(crate) enum StepOutcome {
    /// Frames of the answer, which ends the request.
    Answer(Vec<u8>),
    /// Part of the answer was sent, and the rest is queued.
    HalfAnswered,
    /// Part of a file, at the start of the buffer.
    Read(Source, Vec<u8>),
    /// The bytes in the buffer were written.
    Wrote(FileSink, Vec<u8>),
    /// A step of a tree request.
    Tree(Box<TreeStep>),
}

/// Buffers for the next transfers, with arbitrary content: allocating one costs more than filling
/// it.
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

    /// Stores a buffer for reuse unless it is too large or enough are stored.
    pub(crate) fn keep(&self, buffer: Vec<u8>) {
        let mut all = self.all();
        if all.len() < KEPT_BUFFERS && buffer.capacity() <= 2 * files::STEP_BYTES {
            all.push(buffer);
        }
    }
}

/// Transfer of a file to the host.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Open file; `None` while a step runs.
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

    /// Cancels the transfer. Returns true if no step runs, so that the request can be answered at
    /// once.
    pub(crate) fn cancel(&mut self) -> bool {
        self.is_cancelled = true;
        self.source.is_some()
    }

    /// Returns the next step if the host has room for its bytes.
    pub(crate) fn next_step(
        &mut self,
        id: RequestId,
        link: &Link,
        buffers: &Arc<Buffers>,
    ) -> Effect<Step> {
        let room = self.window.room() as usize;
        if link.is_congested() || room == 0 {
            return Effect::Wait;
        }
        let Some(source) = self.source.take() else {
            return Effect::Wait;
        };
        let frame_writer = Arc::clone(link.frame_writer());
        let buffers = Arc::clone(buffers);
        Effect::Step(Box::new(move |_| {
            let (source, buffer) = match files::read_step(source, room, buffers.take()) {
                Ok(read) => read,
                Err(fault) => return answer(&frame_writer, id, &[], &Err(fault)),
            };
            if !source.is_end || source.read > SMALL_BYTES {
                return Some(Ok(StepOutcome::Read(source, buffer)));
            }
            // A small last part is sent together with the answer, so that the host wakes only once.
            let content = buffer.get(..source.read).unwrap_or_default();
            let sent = answer(&frame_writer, id, content, &Ok(source.reply()));
            buffers.keep(buffer);
            sent
        }))
    }

    /// Sends the bytes that a step has read.
    pub(crate) fn was_read(
        &mut self,
        id: RequestId,
        link: &mut Link,
        source: Source,
        buffer: &[u8],
    ) -> Effect<Step> {
        if self.is_cancelled {
            return Effect::Answer(Box::new(Err(fault::cancelled())));
        }
        let bytes = buffer.get(..source.read).unwrap_or_default();
        if !bytes.is_empty() {
            self.window.spend(bytes.len() as u32);
            link.data_now(id, Channel::Content, bytes);
        }
        if source.is_end {
            return Effect::Answer(Box::new(Ok(source.reply())));
        }
        self.source = Some(source);
        Effect::Again
    }
}

/// State of a file being written.
#[derive(Debug)]
enum Stage {
    Wanted(WriteSpec),
    Open(FileSink),
    /// A step is running.
    Busy,
}

/// Transfer of a file from the host.
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

    /// Takes bytes from the host; the window bounds how many can accumulate.
    pub(crate) fn arrived(&mut self, bytes: &[u8], is_last: bool) -> Result<(), WireError> {
        self.window.arrived(bytes.len() as u32)?;
        if self.is_complete {
            return Err(WireError::BadHeader("data after the end mark"));
        }
        self.pending.extend_from_slice(bytes);
        self.is_complete = is_last;
        Ok(())
    }

    /// Returns true while a step is running.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.stage, Stage::Busy)
    }

    /// Cancels the transfer. Returns true if no step runs, so that the request can be answered at
    /// once; dropping it then removes the temporary file.
    pub(crate) fn cancel(&mut self) -> bool {
        self.is_cancelled = true;
        !self.is_busy()
    }

    /// Returns the next step if there is something to write.
    pub(crate) fn next_step(
        &mut self,
        id: RequestId,
        link: &Link,
        buffers: &Buffers,
    ) -> Effect<Step> {
        let has_work = self.is_complete || !self.pending.is_empty();
        let stage = match std::mem::replace(&mut self.stage, Stage::Busy) {
            Stage::Open(sink) if !has_work => {
                self.stage = Stage::Open(sink);
                return Effect::Wait;
            }
            Stage::Busy => return Effect::Wait,
            stage => stage,
        };
        let mut fresh = buffers.take();
        fresh.clear();
        let bytes = std::mem::replace(&mut self.pending, fresh);
        let is_complete = self.is_complete;
        let frame_writer = Arc::clone(link.frame_writer());
        Effect::Step(Box::new(move |deferred| {
            match write_step(stage, bytes, is_complete, deferred) {
                Ok(WriteProgress::Part(sink, bytes)) => Some(Ok(StepOutcome::Wrote(sink, bytes))),
                Ok(WriteProgress::All(reply)) => answer(&frame_writer, id, &[], &Ok(reply)),
                Err(fault) => answer(&frame_writer, id, &[], &Err(fault)),
            }
        }))
    }

    /// Handles a step that has written `count` bytes.
    pub(crate) fn was_written(
        &mut self,
        id: RequestId,
        link: &mut Link,
        sink: FileSink,
        count: usize,
    ) -> Effect<Step> {
        if self.is_cancelled {
            drop(sink);
            return Effect::Answer(Box::new(Err(fault::cancelled())));
        }
        self.stage = Stage::Open(sink);
        if let Some(credit) = self.window.consumed(count as u32) {
            link.credit(id, Channel::Input, credit);
        }
        Effect::Again
    }
}

/// Result of one write step.
enum WriteProgress {
    /// The bytes in the buffer were written; more may follow.
    Part(FileSink, Vec<u8>),
    /// The file is complete and in its place.
    All(Reply),
}

/// Opens the file if necessary, writes the bytes, and commits the file if they are the last.
fn write_step(
    stage: Stage,
    bytes: Vec<u8>,
    is_complete: bool,
    deferred: &mut DeferredCloses,
) -> Result<WriteProgress, Fault> {
    let mut sink = match stage {
        Stage::Wanted(spec) => FileSink::open(spec)?,
        Stage::Open(sink) => sink,
        Stage::Busy => return Err(fault::cancelled()),
    };
    sink.write(&bytes)?;
    if is_complete {
        return sink.commit(deferred).map(WriteProgress::All);
    }
    Ok(WriteProgress::Part(sink, bytes))
}

/// Ends a request from a worker, with the last of its content. Returns `None` if everything was
/// sent, otherwise a result for the event loop to finish.
pub(crate) fn answer(
    frame_writer: &FrameWriter,
    id: RequestId,
    content: &[u8],
    answer: &Result<Reply, Fault>,
) -> Option<Result<StepOutcome, Fault>> {
    let frames = link::answer_frames(id, content, answer);
    match frame_writer.answer(id, &frames) {
        SendOutcome::All => None,
        SendOutcome::Part => Some(Ok(StepOutcome::HalfAnswered)),
        SendOutcome::Nothing => Some(Ok(StepOutcome::Answer(frames))),
    }
}
