//! Rate limit of requests per user. Short bursts pass; requests beyond the limit get status 429.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time after which an unused bucket is full: the length of a burst.
const BURST: Duration = Duration::from_secs(2);
/// Number of buckets above which full ones are removed.
const MANY_USERS: usize = 1024;

/// Rate limit with one token bucket per user.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// Requests per second and user. None for no limit.
    per_second: Option<u32>,
    users: Mutex<HashMap<String, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    requests: f64,
    at: Instant,
}

impl RateLimit {
    pub(crate) fn new(per_second: Option<u32>) -> Self {
        Self {
            per_second,
            users: Mutex::default(),
        }
    }

    fn users(&self) -> MutexGuard<'_, HashMap<String, Bucket>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one request out of the user's bucket. If the bucket is empty, returns the time until
    /// it holds a request.
    pub(crate) fn take(&self, user: &str, now: Instant) -> Result<(), Duration> {
        let Some(per_second) = self.per_second.map(f64::from) else {
            return Ok(());
        };
        let most = per_second * BURST.as_secs_f64();
        let fill = |bucket: &Bucket| {
            let since = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.requests + since * per_second).min(most)
        };
        let mut users = self.users();
        if users.len() >= MANY_USERS {
            users.retain(|_, bucket| fill(bucket) < most);
        }
        let full = Bucket {
            requests: most,
            at: now,
        };
        let bucket = users.entry(user.to_owned()).or_insert(full);
        let requests = fill(bucket);
        bucket.at = now;
        if requests < 1.0 {
            bucket.requests = requests;
            return Err(Duration::from_secs_f64((1.0 - requests) / per_second));
        }
        bucket.requests = requests - 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_pass_and_floods_do_not_and_users_do_not_share() {
        let limit = RateLimit::new(Some(10));
        let begun = Instant::now();
        let passed = |user: &str, at: Instant| {
            (0..100)
                .take_while(|_| limit.take(user, at).is_ok())
                .count()
        };
        assert_eq!(passed("ann", begun), 20);
        let wait = limit.take("ann", begun).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert_eq!(passed("bob", begun), 20);
        assert_eq!(passed("ann", begun + Duration::from_secs(1)), 10);
        assert_eq!(passed("ann", begun + Duration::from_hours(1)), 20);
        let unlimited = RateLimit::new(None);
        assert!((0..10_000).all(|_| unlimited.take("ann", begun).is_ok()));
    }

    #[test]
    fn users_that_are_away_are_forgotten() {
        let limit = RateLimit::new(Some(10));
        let begun = Instant::now();
        for n in 0..MANY_USERS {
            limit.take(&n.to_string(), begun).unwrap();
        }
        limit.take("late", begun + Duration::from_secs(5)).unwrap();
        assert_eq!(limit.users().len(), 1);
    }
}
