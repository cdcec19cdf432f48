//! Transfers of whole trees: scan, put and get, one bounded step at a time on a worker thread.
//!
//! As with single files, a request is a state between steps. A step takes the available input, does
//! about one block's worth of work, and leaves output to send; the next one begins when that has
//! been sent. So a host that gives no credit or sends nothing holds a few descriptors and a block
//! of memory here, but no thread. Cancelling a request waits for at most one system call.

mod beneath;
mod fresh;
mod get;
mod put;
mod scan;

pub(crate) use get::Get;
pub(crate) use put::Put;
pub(crate) use scan::Scan;

use crate::effect::Effect;
use crate::fault;
use crate::link::Link;
use glovebox_proto::tree::{Signature, TreeTotals};
use glovebox_proto::{
    Channel, Code, Fault, RecvWindow, Reply, RequestId, SendWindow, WireError, limits,
};
use rustix::fs::Stat;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Output size at which a step ends.
const STEP_BYTES: usize = 96 << 10;

/// Kind and state of a tree request.
#[derive(Debug)]
pub(crate) enum Work {
    Scan(Scan),
    Put(Put),
    Get(Get),
}

impl Work {
    /// Returns true if it can use input now.
    fn takes_input(&self) -> bool {
        match self {
            Self::Scan(_) => false,
            Self::Put(_) => true,
            Self::Get(get) => !get.has_more(),
        }
    }

    /// Returns true if it has work that needs no input.
    fn has_more(&self) -> bool {
        match self {
            Self::Scan(_) => true,
            Self::Put(_) => false,
            Self::Get(get) => get.has_more(),
        }
    }

    /// Does a bounded amount of work. Returns the totals when all is done. Output is appended to
    /// `out`, even on an error.
    fn step(
        &mut self,
        input: &[u8],
        is_complete: bool,
        out: &mut Vec<u8>,
        cancel: &AtomicBool,
    ) -> Result<Option<TreeTotals>, Fault> {
        match self {
            Self::Scan(scan) => scan.step(out, cancel),
            Self::Put(put) => put.step(input, is_complete, out, cancel),
            Self::Get(get) => get.step(input, is_complete, out, cancel),
        }
    }
}

/// Step of a tree request, for a worker.
pub(crate) type Step = Box<dyn FnOnce() -> TreeStep + Send>;

/// Result of a step.
#[derive(Debug)]
pub(crate) struct TreeStep {
    work: Work,
    /// Input that the step has consumed.
    input: Vec<u8>,
    out: Vec<u8>,
    result: Result<Option<TreeTotals>, Fault>,
}

/// Open tree request.
#[derive(Debug)]
pub(crate) struct Tree {
    changes_files: bool,
    /// `None` while a step runs, and when nothing is left to do.
    work: Option<Work>,
    /// Answer to send after all output.
    answer: Option<Result<Reply, Fault>>,
    room_in: RecvWindow,
    room_out: SendWindow,
    input: Vec<u8>,
    /// Buffer of the previous step, reused because allocating costs more than filling.
    spare: Vec<u8>,
    is_complete: bool,
    out: Vec<u8>,
    sent: usize,
    cancel: Arc<AtomicBool>,
}

