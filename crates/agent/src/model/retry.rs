//! Decides about the retry of a request, and the pause before it.

use super::ModelError;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Number of attempts, and the pauses between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of attempts, the first one included.
    pub max_attempts: u32,
    /// Pause before the second attempt; doubled for each further one.
    pub base: Duration,
    /// Maximum pause, unless the server asks for a longer one.
    pub cap: Duration,
    /// Maximum pause that a server may ask for. If it asks for more, the request fails at once.
    pub max_retry_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 6,
            base: Duration::from_millis(500),
            cap: Duration::from_secs(30),
            max_retry_after: Duration::from_mins(2),
        }
    }
}

impl RetryPolicy {
    /// Returns the pause before attempt `next` (from 2) after `error`; `None` to give up.
    pub(crate) fn wait(&self, next: u32, error: &ModelError) -> Option<Duration> {
        if !error.is_passing || next > self.max_attempts {
            return None;
        }
        let doubled = self
            .base
            .saturating_mul(1 << next.saturating_sub(2).min(16))
            .min(self.cap);
        // Our own pause is the minimum: a server that tells every client to retry at once would be
        // overloaded again.
        match error.retry_after {
            Some(asked) if asked > self.max_retry_after => None,
            Some(asked) => Some(asked.max(doubled) + jitter(doubled)),
            None => Some(doubled + jitter(doubled)),
        }
    }
}

/// Returns a random duration of up to a quarter of `wait`, so that clients that failed together do
/// not retry together.
fn jitter(wait: Duration) -> Duration {
    // The standard library seeds each hasher with random keys; that is enough randomness here.
    let chance = RandomState::new().build_hasher().finish() % 1000;
    (wait / 4) * chance as u32 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_obey_the_server_and_end() {
        let policy = RetryPolicy::default();
        let plain = ModelError::passing("busy");
        let first = policy.wait(2, &plain).unwrap();
        assert!(
            first >= policy.base && first <= policy.base * 5 / 4,
            "{first:?}"
        );
        assert!(policy.wait(5, &plain).unwrap() >= policy.base * 8);
        assert!(policy.wait(7, &plain).is_none());
        assert!(policy.wait(2, &ModelError::lasting("no key")).is_none());
        let asked = |secs| ModelError {
            retry_after: Some(Duration::from_secs(secs)),
            ..plain.clone()
        };
        assert!(policy.wait(2, &asked(7)).unwrap() >= Duration::from_secs(7));
        assert!(policy.wait(2, &asked(0)).unwrap() >= policy.base);
        assert!(policy.wait(2, &asked(3600)).is_none());
    }
}
