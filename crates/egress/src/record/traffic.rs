//! What one connection has carried, counted while it is open. Shared by the connection and its record in the log.

use crate::ConnectFailure;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Out of the sandbox.
    Sent,
    /// Into it.
    Received,
}

/// Bytes both ways.
#[derive(Debug, Default)]
pub(crate) struct ByteCounts {
    sent: AtomicU64,
    received: AtomicU64,
}

impl ByteCounts {
    pub(crate) fn add(&self, direction: Direction, bytes: u64) {
        let counter = match direction {
            Direction::Sent => &self.sent,
            Direction::Received => &self.received,
        };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Both ways together.
    pub(crate) fn total(&self) -> u64 {
        self.sent().saturating_add(self.received())
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) bytes: ByteCounts,
    begun: Instant,
    duration: OnceLock<Duration>,
    failure: OnceLock<ConnectFailure>,
}

impl Traffic {
    pub(crate) fn begin() -> Self {
        Self {
            bytes: ByteCounts::default(),
            begun: Instant::now(),
            duration: OnceLock::new(),
            failure: OnceLock::new(),
        }
    }

    pub(crate) fn end(&self) {
        // The first end counts.
        let _ = self.duration.set(self.begun.elapsed());
    }

    pub(crate) fn fail(&self, failure: ConnectFailure) {
        // The first counts: what is tried once more is tried for the same reason.
        let _ = self.failure.set(failure);
    }

    /// Why the host was not reached, if it was not.
    pub(crate) fn failure(&self) -> Option<ConnectFailure> {
        self.failure.get().copied()
    }

    /// How long it lasted; `None` while it is open.
    pub(crate) fn duration(&self) -> Option<Duration> {
        self.duration.get().copied()
    }
}
