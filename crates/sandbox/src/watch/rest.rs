//! Rest of a sandbox: if no processor time was used since the last sample, nothing can have changed
//! and no sample is needed.

use std::time::{Duration, Instant};

/// Maximum time without a sample. The kernel may count processor time by ticks, which can miss
/// short work.
const MAX_REST: Duration = Duration::from_secs(5);

/// Time of the last sample that found no limit exceeded, with the processor time used before it in
/// microseconds. `None` if there is no such sample.
#[derive(Debug, Default)]
pub(super) struct Rest(Option<(Instant, u64)>);

impl Rest {
    /// Records a sample at `now` that found no limit exceeded, before which the processes had used
    /// `cpu_us`. `None` if the kernel does not count processor time.
    pub(super) fn since(now: Instant, cpu_us: Option<u64>) -> Self {
        Self(cpu_us.map(|cpu_us| (now, cpu_us)))
    }

    /// Returns true if no processor time was used since then and less than [`MAX_REST`] has passed.
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
