//! The requests that are open, and the way their answers take.
//!
//! What works on requests (jobs, transfers, the freeze) is given this table to answer them. It holds the link and the
//! timers too, because an answer goes out on the one and takes the other back.

use crate::link::Link;
use crate::timers::{Set, Timers};
use crate::transfers::{Reading, Writing};
use crate::tree::Tree;
use crate::tunnels::Tunnel;
use glovebox_proto::{Fault, JobId, Reply, RequestId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An unanswered request.
#[derive(Debug)]
pub(crate) enum PendingRequest {
    /// `Exec`, `JobAttach` and `JobStream`: they receive output and may send input.
    Job(JobId),
    /// Waits for a job, at most until the timer.
    Waiting(JobId, Option<Set>),
    /// A file operation in one step.
    Task {
        cancel: Arc<AtomicBool>,
        /// It may change files.
        changes: bool,
    },
    /// `FileRead`.
    Read(Box<Reading>),
    /// `FileWrite`.
    Write(Box<Writing>),
    /// `TreeScan`, `TreePut` and `TreeGet`.
    Tree(Box<Tree>),
    /// Everything is to be still as long as this is open.
    Freeze,
    /// `Connect`.
    Tunnel(Box<Tunnel>),
}

impl PendingRequest {
    /// Whether it writes files, as far as it is let.
    fn changes_files(&self) -> bool {
        match self {
            Self::Write(_) => true,
            Self::Tree(tree) => tree.changes_files(),
            _ => false,
        }
    }

    /// Whether a step of it that changes files is being done.
    fn is_changing_now(&self) -> bool {
        match self {
            Self::Task { changes, .. } => *changes,
            Self::Write(writing) => writing.is_busy(),
            Self::Tree(tree) => tree.changes_files() && tree.is_busy(),
            _ => false,
        }
    }
}

/// All open requests.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Where answers and streams leave.
    pub(crate) link: Link,
    /// All timers, those of jobs included.
    pub(crate) timers: Timers,
    /// The open requests.
    pub(crate) open: HashMap<RequestId, PendingRequest>,
    /// Transfers that may have a step to do.
    ready: Vec<RequestId>,
}

impl Requests {
    pub(crate) fn new(link: Link) -> Self {
        Self {
            link,
            timers: Timers::default(),
            open: HashMap::new(),
            ready: Vec::new(),
        }
    }

    /// Answers a request and closes it.
    pub(crate) fn answer(&mut self, request: RequestId, answer: &Result<Reply, Fault>) {
        self.close(request);
        self.link.reply(request, answer);
    }

    /// Closes a request whose answer leaves by another way.
    pub(crate) fn close(&mut self, request: RequestId) {
        if let Some(PendingRequest::Waiting(_, Some(timer))) = self.open.remove(&request) {
            self.timers.unset(timer);
        }
    }

    /// Forgets the requests that workers have answered by themselves.
    pub(crate) fn forget_answered(&mut self) {
        for id in self.link.frame_writer().answered() {
            self.open.remove(&id);
        }
    }

    /// Opens a transfer, whose first step is due.
    pub(crate) fn open_transfer(&mut self, id: RequestId, transfer: PendingRequest) {
        self.open.insert(id, transfer);
        self.set_ready(id);
    }

    /// A transfer may have a step to do.
    pub(crate) fn set_ready(&mut self, id: RequestId) {
        self.ready.push(id);
    }

    /// Any transfer may have a step to do.
    pub(crate) fn set_all_ready(&mut self) {
        self.ready.extend(self.open.keys());
    }

    /// The transfers that may have a step to do.
    pub(crate) fn take_ready(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.ready)
    }

    /// Whether a request writes files, as far as it is let.
    pub(crate) fn changes_files(&self, id: RequestId) -> bool {
        self.open
            .get(&id)
            .is_some_and(PendingRequest::changes_files)
    }

    /// Whether a step is being done that changes files.
    pub(crate) fn has_changes_at_work(&self) -> bool {
        self.open.values().any(PendingRequest::is_changing_now)
    }

    /// Tells the steps of transfers that run to stop.
    pub(crate) fn cancel_trees(&mut self) {
        for request in self.open.values_mut() {
            if let PendingRequest::Tree(tree) = request {
                tree.cancel();
            }
        }
    }
}
