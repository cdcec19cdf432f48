//! Files on their way in and out, one bounded step at a time.
//!
//! A transfer is a state between steps; each step runs on a worker thread and brings the state
//! back. A host that gives no credit or sends no data therefore holds a descriptor here, and no
//! thread.

use crate::effect::Effect;
use crate::fault;
use crate::files::{self, FileSink, Source, WriteSpec};
use crate::frame_writer::{FrameWriter, SendOutcome};
use crate::link::{self, Link};
use crate::tree::TreeStep;
use crate::workers::{DeferredCloses, Work};
use glovebox_proto::{Channel, Fault, RecvWindow, Reply, RequestId, SendWindow, WireError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers kept for the next transfer.
const KEPT_BUFFERS: usize = 2;
/// Bytes whose copying costs less than another system call and another wake-up of the host.
const SMALL_BYTES: usize = 32 << 10;

/// A step of a transfer, for a worker.
type Step = Work<StepOutcome>;

/// What a worker brings back.
#[derive(Debug)]
pub(crate) enum StepOutcome {
    /// The frames of the answer, which ends the request.
    Answer(Vec<u8>),
    /// Part of the answer is out already, and the rest is queued.
    HalfAnswered,
    /// Part of a file, at the beginning of a buffer.
    Read(Source, Vec<u8>),
    /// The bytes in a buffer were written.
    Wrote(FileSink, Vec<u8>),
    /// A step of a tree request.
    Tree(Box<TreeStep>),
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
    pub(crate) fn keep(&self, buffer: Vec<u8>) {
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

    /// The next step, if the host has room for what it reads.
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
            // What is small and the last leaves together with the answer: the host wakes once.
            let content = buffer.get(..source.read).unwrap_or_default();
            let sent = answer(&frame_writer, id, content, &Ok(source.reply()));
            buffers.keep(buffer);
            sent
        }))
    }

    /// A step has read `buffer`, which is sent.
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

/// Where a file being written stands.
#[derive(Debug)]
enum Stage {
    Wanted(WriteSpec),
    Open(FileSink),
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

    /// The next step, if there is something to write.
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

    /// A step has written `count` bytes.
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

/// What a step of writing comes to.
enum WriteProgress {
    /// The bytes in the buffer were written; more may come.
    Part(FileSink, Vec<u8>),
    /// The file is complete and in its place.
    All(Reply),
}

/// Opens, writes, and puts in place, as far as the bytes go.
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

/// Ends a request from a worker, with the last of its content, or brings that back for the loop to send.
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