impl Tree {
    pub(crate) fn new(work: Work) -> Self {
        Self {
            changes_files: matches!(work, Work::Put(_)),
            work: Some(work),
            answer: None,
            room_in: RecvWindow::new(),
            room_out: SendWindow::new(),
            input: Vec::new(),
            spare: Vec::new(),
            is_complete: false,
            out: Vec::new(),
            sent: 0,
            cancel: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Returns true for a `TreePut` request.
    pub(crate) const fn changes_files(&self) -> bool {
        self.changes_files
    }

    /// Returns true while a step is running.
    pub(crate) const fn is_busy(&self) -> bool {
        self.work.is_none() && self.answer.is_none()
    }

    /// Takes bytes from the host; the window bounds how many can accumulate.
    pub(crate) fn arrived(&mut self, bytes: &[u8], is_last: bool) -> Result<(), WireError> {
        self.room_in.arrived(bytes.len() as u32)?;
        if self.is_complete {
            return Err(WireError::BadHeader("data after the end mark"));
        }
        if self.answer.is_none() {
            self.input.extend_from_slice(bytes);
        }
        self.is_complete = is_last;
        Ok(())
    }

    pub(crate) fn credit(&mut self, bytes: u32) -> Result<(), WireError> {
        self.room_out.credit(bytes)
    }

    /// Cancels the request. Returns true if no step runs, so that it can be answered at once;
    /// dropping it then removes the temporary files.
    pub(crate) fn cancel(&mut self) -> bool {
        self.cancel.store(true, Ordering::Relaxed);
        self.work.is_some() || self.answer.is_some()
    }

    /// Returns the next step if there is work and all output was sent.
    fn next_step(&mut self) -> Option<Step> {
        if self.answer.is_some() || self.sent < self.out.len() {
            return None;
        }
        let work = self.work.as_ref()?;
        let takes_input = work.takes_input();
        let has_input = takes_input && (!self.input.is_empty() || self.is_complete);
        if !has_input && !work.has_more() {
            return None;
        }
        let mut work = self.work.take()?;
        let input = if takes_input {
            std::mem::replace(&mut self.input, std::mem::take(&mut self.spare))
        } else {
            Vec::new()
        };
        let is_complete = self.is_complete && self.input.is_empty();
        let cancel = Arc::clone(&self.cancel);
        let mut out = std::mem::take(&mut self.out);
        Some(Box::new(move || {
            let result = work.step(&input, is_complete, &mut out, &cancel);
            TreeStep {
                work,
                input,
                out,
                result,
            }
        }))
    }

    /// Sends waiting output, and returns the next step when all of it was sent.
    pub(crate) fn advance(&mut self, id: RequestId, link: &mut Link) -> Effect<Step> {
        while self.sent < self.out.len() && !link.is_congested() {
            let room = self.room_out.room().min(limits::MAX_DATA_BYTES) as usize;
            let count = room.min(self.out.len() - self.sent);
            if count == 0 {
                return Effect::Wait;
            }
            let bytes = &self.out[self.sent..self.sent + count];
            link.data(id, Channel::Content, bytes);
            self.room_out.spend(count as u32);
            self.sent += count;
        }
        if self.sent < self.out.len() {
            return Effect::Wait;
        }
        self.out.clear();
        self.sent = 0;
        if let Some(answer) = self.answer.take() {
            return Effect::Answer(Box::new(answer));
        }
        self.next_step().map_or(Effect::Wait, Effect::Step)
    }

    /// Takes the result of a step.
    pub(crate) fn was_stepped(
        &mut self,
        id: RequestId,
        link: &mut Link,
        stepped: TreeStep,
    ) -> Effect<Step> {
        if self.cancel.load(Ordering::Relaxed) {
            drop(stepped);
            return Effect::Answer(Box::new(Err(fault::cancelled())));
        }
        self.out = stepped.out;
        match stepped.result {
            Ok(None) => self.work = Some(stepped.work),
            Ok(Some(totals)) => self.answer = Some(Ok(Reply::Tree(totals))),
            Err(fault) => self.answer = Some(Err(fault)),
        }
        let taken = stepped.input.len() as u32;
        if self.answer.is_some() {
            self.input = Vec::new();
        } else {
            self.spare = stepped.input;
            self.spare.clear();
        }
        if let Some(credit) = self.room_in.consumed(taken) {
            link.credit(id, Channel::Input, credit);
        }
        Effect::Again
    }
}

/// Returns the signature by which a file's state is recognised.
fn signature(stat: &Stat) -> Signature {
    Signature::from_stat(
        stat.st_size,
        (stat.st_mtime, stat.st_mtime_nsec as i64),
        (stat.st_ctime, stat.st_ctime_nsec as i64),
        stat.st_ino,
        stat.st_mode,
    )
}

/// Returns the current time of the clock that stamps files, in nanoseconds since the epoch.
fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as i64)
}

fn malformed(error: &WireError) -> Fault {
    Fault::failed(Code::InvalidArgument, error.to_string())
}

/// Returns the fault for a stream that ends in the middle of an item.
fn cut_off() -> Fault {
    Fault::failed(Code::InvalidArgument, "the tree's stream ends too early")
}

fn check_cancel(cancel: &AtomicBool) -> Result<(), Fault> {
    if cancel.load(Ordering::Relaxed) {
        Err(fault::cancelled())
    } else {
        Ok(())
    }
}
