//! What was refused, for whoever asks why a command failed.

use glovebox_proto::{Denial, EgressReason, MAX_DENIALS};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

/// Most refusals that are remembered; older ones go.
const MAX_REFUSALS: usize = 1000;

/// One refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refusal {
    /// Nanoseconds on the clock of [`now_ns`].
    when: u64,
    /// The host that was asked for, printable.
    host: String,
    /// The port, where one was asked for.
    port: Option<u16>,
    /// Why it was refused.
    reason: EgressReason,
}

/// The clock of refusals: nanoseconds of CLOCK_MONOTONIC (clock_gettime(2)), which the guest's reports use too.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000) + now.tv_nsec as u64
}

/// The latest refusals.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<VecDeque<Refusal>>);

impl Refusals {
    pub(crate) fn add(&self, host: &str, port: Option<u16>, reason: EgressReason) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() == MAX_REFUSALS {
            list.pop_front();
        }
        list.push_back(Refusal {
            when: now_ns(),
            host: glovebox_proto::visible::line_of_text(host),
            port,
            reason,
        });
    }

    /// One record for each host, port and reason that was refused in this time, those that came last at the end.
    pub(crate) fn denials(&self, during: RangeInclusive<u64>, is_shared: bool) -> Vec<Denial> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<(Refusal, u64)> = Vec::new();
        for refusal in list.iter().filter(|refusal| during.contains(&refusal.when)) {
            let is_same = |(other, _): &&mut (Refusal, u64)| {
                (&other.host, other.port, other.reason)
                    == (&refusal.host, refusal.port, refusal.reason)
            };
            match found.iter_mut().find(is_same) {
                Some((_, attempts)) => *attempts += 1,
                None => found.push((refusal.clone(), 1)),
            }
        }
        let first = found.len().saturating_sub(MAX_DENIALS);
        let denial = |(refusal, attempts): (Refusal, u64)| Denial::Egress {
            host: refusal.host,
            port: refusal.port,
            reason: refusal.reason,
            attempts,
            is_shared,
        };
        found.into_iter().skip(first).map(denial).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_refusals_are_one_record() {
        let refusals = Refusals::default();
        refusals.add("old.example", None, EgressReason::Unlisted);
        let since = now_ns();
        for _ in 0..3 {
            refusals.add("a.example", None, EgressReason::Unlisted);
        }
        refusals.add("a.example", Some(22), EgressReason::Port);
        let found = refusals.denials(since..=u64::MAX, false);
        assert_eq!(found.len(), 2);
        assert!(matches!(
            &found[0],
            Denial::Egress {
                attempts: 3,
                port: None,
                ..
            }
        ));
        for number in 0..2 * MAX_REFUSALS {
            refusals.add(
                &format!("n{number}\u{1b}.example"),
                None,
                EgressReason::Unlisted,
            );
        }
        let found = refusals.denials(since..=u64::MAX, true);
        assert_eq!(found.len(), MAX_DENIALS);
        assert!(!format!("{found:?}").contains('\u{1b}'));
    }
}
