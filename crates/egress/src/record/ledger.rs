//! Ledger of decisions and traffic since the previous report, for accounts that are kept elsewhere.
//! Equal decisions are combined.
//!
//! The size of the reports is bounded: repeated connections to one host make one entry in ten
//! minutes. Connections to ever new names make at most [`MAX_HOSTS_OF_A_KIND`] entries and one for
//! the rest. Each kind of verdict has its own bound, so that refusals do not displace allowed
//! connections.

use crate::ConnectFailure;
use crate::record::log::{now_unix_ms, shown_host};
use glovebox_proto::{EgressReason, SecretReason};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of entries with one kind of verdict that are reported separately within
/// [`REPEAT`]; all others are combined into one.
const MAX_HOSTS_OF_A_KIND: usize = 100;
/// Time before an equal decision is reported again.
const REPEAT: Duration = Duration::from_mins(10);
/// Key under which secrets that were not filled in are counted in [`TrafficNews::refused`].
pub const WITHHELD_SECRET: &str = "secret";

/// Decision about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EgressVerdict {
    /// The connection or request was allowed.
    Allowed,
    /// The host was allowed but could not be reached.
    Failed(ConnectFailure),
    /// The host was refused.
    Refused(EgressReason),
    /// The connection was allowed, but a secret was not filled in. The request was passed on
    /// without it or refused.
    Withheld(SecretReason),
}

impl EgressVerdict {
    /// Returns the identifier of the verdict for machine-readable output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Failed(_) => "failed",
            Self::Refused(_) => "refused",
            Self::Withheld(_) => "withheld",
        }
    }

    /// Returns the identifier of the reason. `None` if the host was allowed.
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Allowed => None,
            Self::Failed(failure) => Some(failure.word()),
            Self::Refused(reason) => Some(reason.word()),
            Self::Withheld(reason) => Some(reason.word()),
        }
    }
}

/// Number and time of equal decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionSum {
    /// Host in printable form. `None` for the sum over the hosts beyond the bound.
    pub host: Option<String>,
    /// Port of the connection. `None` for a DNS query.
    pub port: Option<u16>,
    /// Rule that decided. `None` if no rule matched.
    pub rule: Option<String>,
    /// Decision about the host.
    pub verdict: EgressVerdict,
    /// Number of these decisions since the previous report.
    pub count: u64,
    /// Time of the first of these decisions, in milliseconds since the Unix epoch.
    pub first_unix_ms: u64,
    /// Time of the last of these decisions, in milliseconds since the Unix epoch.
    pub last_unix_ms: u64,
}

/// Decisions and traffic since the previous report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficNews {
    /// Bytes out of the sandbox.
    pub sent_bytes: u64,
    /// Bytes into the sandbox.
    pub received_bytes: u64,
    /// Number of connections and requests that were allowed and did not fail. Those that were given
    /// up before a connection was made are included.
    pub allowed: u64,
    /// Number of connections, requests and DNS queries that were allowed and failed.
    pub failed: u64,
    /// Number of refusals by reason ([`EgressReason::word`], or [`WITHHELD_SECRET`]), including
    /// refused DNS queries.
    pub refused: BTreeMap<String, u64>,
    /// Number of connections that are open now.
    pub open_connections: u64,
    /// Combined decisions, oldest first.
    pub decisions: Vec<DecisionSum>,
    /// True if further decisions are ready to be reported.
    pub has_more: bool,
}

impl TrafficNews {
    /// Adds the report that follows this one.
    pub fn add(&mut self, later: Self) {
        self.sent_bytes += later.sent_bytes;
        self.received_bytes += later.received_bytes;
        self.allowed += later.allowed;
        self.failed += later.failed;
        for (word, count) in later.refused {
            *self.refused.entry(word).or_default() += count;
        }
        self.open_connections = later.open_connections;
        self.decisions.extend(later.decisions);
        self.has_more = later.has_more;
    }
}

/// Decision about one host, without time and count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DecisionKey {
    host: Option<String>,
    port: Option<u16>,
    rule: Option<String>,
    verdict: EgressVerdict,
}

