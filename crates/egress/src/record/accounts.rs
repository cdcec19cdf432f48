//! Traffic accounts of a sandbox: bytes and connections in total and for each host, and the limits
//! on them.

use crate::record::limits::{TrafficLimitChanges, TrafficLimits};
use crate::record::log::shown_host;
use crate::record::traffic::{ByteCounts, Direction};
use glovebox_proto::EgressReason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of hosts with an account of their own; all others share one.
const MAX_HOSTS: usize = 100;
/// Shorter pauses are skipped: the timer's resolution would make them longer than they should be.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

/// Traffic of one host, or of several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficSum {
    /// Bytes out of the sandbox.
    pub sent_bytes: u64,
    /// Bytes into the sandbox.
    pub received_bytes: u64,
    /// Number of connections that were allowed.
    pub connections: u64,
}

/// Traffic of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficStats {
    /// Sum over all hosts.
    pub total: TrafficSum,
    /// Number of connections that are open now.
    pub open_connections: u64,
    /// Number of refusals, including refused DNS queries and secrets that were not filled in.
    pub refusals: u64,
    /// Traffic of each host, ordered by name.
    pub hosts: Vec<(String, TrafficSum)>,
    /// Sum over the hosts without an account of their own.
    pub others: TrafficSum,
    /// Limits in force.
    pub limits: TrafficLimits,
}

/// Bytes and connections of one host.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) bytes: ByteCounts,
    connections: AtomicU64,
}

impl Account {
    fn sum(&self) -> TrafficSum {
        TrafficSum {
            sent_bytes: self.bytes.sent(),
            received_bytes: self.bytes.received(),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }
}

/// Sum over all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes sent and received.
    pub(crate) bytes: (u64, u64),
    pub(crate) open_connections: u64,
}

/// Decision about bytes that were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowControl {
    /// Pass the bytes on.
    Go,
    /// Pass the bytes on, and transfer no further bytes before this time has passed.
    Wait(Duration),
    /// The byte limit is used up: end the connection.
    Stop,
}

/// All counters and limits of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    limits: Mutex<TrafficLimits>,
    total: Account,
    open: AtomicU64,
    refusals: AtomicU64,
    hosts: Mutex<Hosts>,
    /// Time at which the bytes counted so far have passed at the limited rate. `None` if nothing
    /// was counted under the present limits.
    due: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Hosts {
    named: BTreeMap<String, Arc<Account>>,
    others: Arc<Account>,
}

impl Accounts {
    pub(crate) fn new(limits: TrafficLimits) -> Self {
        Self {
            limits: Mutex::new(limits),
            ..Self::default()
        }
    }

