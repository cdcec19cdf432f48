//! Counters of the link to a guest on another machine.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a link, from the start of its guest. A backend counts; others read.
#[derive(Debug, Default)]
pub struct LinkMeter {
    reconnects: AtomicU64,
    sent: DirectionMeter,
    received: DirectionMeter,
}

#[derive(Debug, Default)]
struct DirectionMeter {
    frames: AtomicU64,
    bytes: AtomicU64,
}

/// Values of a [`LinkMeter`] at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkStats {
    /// Number of times that a broken connection was replaced.
    pub reconnects: u64,
    /// Traffic to the guest.
    pub sent: LinkTraffic,
    /// Traffic from the guest.
    pub received: LinkTraffic,
}

/// Traffic of one direction of a link. What was sent again after a break counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkTraffic {
    /// Number of frames.
    pub frames: u64,
    /// Number of bytes of the frames, headers included.
    pub bytes: u64,
}

impl LinkMeter {
    /// Counts a broken connection that was replaced.
    pub fn add_reconnect(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts traffic to the guest.
    pub fn add_sent(&self, frames: u64, bytes: usize) {
        self.sent.add(frames, bytes);
    }

    /// Counts traffic from the guest.
    pub fn add_received(&self, frames: u64, bytes: usize) {
        self.received.add(frames, bytes);
    }

    /// Returns the present values.
    pub fn stats(&self) -> LinkStats {
        LinkStats {
            reconnects: self.reconnects.load(Ordering::Relaxed),
            sent: self.sent.traffic(),
            received: self.received.traffic(),
        }
    }
}

impl DirectionMeter {
    fn add(&self, frames: u64, bytes: usize) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn traffic(&self) -> LinkTraffic {
        LinkTraffic {
            frames: self.frames.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}