impl DecisionKey {
    pub(crate) fn new(
        host: &str,
        port: Option<u16>,
        rule: Option<String>,
        verdict: EgressVerdict,
    ) -> Self {
        Self {
            host: Some(shown_host(host)),
            port,
            rule,
            verdict,
        }
    }

    pub(crate) const fn set_verdict(&mut self, verdict: EgressVerdict) {
        self.verdict = verdict;
    }

    /// Returns the key of the sum over the hosts beyond the bound.
    const fn rest(verdict: EgressVerdict) -> Self {
        Self {
            host: None,
            port: None,
            rule: None,
            verdict,
        }
    }
}

#[derive(Debug)]
struct PendingCount {
    /// Number of decisions that have not been reported.
    count: u64,
    first_unix_ms: u64,
    last_unix_ms: u64,
    told_at: Option<Instant>,
}

impl PendingCount {
    fn is_due(&self, now: Instant) -> bool {
        self.count > 0 && self.is_quiet(now)
    }

    /// Returns true if the entry can be removed.
    fn is_over(&self, now: Instant) -> bool {
        self.count == 0 && self.is_quiet(now)
    }

    /// Returns true if the decision was not reported within [`REPEAT`].
    fn is_quiet(&self, now: Instant) -> bool {
        let is_past = |told_at| now.saturating_duration_since(told_at) >= REPEAT;
        self.told_at.is_none_or(is_past)
    }
}

/// Decisions that have not been reported.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    sums: HashMap<DecisionKey, PendingCount>,
    allowed: u64,
    failed: u64,
    refused: BTreeMap<&'static str, u64>,
    /// Bytes that have been reported: sent, received.
    told_bytes: (u64, u64),
}

impl Entries {
    fn count(&mut self, verdict: EgressVerdict, times: u64) {
        let counter = match verdict {
            EgressVerdict::Allowed => &mut self.allowed,
            EgressVerdict::Failed(_) => &mut self.failed,
            EgressVerdict::Refused(reason) => self.refused.entry(reason.word()).or_default(),
            EgressVerdict::Withheld(_) => self.refused.entry(WITHHELD_SECRET).or_default(),
        };
        *counter += times;
    }

    fn has_room(&self, verdict: EgressVerdict) -> bool {
        let kind = std::mem::discriminant(&verdict);
        let same = self.sums.keys();
        let same = same.filter(|key| std::mem::discriminant(&key.verdict) == kind);
        same.filter(|key| key.host.is_some()).count() < MAX_HOSTS_OF_A_KIND
    }
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if nothing is left to report and no recent report has to be remembered.
    pub(crate) fn is_empty(&self) -> bool {
        let now = Instant::now();
        self.entries().sums.values().all(|sum| sum.is_over(now))
    }

    /// Returns true if a decision has not been reported yet, including one that is held back.
    pub(crate) fn has_untold(&self) -> bool {
        self.entries().sums.values().any(|sum| sum.count > 0)
    }

    pub(crate) fn add(&self, key: DecisionKey) {
        let now = now_unix_ms();
        self.add_times(key, 1, now, now);
    }

    /// Adds the decisions that another ledger has reported. The caller counts its bytes.
    pub(crate) fn absorb(&self, decisions: &[DecisionSum]) {
        for sum in decisions {
            let key = DecisionKey {
                host: sum.host.clone(),
                port: sum.port,
                rule: sum.rule.clone(),
                verdict: sum.verdict,
            };
            self.add_times(key, sum.count, sum.first_unix_ms, sum.last_unix_ms);
        }
    }

    /// Adds a decision that was made `times` times between these two times.
    fn add_times(&self, key: DecisionKey, times: u64, first_unix_ms: u64, last_unix_ms: u64) {
        let mut entries = self.entries();
        entries.count(key.verdict, times);
        let key = if entries.sums.contains_key(&key) || entries.has_room(key.verdict) {
            key
        } else {
            DecisionKey::rest(key.verdict)
        };
        let sum = entries.sums.entry(key).or_insert(PendingCount {
            count: 0,
            first_unix_ms,
            last_unix_ms,
            told_at: None,
        });
        if sum.count == 0 {
            (sum.first_unix_ms, sum.last_unix_ms) = (first_unix_ms, last_unix_ms);
        }
        sum.count += times;
        sum.first_unix_ms = sum.first_unix_ms.min(first_unix_ms);
        sum.last_unix_ms = sum.last_unix_ms.max(last_unix_ms);
    }

