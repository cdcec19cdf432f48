//! Traffic of one connection, counted while it is open. The connection and its record in the log
//! share it.

use crate::ConnectFailure;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Out of the sandbox.
    Sent,
    /// Into the sandbox.
    Received,
}

/// Counters of bytes in both directions.
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

    /// Returns the sum of both directions.
    pub(crate) fn total(&self) -> u64 {
        self.sent().saturating_add(self.received())
    }
}

/// Bytes, duration and failure of one connection.
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
        // Only the first call has an effect.
        let _ = self.duration.set(self.begun.elapsed());
    }

    pub(crate) fn fail(&self, failure: ConnectFailure) {
        // Only the first failure is kept: a retry has the same cause.
        let _ = self.failure.set(failure);
    }

    /// Returns the reason for which the host could not be reached. `None` if it was reached.
    pub(crate) fn failure(&self) -> Option<ConnectFailure> {
        self.failure.get().copied()
    }

    /// Returns the duration of the connection. `None` while it is open.
    pub(crate) fn duration(&self) -> Option<Duration> {
        self.duration.get().copied()
    }
}
