//! State of a link that its handle and the pump's thread share.

use glovebox_proto::Fault;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// An outage that the link waits out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// When the pipe broke.
    pub since: Instant,
    /// When the link is given up.
    pub until: Instant,
}

/// What the pump's thread tells the handle, and the other way.
#[derive(Debug)]
pub(crate) struct LinkShared {
    /// Readable when the pump is to look at `is_closing` or at a connection that was opened.
    pub(crate) wake: OwnedFd,
    pub(crate) is_closing: AtomicBool,
    pub(crate) reconnects: AtomicU64,
    status: Mutex<LinkStatus>,
}

#[derive(Debug, Default)]
pub(crate) struct LinkStatus {
    pub(crate) lost: Option<Fault>,
    pub(crate) outage: Option<Outage>,
}

impl LinkShared {
    pub(crate) fn new(wake: OwnedFd) -> Self {
        Self {
            wake,
            is_closing: AtomicBool::new(false),
            reconnects: AtomicU64::new(0),
            status: Mutex::default(),
        }
    }

    /// The status. A thread that panicked while it held the lock left it whole at every step.
    pub(crate) fn status(&self) -> MutexGuard<'_, LinkStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake(&self) {
        // It can only fail when it was woken very often already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}