    /// Takes the decisions that are due, at most `most` of them. With `is_last` those that are held
    /// back are due as well, because no later call follows. `carried` are the bytes sent and
    /// received so far in total.
    pub(crate) fn take(
        &self,
        carried: (u64, u64),
        open_connections: u64,
        most: usize,
        is_last: bool,
    ) -> TrafficNews {
        let now = Instant::now();
        let mut entries = self.entries();
        // Entries that need not be remembered make room for new hosts.
        entries.sums.retain(|_, sum| !sum.is_over(now));
        let mut due: Vec<(u64, DecisionKey)> = entries
            .sums
            .iter()
            .filter(|(_, sum)| sum.is_due(now) || (is_last && sum.count > 0))
            .map(|(key, sum)| (sum.first_unix_ms, key.clone()))
            .collect();
        due.sort_by_key(|(first, _)| *first);
        let has_more = due.len() > most;
        due.truncate(most);
        let mut decisions = Vec::with_capacity(due.len());
        for (first_unix_ms, key) in due {
            let Some(sum) = entries.sums.get_mut(&key) else {
                continue;
            };
            sum.told_at = Some(now);
            decisions.push(DecisionSum {
                host: key.host,
                port: key.port,
                rule: key.rule,
                verdict: key.verdict,
                count: std::mem::take(&mut sum.count),
                first_unix_ms,
                last_unix_ms: sum.last_unix_ms,
            });
        }
        let told = entries.told_bytes;
        // The caller read `carried` before this lock was taken. A concurrent call may have reported
        // more since then, and the subtraction would underflow.
        let carried = (carried.0.max(told.0), carried.1.max(told.1));
        entries.told_bytes = carried;
        let refused = std::mem::take(&mut entries.refused);
        TrafficNews {
            sent_bytes: carried.0 - told.0,
            received_bytes: carried.1 - told.1,
            allowed: std::mem::take(&mut entries.allowed),
            failed: std::mem::take(&mut entries.failed),
            refused: refused
                .into_iter()
                .map(|(word, count)| (word.to_owned(), count))
                .collect(),
            open_connections,
            decisions,
            has_more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNLISTED: EgressVerdict = EgressVerdict::Refused(EgressReason::Unlisted);

    fn add(ledger: &Ledger, host: &str, verdict: EgressVerdict) {
        ledger.add(DecisionKey::new(host, Some(443), None, verdict));
    }

    fn take(ledger: &Ledger, is_last: bool) -> TrafficNews {
        ledger.take((0, 0), 0, usize::MAX, is_last)
    }

    #[test]
    fn equal_decisions_are_told_together_and_not_again_at_once() {
        let ledger = Ledger::default();
        for _ in 0..3 {
            add(&ledger, "a.test", UNLISTED);
        }
        add(&ledger, "b.test", EgressVerdict::Allowed);
        let news = ledger.take((7, 9), 1, usize::MAX, false);
        let told: Vec<_> = news
            .decisions
            .iter()
            .map(|sum| (sum.host.as_deref(), sum.count))
            .collect();
        assert_eq!(told.len(), 2);
        assert!(told.contains(&(Some("a.test"), 3)) && told.contains(&(Some("b.test"), 1)));
        assert_eq!((news.sent_bytes, news.received_bytes), (7, 9));
        assert_eq!((news.allowed, news.failed), (1, 0));
        assert_eq!(news.refused, [("unlisted".to_owned(), 3)].into());

        // Numbers come at once, the same decision later or at the end.
        add(&ledger, "a.test", UNLISTED);
        let news = ledger.take((8, 9), 0, usize::MAX, false);
        assert_eq!((news.sent_bytes, news.received_bytes), (1, 0));
        assert_eq!(news.refused["unlisted"], 1);
        assert_eq!(news.decisions, []);
        let last = take(&ledger, true);
        assert_eq!(last.decisions.len(), 1);
        assert_eq!(last.decisions[0].count, 1);
        assert_eq!(take(&ledger, true), TrafficNews::default());
    }

    #[test]
    fn an_older_sum_of_bytes_tells_none_twice() {
        let ledger = Ledger::default();
        let told = |carried| {
            let news = ledger.take(carried, 0, usize::MAX, false);
            (news.sent_bytes, news.received_bytes)
        };
        assert_eq!(told((10, 20)), (10, 20));
        assert_eq!(told((4, 21)), (0, 1));
        assert_eq!(told((12, 8)), (2, 0));
        assert_eq!(told((12, 21)), (0, 0));
    }

    #[test]
    fn a_flood_of_names_is_bounded_and_hides_nothing_that_was_let_through() {
        let ledger = Ledger::default();
        for round in 0..50 {
            for number in 0..100 {
                add(&ledger, &format!("n{round}-{number}.test"), UNLISTED);
            }
            take(&ledger, false);
        }
        add(&ledger, "leak.test", EgressVerdict::Allowed);
        let news = take(&ledger, true);
        assert_eq!(news.decisions.len(), 2, "{news:?}");
        let of = |verdict| news.decisions.iter().find(|sum| sum.verdict == verdict);
        let (rest, leak) = (of(UNLISTED).unwrap(), of(EgressVerdict::Allowed).unwrap());
        assert_eq!(rest.host, None);
        assert_eq!(leak.host.as_deref(), Some("leak.test"));
        // Some of the rest was told before.
        assert!(rest.count <= 4900, "{rest:?}");
        assert!(ledger.entries().sums.len() <= MAX_HOSTS_OF_A_KIND + 2);
    }

    #[test]
    fn pages_lose_nothing() {
        let ledger = Ledger::default();
        for number in 0..90 {
            add(&ledger, &format!("n{number}.test"), UNLISTED);
        }
        let mut hosts = std::collections::BTreeSet::new();
        loop {
            let page = ledger.take((0, 0), 0, 20, false);
            assert!(page.decisions.len() <= 20);
            hosts.extend(page.decisions.into_iter().filter_map(|sum| sum.host));
            if !page.has_more {
                break;
            }
        }
        assert_eq!(hosts.len(), 90);
    }

    #[test]
    fn what_several_ledgers_told_is_one_account_within_the_same_bounds() {
        let whole = Ledger::default();
        for round in 0..3 {
            let one = Ledger::default();
            for number in 0..MAX_HOSTS_OF_A_KIND + 50 {
                add(&one, &format!("n{round}-{number}.test"), UNLISTED);
            }
            add(&one, "a.test", EgressVerdict::Allowed);
            add(&one, "a.test", EgressVerdict::Allowed);
            whole.absorb(&take(&one, true).decisions);
        }
        assert!(whole.has_untold());
        let news = take(&whole, false);
        let refused = 3 * (MAX_HOSTS_OF_A_KIND as u64 + 50);
        assert_eq!(news.allowed, 6);
        assert_eq!(news.refused, [("unlisted".to_owned(), refused)].into());
        let of = |verdict| {
            news.decisions
                .iter()
                .filter(move |sum| sum.verdict == verdict)
        };
        assert_eq!(of(EgressVerdict::Allowed).count(), 1);
        assert_eq!(of(EgressVerdict::Allowed).next().unwrap().count, 6);
        assert_eq!(of(UNLISTED).count(), MAX_HOSTS_OF_A_KIND + 1);
        let told: u64 = of(UNLISTED).map(|sum| sum.count).sum();
        assert_eq!(told, refused);
        // The same again is not told at once.
        whole.absorb(&news.decisions);
        assert_eq!(take(&whole, false).decisions, []);
        assert!(whole.has_untold());
        assert_eq!(take(&whole, true).decisions.len(), MAX_HOSTS_OF_A_KIND + 2);
        assert!(!whole.has_untold());
    }

    #[test]
    fn what_is_told_is_printable_and_short() {
        let ledger = Ledger::default();
        add(
            &ledger,
            &format!("\u{1b}[31m{}", "x".repeat(1000)),
            UNLISTED,
        );
        let news = take(&ledger, false);
        let host = news.decisions[0].host.as_deref().unwrap();
        assert!(!host.contains('\u{1b}') && host.chars().count() <= 256);
    }
}
