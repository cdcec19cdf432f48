//! Maximum wait of a call for a command, and the fate of the command when the call is cancelled.

use std::time::Duration;

/// Default wait of a call, in milliseconds.
const USUAL_WAIT_MS: u64 = 120_000;
/// Maximum wait of a call, in milliseconds.
pub(crate) const MAX_WAIT_MS: u64 = 600_000;

/// Waits that fit the caller of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitPolicy {
    usual_ms: u64,
    longest_ms: u64,
    keeps_commands: bool,
}

impl WaitPolicy {
    /// Policy for a caller that waits as long as a call takes. When it cancels a call, the command
    /// ends.
    pub const PATIENT: Self = Self {
        usual_ms: USUAL_WAIT_MS,
        longest_ms: MAX_WAIT_MS,
        keeps_commands: false,
    };

    /// Policy for a caller that abandons a call by itself after some time. No call waits longer
    /// than `longest`, and a command goes on as a job after its call was cancelled.
    pub fn at_most(longest: Duration) -> Self {
        let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        Self {
            usual_ms: longest_ms.min(USUAL_WAIT_MS),
            longest_ms: longest_ms.min(MAX_WAIT_MS),
            keeps_commands: true,
        }
    }

    /// Returns the maximum wait of a call.
    pub const fn longest(self) -> Duration {
        Duration::from_millis(self.longest_ms)
    }

    /// Returns the milliseconds to wait for a command, given the requested time.
    pub(crate) fn wait_ms(self, asked: Option<u64>) -> u64 {
        asked.unwrap_or(self.usual_ms).min(self.longest_ms)
    }

    /// Returns the time limit in milliseconds for work that cannot outlive its call.
    pub(crate) fn limit_ms(self, asked: Option<u64>) -> u64 {
        asked.unwrap_or(self.usual_ms).min(MAX_WAIT_MS)
    }

    /// Returns true if a command goes on after its call was cancelled.
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
