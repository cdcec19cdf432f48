//! A sandbox in which nothing has run since the last look needs no other look: nothing in it has changed.

use std::time::{Duration, Instant};

/// The longest time without a look. The kernel counts processor time by ticks, of which a processor may have few.
const MAX_REST: Duration = Duration::from_secs(5);

/// Since when a sandbox, in which all was well then, has stood still.
#[derive(Debug, Default)]
pub(super) struct Rest(Option<(Instant, u64)>);

impl Rest {
    /// All was well in a look at `now`, before which its processes had used `cpu_us`; `None` where nobody counts.
    pub(super) fn since(now: Instant, cpu_us: Option<u64>) -> Self {
        Self(cpu_us.map(|cpu_us| (now, cpu_us)))
    }

    /// Whether it has used no more since then.
    pub(super) fn lasts(&self, now: Instant, cpu_us: Option<u64>) -> bool {
        self.0.zip(cpu_us).is_some_and(|((since, before), cpu_us)| {
            before == cpu_us && now.duration_since(since) < MAX_REST
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_until_something_runs_or_for_so_long() {
        let now = Instant::now();
        let rest = Rest::since(now, Some(7));
        assert!(rest.lasts(now + MAX_REST / 2, Some(7)));
        assert!(!rest.lasts(now + MAX_REST / 2, Some(8)));
        assert!(!rest.lasts(now + MAX_REST, Some(7)));
    }

    #[test]
    fn where_nobody_counts_there_is_none() {
        let now = Instant::now();
        assert!(!Rest::since(now, None).lasts(now, None));
        assert!(!Rest::since(now, None).lasts(now, Some(7)));
        assert!(!Rest::since(now, Some(7)).lasts(now, None));
        assert!(!Rest::default().lasts(now, Some(0)));
    }
}
