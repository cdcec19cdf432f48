//! State of a link that its handle and the thread of the pump share.

use glovebox_proto::Fault;
use glovebox_sandbox::LinkMeter;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Outage that the link is trying to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Time at which the pipe broke.
    pub since: Instant,
    /// Time at which the link is given up.
    pub until: Instant,
}

/// State that the handle and the thread of the pump share.
#[derive(Debug)]
pub(crate) struct LinkShared {
    /// Event descriptor: readable if the pump has to check `is_closing` or an opened connection.
    pub(crate) wake: OwnedFd,
    pub(crate) is_closing: AtomicBool,
    pub(crate) meter: Arc<LinkMeter>,
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
            meter: Arc::default(),
            status: Mutex::default(),
        }
    }

    /// Locks and returns the status. A poisoned lock is accepted: every single write leaves the
    /// status valid.
    pub(crate) fn status(&self) -> MutexGuard<'_, LinkStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake(&self) {
        // The write fails only if the counter is at its maximum, and the descriptor readable
        // anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}
