//! Table of the open requests, through which they are answered.
//!
//! Jobs, transfers and the freeze receive this table to answer requests. It also holds the link and
//! the timers, because an answer is sent on the former and cancels a timer of the latter.

use crate::link::Link;
use crate::timers::{Set, Timers};
use crate::transfers::{Reading, Writing};
use crate::tree::Tree;
use crate::tunnels::Tunnel;
use glovebox_proto::{Fault, JobId, Reply, RequestId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An open request.
#[derive(Debug)]
pub(crate) enum PendingRequest {
    /// `Exec`, `JobAttach` or `JobStream`: receives output and may send input.
    Job(JobId),
    /// Waits for a job until the timer, if any.
    Waiting(JobId, Option<Set>),
    /// File operation in one step.
    Task {
        cancel: Arc<AtomicBool>,
        /// True if it may change files.
        changes: bool,
    },
    /// `FileRead`.
    Read(Box<Reading>),
    /// `FileWrite`.
    Write(Box<Writing>),
    /// `TreeScan`, `TreePut` and `TreeGet`.
    Tree(Box<Tree>),
    /// `Hold`: freezes all processes of commands while it is open.
    Freeze,
    /// `Connect`.
    Tunnel(Box<Tunnel>),
}

impl PendingRequest {
    /// Returns true for a transfer that writes files; during a freeze it makes no steps.
    fn changes_files(&self) -> bool {
        match self {
            Self::Write(_) => true,
            Self::Tree(tree) => tree.changes_files(),
            _ => false,
        }
    }

    /// Returns true while a step that changes files is running.
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
    /// Connection on which answers and streams are sent.
    pub(crate) link: Link,
    /// All timers, including those of jobs.
    pub(crate) timers: Timers,
    /// Open requests by id.
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

    /// Closes a request that is answered by other means.
    pub(crate) fn close(&mut self, request: RequestId) {
        if let Some(PendingRequest::Waiting(_, Some(timer))) = self.open.remove(&request) {
            self.timers.unset(timer);
        }
    }

    /// Removes the requests that workers have answered directly.
    pub(crate) fn forget_answered(&mut self) {
        for id in self.link.frame_writer().answered() {
            self.open.remove(&id);
        }
    }

    /// Adds a transfer and schedules its first step.
    pub(crate) fn open_transfer(&mut self, id: RequestId, transfer: PendingRequest) {
        self.open.insert(id, transfer);
        self.set_ready(id);
    }

    /// Schedules a transfer that may have a step to do.
    pub(crate) fn set_ready(&mut self, id: RequestId) {
        self.ready.push(id);
    }

    /// Schedules all open requests.
    pub(crate) fn set_all_ready(&mut self) {
        self.ready.extend(self.open.keys());
    }

    /// Takes the transfers that may have a step to do.
    pub(crate) fn take_ready(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.ready)
    }

    /// Returns true if this request writes files.
    pub(crate) fn changes_files(&self, id: RequestId) -> bool {
        self.open
            .get(&id)
            .is_some_and(PendingRequest::changes_files)
    }

    /// Returns true while a step of any request is changing files.
    pub(crate) fn has_changes_at_work(&self) -> bool {
        self.open.values().any(PendingRequest::is_changing_now)
    }

    /// Tells all running steps of tree transfers to stop.
    pub(crate) fn cancel_trees(&mut self) {
        for request in self.open.values_mut() {
            if let PendingRequest::Tree(tree) = request {
                tree.cancel();
            }
        }
    }
}