    /// Changes the limits with immediate effect. An open connection that a lower limit would not
    /// have allowed continues until the byte limit stops it.
    pub(crate) fn change_limits(&self, changes: TrafficLimitChanges) {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.change(changes);
        // Otherwise a backlog from the old rate would delay the next bytes.
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn limits(&self) -> TrafficLimits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection. The caller must call [`Self::close`] when it ends.
    ///
    /// # Errors
    /// The limit that refuses the connection.
    pub(crate) fn open(&self, host: &str) -> Result<Arc<Account>, EgressReason> {
        if self.is_used_up() {
            return Err(EgressReason::ByteLimit);
        }
        // Counted before the comparison, so that two connections opened at the same time cannot
        // both take the last place.
        let open = self.open.fetch_add(1, Ordering::Relaxed);
        if self
            .limits()
            .connections
            .is_some_and(|most| open >= u64::from(most))
        {
            self.close();
            return Err(EgressReason::ConnectionLimit);
        }
        let mut hosts = self.hosts();
        let shown = shown_host(host);
        let account = if hosts.named.len() < MAX_HOSTS || hosts.named.contains_key(&shown) {
            Arc::clone(hosts.named.entry(shown).or_default())
        } else {
            Arc::clone(&hosts.others)
        };
        for account in [&account, &self.total] {
            account.connections.fetch_add(1, Ordering::Relaxed);
        }
        Ok(account)
    }

    pub(crate) fn close(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts bytes against the limits and returns the pace at which they may be passed on.
    pub(crate) fn count(&self, direction: Direction, bytes: u64) -> FlowControl {
        self.total.bytes.add(direction, bytes);
        let limits = self.limits();
        if limits
            .bytes
            .is_some_and(|most| self.total.bytes.total() > most)
        {
            return FlowControl::Stop;
        }
        match limits.bytes_per_second {
            Some(rate) => self.pace(rate, bytes),
            None => FlowControl::Go,
        }
    }

    /// Returns the maximum number of bytes to transfer at once. With a rate limit it is a tenth of
    /// a second's bytes, so that a slow connection flows evenly. With a byte limit it is the rest,
    /// but at least 1, so that at most one byte exceeds the limit.
    pub(crate) fn most_at_once(&self) -> usize {
        let limits = self.limits();
        let pace = limits.bytes_per_second.map_or(u64::MAX, |rate| rate / 10);
        let room = limits.bytes.map_or(u64::MAX, |most| {
            most.saturating_sub(self.total.bytes.total())
        });
        usize::try_from(pace.min(room).max(1)).unwrap_or(usize::MAX)
    }

    fn is_used_up(&self) -> bool {
        self.limits()
            .bytes
            .is_some_and(|most| self.total.bytes.total() >= most)
    }

    fn pace(&self, rate: u64, bytes: u64) -> FlowControl {
        let now = Instant::now();
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let span = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let from = due.filter(|due| *due > now).unwrap_or(now);
        let next = from.checked_add(span).unwrap_or(from);
        *due = Some(next);
        let wait = next.saturating_duration_since(now);
        if wait < SHORTEST_WAIT {
            FlowControl::Go
        } else {
            FlowControl::Wait(wait)
        }
    }

    /// Returns the sums without those of the hosts.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            bytes: (self.total.bytes.sent(), self.total.bytes.received()),
            open_connections: self.open.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn stats(&self) -> TrafficStats {
        let hosts = self.hosts();
        TrafficStats {
            total: self.total.sum(),
            open_connections: self.open.load(Ordering::Relaxed),
            refusals: self.refusals.load(Ordering::Relaxed),
            hosts: hosts
                .named
                .iter()
                .map(|(host, account)| (host.clone(), account.sum()))
                .collect(),
            others: hosts.others.sum(),
            limits: self.limits(),
        }
    }

    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::limits::LimitChange;

    #[test]
    fn hosts_are_counted_one_by_one_up_to_a_bound() {
        let accounts = Accounts::default();
        for number in 0..MAX_HOSTS + 5 {
            let account = accounts.open(&format!("n{number}.example")).unwrap();
            account.bytes.add(Direction::Sent, 1);
            accounts.count(Direction::Sent, 1);
        }
        accounts.open("n1.example").unwrap();
        accounts.close();
        let stats = accounts.stats();
        assert_eq!(stats.hosts.len(), MAX_HOSTS);
        assert_eq!((stats.others.connections, stats.others.sent_bytes), (5, 5));
        let total = MAX_HOSTS as u64 + 5;
        assert_eq!(
            (stats.total.sent_bytes, stats.total.connections),
            (total, total + 1)
        );
        assert_eq!(stats.open_connections, total);
        let second = stats.hosts.iter().find(|(host, _)| host == "n1.example");
        assert_eq!(second.unwrap().1.connections, 2);
    }

    #[test]
    fn a_limit_lets_through_what_it_says_and_no_more() {
        let accounts = Accounts::new(TrafficLimits {
            bytes: Some(100),
            connections: Some(2),
            bytes_per_second: None,
        });
        accounts.open("a.example").unwrap();
        accounts.open("b.example").unwrap();
        assert_eq!(
            accounts.open("a.example").unwrap_err(),
            EgressReason::ConnectionLimit
        );
        accounts.close();
        accounts.open("a.example").unwrap();
        assert_eq!(accounts.count(Direction::Sent, 60), FlowControl::Go);
        assert_eq!(accounts.most_at_once(), 40);
        assert_eq!(accounts.count(Direction::Received, 40), FlowControl::Go);
        assert_eq!(accounts.most_at_once(), 1);
        accounts.close();
        assert_eq!(
            accounts.open("a.example").unwrap_err(),
            EgressReason::ByteLimit
        );
        assert_eq!(accounts.count(Direction::Received, 1), FlowControl::Stop);
        assert_eq!(accounts.stats().open_connections, 1);
    }

    #[test]
    fn limits_change_one_by_one_and_hold_at_once() {
        let accounts = Accounts::new(TrafficLimits {
            bytes: Some(100),
            connections: Some(1),
            bytes_per_second: Some(1),
        });
        accounts.open("a.example").unwrap();
        assert!(matches!(
            accounts.count(Direction::Sent, 100),
            FlowControl::Wait(_)
        ));
        accounts.change_limits(TrafficLimitChanges {
            bytes: LimitChange::Set(150),
            bytes_per_second: LimitChange::Remove,
            ..TrafficLimitChanges::default()
        });
        assert_eq!(accounts.count(Direction::Sent, 50), FlowControl::Go);
        accounts.change_limits(TrafficLimitChanges {
            bytes: LimitChange::Set(120),
            ..TrafficLimitChanges::default()
        });
        assert_eq!(accounts.count(Direction::Sent, 1), FlowControl::Stop);
        accounts.change_limits(TrafficLimitChanges {
            bytes: LimitChange::Remove,
            ..TrafficLimitChanges::default()
        });
        assert_eq!(
            accounts.open("a.example").unwrap_err(),
            EgressReason::ConnectionLimit
        );
        let left = TrafficLimits {
            connections: Some(1),
            ..TrafficLimits::default()
        };
        assert_eq!(accounts.stats().limits, left);
    }

    #[test]
    fn a_rate_makes_the_next_bytes_wait() {
        let accounts = Accounts::new(TrafficLimits {
            bytes_per_second: Some(1000),
            ..TrafficLimits::default()
        });
        assert_eq!(accounts.most_at_once(), 100);
        assert_eq!(accounts.count(Direction::Sent, 1), FlowControl::Go);
        let FlowControl::Wait(first) = accounts.count(Direction::Sent, 500) else {
            panic!("no wait");
        };
        let FlowControl::Wait(second) = accounts.count(Direction::Received, 500) else {
            panic!("no wait");
        };
        let near = |wait: Duration, ms: u64| {
            wait.abs_diff(Duration::from_millis(ms)) < Duration::from_millis(50)
        };
        assert!(
            near(first, 500) && near(second, 1000),
            "{first:?} {second:?}"
        );
    }
}
