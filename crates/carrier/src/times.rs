//! Times and sizes of a link that survives its connections. Tests pass small ones.

use glovebox_proto::resume::{MAX_RECORD_BYTES, MAX_UNACKNOWLEDGED_BYTES};
use rustix::rand::{GetRandomFlags, getrandom};
use std::time::Duration;

/// Times of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Silence of the guest after which the host sends a ping.
    pub ping: Duration,
    /// Silence after which a pipe is closed and replaced.
    pub silent: Duration,
    /// Time from the first failure within which a new pipe must reach the guest.
    pub window: Duration,
    /// Time beyond the window for which the guest waits before it ends its jobs and itself.
    pub keep: Duration,
    /// Maximum time to open a later pipe, and again for the guest to answer over it.
    pub open: Duration,
    /// Pauses between attempts to open a pipe.
    pub backoff: Backoff,
    /// Delay of an acknowledgement.
    pub ack: Duration,
    /// Time from the first failure after which [`CarriedLink::waiting_since`] reports the outage.
    ///
    /// [`CarriedLink::waiting_since`]: crate::CarriedLink::waiting_since
    pub notice: Duration,
}

/// Pauses between attempts: each is twice the previous one, minus a random part of up to a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            ping: Duration::from_secs(15),
            silent: Duration::from_secs(40),
            window: Duration::from_mins(1),
            keep: Duration::from_mins(1),
            open: Duration::from_secs(30),
            backoff: Backoff {
                first: Duration::from_millis(100),
                longest: Duration::from_secs(5),
            },
            ack: Duration::from_secs(1),
            notice: Duration::from_secs(2),
        }
    }
}

/// Sizes of a link, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Maximum number of bytes to the guest that are kept until it acknowledges them: 4 MiB at
    /// most, and at least 512 KiB for a steady flow.
    pub buffer: usize,
    /// Maximum size of a record; 32 KiB at most.
    pub record: usize,
    /// Number of bytes from the guest after which a pipe is replaced, for services that store all
    /// that a pipe carried. `None` if the service does not.
    pub rotate: Option<u64>,
    /// Maximum size of a request to a service, for services whose pipe consists of requests.
    pub batch: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            buffer: MAX_UNACKNOWLEDGED_BYTES,
            record: MAX_RECORD_BYTES,
            rotate: Some(64 << 20),
            batch: 768 << 10,
        }
    }
}

impl Backoff {
    /// Returns the pause after `failures` failures.
    pub(crate) fn pause(self, failures: u32) -> Duration {
        // Without a random byte, all clients wait equally long, which is acceptable.
        let mut byte = [0];
        let _ = getrandom(&mut byte, GetRandomFlags::empty());
        self.shortened_pause(failures, byte[0])
    }

    /// Shortens the pause by nothing at a chance of 0, and by a half at 255.
    fn shortened_pause(self, failures: u32, chance: u8) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.min(16));
        let pause = doubled.min(self.longest);
        pause.saturating_sub(pause * u32::from(chance) / 510)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_by_default_fit_each_other() {
        let times = Times::default();
        assert!(times.ping * 2 < times.silent, "an answer has time to come");
        // The official client of a service gives a silent connection up after this.
        assert!(times.ping < Duration::from_secs(45));
        assert!(times.silent < times.window);
        assert!(times.open < times.window, "a second pipe can be tried");
        assert!(times.window < times.window + times.keep);
        // The guest counts from the last word it heard, the host from when it noticed.
        assert!(times.ping + times.silent < times.keep);
        assert!(times.backoff.first < times.backoff.longest);
        assert!(times.backoff.longest < times.window);
        assert!(times.ack < times.ping);
        assert!(times.notice < times.window);
    }

    #[test]
    fn sizes_by_default_fit_each_other() {
        let sizes = Sizes::default();
        assert!(sizes.record < sizes.batch);
        assert!(sizes.batch < sizes.buffer);
        assert!(
            sizes
                .rotate
                .is_some_and(|rotate| rotate > sizes.buffer as u64)
        );
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_keep_at_least_half() {
        let backoff = Times::default().backoff;
        let pauses: Vec<u128> = (0..8)
            .map(|n| backoff.shortened_pause(n, 0).as_millis())
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff.shortened_pause(1, 255).as_millis(), 100);
        assert_eq!(backoff.shortened_pause(u32::MAX, 255).as_millis(), 2500);
    }
}
