//! How long a call waits for a command, and what becomes of the command when nobody waits any more.

use std::time::Duration;

/// How long a call waits unless told otherwise, in milliseconds.
const USUAL_WAIT_MS: u64 = 120_000;
/// How long a call may wait, in milliseconds.
pub(crate) const MAX_WAIT_MS: u64 = 600_000;

/// The patience of whoever calls the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitPolicy {
    usual_ms: u64,
    longest_ms: u64,
    keeps_commands: bool,
}

impl WaitPolicy {
    /// Of a caller that waits for as long as a call takes; when it gives a call up, it wants the command ended.
    pub const PATIENT: Self = Self {
        usual_ms: USUAL_WAIT_MS,
        longest_ms: MAX_WAIT_MS,
        keeps_commands: false,
    };

    /// Of a caller that gives a call up by itself after a while, whatever the command does: no call waits longer
    /// than `longest`, and a command goes on as a job whether somebody waits for it or not.
    pub fn at_most(longest: Duration) -> Self {
        let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        Self {
            usual_ms: longest_ms.min(USUAL_WAIT_MS),
            longest_ms: longest_ms.min(MAX_WAIT_MS),
            keeps_commands: true,
        }
    }

    /// No call waits longer.
    pub const fn longest(self) -> Duration {
        Duration::from_millis(self.longest_ms)
    }

    /// Milliseconds to wait where so many were asked for.
    pub(crate) fn wait_ms(self, asked: Option<u64>) -> u64 {
        asked.unwrap_or(self.usual_ms).min(self.longest_ms)
    }

    /// Milliseconds that something may take which cannot go on without its call.
    pub(crate) fn limit_ms(self, asked: Option<u64>) -> u64 {
        asked.unwrap_or(self.usual_ms).min(MAX_WAIT_MS)
    }

    /// Whether a command goes on when its call is given up.
    pub(crate) const fn keeps_commands(self) -> bool {
        self.keeps_commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_is_longer_than_the_caller_stays() {
        let short = WaitPolicy::at_most(Duration::from_secs(45));
        assert_eq!(short.wait_ms(None), 45_000);
        assert_eq!(short.wait_ms(Some(300_000)), 45_000);
        assert_eq!(short.wait_ms(Some(1000)), 1000);
        assert_eq!(short.limit_ms(Some(300_000)), 300_000);
        assert_eq!(WaitPolicy::PATIENT.wait_ms(None), 120_000);
        assert_eq!(WaitPolicy::PATIENT.wait_ms(Some(u64::MAX)), MAX_WAIT_MS);
        let long = WaitPolicy::at_most(Duration::MAX);
        assert_eq!(
            (long.wait_ms(None), long.wait_ms(Some(u64::MAX))),
            (120_000, MAX_WAIT_MS)
        );
    }
}
