//! Log of the decisions about a sandbox's connections: a bounded list, oldest first.
//!
//! It has three uses: the refusals that explain a failed command ([`Log::denials`]), the history of
//! the sandbox ([`Log::page`]), and following it live ([`Log::changes`]). A DNS query that was
//! answered has no record; the connection that follows it has one.

use crate::ConnectFailure;
use crate::proxy_variable::ProxyVariable;
use crate::record::traffic::Traffic;
use glovebox_proto::{Denial, EgressReason, MAX_DENIALS, SecretReason};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Maximum number of records; older ones are removed.
const MAX_RECORDS: usize = 2000;
/// Maximum number of characters of a host. Every name that a rule can list is shorter.
const MAX_HOST_CHARS: usize = 256;

/// Decision of the log, for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogEntry {
    /// Sequence number of the decision, from 1.
    pub number: u64,
    /// Sequence number of the latest change of this entry, among all decisions and ends of
    /// connections, from 1.
    pub change: u64,
    /// Time of the decision, in milliseconds since the Unix epoch.
    pub when_unix_ms: u64,
    /// Requested host in printable form.
    pub host: String,
    /// Port of the connection. `None` for a DNS query.
    pub port: Option<u16>,
    /// Reason of the refusal. `None` if the host was allowed, or if a secret was not filled in.
    pub refused: Option<EgressReason>,
    /// Secret that was not filled in. `None` if that is not the reason of this entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<WithheldSecret>,
    /// Reason for which an allowed host could not be reached. `None` if it was reached or refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ConnectFailure>,
    /// Rule that decided. `None` if no rule matched.
    pub rule: Option<String>,
    /// Bytes that the connection has carried out of the sandbox.
    pub sent_bytes: u64,
    /// Bytes that the connection has carried into the sandbox.
    pub received_bytes: u64,
    /// Duration of the connection, in milliseconds. `None` while it is open, and if there was none.
    pub duration_ms: Option<u64>,
}

impl LogEntry {
    /// Returns true if the entry is a refusal of the host or of a secret.
    pub const fn is_refused(&self) -> bool {
        self.refused.is_some() || self.withheld.is_some()
    }
}

/// Secret that was not filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithheldSecret {
    /// Name of the secret.
    pub secret: String,
    /// Reason for which it was not filled in.
    pub reason: SecretReason,
}

/// Decision of the log.
#[derive(Debug)]
struct Record {
    number: u64,
    /// Sequence number of the latest change of this record.
    change: u64,
    /// Time of the decision on the clock of [`now_ns`], in nanoseconds.
    when_ns: u64,
    when_unix_ms: u64,
    host: String,
    port: Option<u16>,
    rule: Option<String>,
    decision: Decision,
}

#[derive(Debug)]
enum Decision {
    Refused(EgressReason),
    Withheld(WithheldSecret),
    Allowed(Arc<Traffic>),
    /// Allowed, but the host could not be resolved.
    Failed(ConnectFailure),
}

impl Record {
    /// Returns true if both records are refusals of the same host and port for the same reason.
    fn is_like(&self, other: &Self) -> bool {
        let is_same_decision = match (&self.decision, &other.decision) {
            (Decision::Refused(one), Decision::Refused(other)) => one == other,
            (Decision::Withheld(one), Decision::Withheld(other)) => one == other,
            _ => {
                let failure = self.proxy_failure();
                failure.is_some() && failure == other.proxy_failure()
            }
        };
        is_same_decision && (&self.host, self.port) == (&other.host, other.port)
    }

    fn denial(&self, attempts: u64, is_shared: bool) -> Option<Denial> {
        match &self.decision {
            Decision::Refused(reason) => Some(Denial::Egress {
                host: self.host.clone(),
                port: self.port,
                reason: *reason,
                attempts,
                is_shared,
            }),
            Decision::Withheld(withheld) => Some(Denial::Secret {
                secret: withheld.secret.clone(),
                host: self.host.clone(),
                port: self.port.unwrap_or_default(),
                reason: withheld.reason,
                attempts,
                is_shared,
            }),
            Decision::Allowed(_) | Decision::Failed(_) => {
                let (variable, status) = self.proxy_failure()?;
                Some(Denial::Proxy {
                    variable: variable.name().to_owned(),
                    host: self.host.clone(),
                    port: self.port.unwrap_or_default(),
                    status,
                    attempts,
                    is_shared,
                })
            }
        }
    }

    /// Returns the variable of the machine's proxy that gave no connection, and the status of its
    /// response. The status is `None` if there was no response. The result is `None` if this did
    /// not happen.
    fn proxy_failure(&self) -> Option<(ProxyVariable, Option<u16>)> {
        let failure = match &self.decision {
            Decision::Allowed(traffic) => traffic.failure()?,
            Decision::Failed(failure) => *failure,
            Decision::Refused(_) | Decision::Withheld(_) => return None,
        };
        match failure {
            ConnectFailure::ProxyRefused { variable, status } => Some((variable, Some(status))),
            ConnectFailure::ProxyUnreached { variable } => Some((variable, None)),
            _ => None,
        }
    }

    fn entry(&self) -> LogEntry {
        let (refused, withheld, traffic) = match &self.decision {
            Decision::Refused(reason) => (Some(*reason), None, None),
            Decision::Withheld(secret) => (None, Some(secret.clone()), None),
            Decision::Allowed(traffic) => (None, None, Some(traffic)),
            Decision::Failed(_) => (None, None, None),
        };
        let failure = match &self.decision {
            Decision::Failed(failure) => Some(*failure),
            // Reported only when the connection has ended, so that a follower sees the failure
            // once.
            _ => traffic
                .filter(|traffic| traffic.duration().is_some())
                .and_then(|traffic| traffic.failure()),
        };
        LogEntry {
            number: self.number,
            change: self.change,
            when_unix_ms: self.when_unix_ms,
            host: self.host.clone(),
            port: self.port,
            refused,
            withheld,
            failure,
            rule: self.rule.clone(),
            sent_bytes: traffic.map_or(0, |traffic| traffic.bytes.sent()),
            received_bytes: traffic.map_or(0, |traffic| traffic.bytes.received()),
            duration_ms: traffic
                .and_then(|traffic| traffic.duration())
                .map(|duration| duration.as_millis() as u64),
        }
    }
}

/// Returns the time of `CLOCK_MONOTONIC` (clock_gettime(2)) in nanoseconds. The guest's reports use
/// the same clock.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000) + now.tv_nsec as u64
}

/// Returns the time in milliseconds since the Unix epoch.
pub(crate) fn now_unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

/// Returns a host in printable form, cut to [`MAX_HOST_CHARS`] characters.
pub(crate) fn shown_host(host: &str) -> String {
    let shown = glovebox_proto::visible::line_of_text(host);
    match shown.char_indices().nth(MAX_HOST_CHARS) {
        Some((end, _)) => shown.get(..end).unwrap_or_default().to_owned(),
        None => shown,
    }
}

/// The latest decisions of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Log {
    records: Mutex<Records>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Records {
    list: VecDeque<Record>,
    /// Number of the newest record.
    last: u64,
    /// Number of decisions and ends of connections so far.
    changes: u64,
}

impl Records {
    fn change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }
}

impl Log {
    pub(crate) fn refused(
        &self,
        host: &str,
        port: Option<u16>,
        reason: EgressReason,
        rule: Option<String>,
    ) {
        self.add(host, port, rule, Decision::Refused(reason), now_ns());
    }

    pub(crate) fn failed(
        &self,
        host: &str,
        port: Option<u16>,
        rule: String,
        failure: ConnectFailure,
    ) {
        self.add(host, port, Some(rule), Decision::Failed(failure), now_ns());
    }

    /// Adds an allowed connection and returns the number of its record.
    pub(crate) fn allowed(
        &self,
        host: &str,
        port: u16,
        rule: Option<String>,
        traffic: Arc<Traffic>,
    ) -> u64 {
        self.add(host, Some(port), rule, Decision::Allowed(traffic), now_ns())
    }

    /// Marks the end of the connection with this record number and wakes followers.
    pub(crate) fn ended(&self, number: u64) {
        let mut records = self.records();
        let Ok(index) = records
            .list
            .binary_search_by_key(&number, |record| record.number)
        else {
            // The record has been removed, so that followers have no change to see.
            return;
        };
        let change = records.change();
        if let Some(record) = records.list.get_mut(index) {
            record.change = change;
        }
        drop(records);
        self.changed.notify_all();
    }

    /// Adds a secret that was not filled in. `when_ns` is a time on the clock of [`now_ns`].
    pub(crate) fn withheld(
        &self,
        secret: &str,
        host: &str,
        port: u16,
        reason: SecretReason,
        when_ns: u64,
    ) {
        let secret = WithheldSecret {
            secret: secret.to_owned(),
            reason,
        };
        let decision = Decision::Withheld(secret);
        self.add(host, Some(port), None, decision, when_ns);
    }

    fn add(
        &self,
        host: &str,
        port: Option<u16>,
        rule: Option<String>,
        decision: Decision,
        when_ns: u64,
    ) -> u64 {
        let mut records = self.records();
        if records.list.len() == MAX_RECORDS {
            records.list.pop_front();
        }
        records.last += 1;
        let number = records.last;
        let record = Record {
            number,
            change: records.change(),
            when_ns,
            when_unix_ms: now_unix_ms(),
            host: shown_host(host),
            port,
            rule,
            decision,
        };
        records.list.push_back(record);
        drop(records);
        self.changed.notify_all();
        number
    }

    /// Returns at most `most` entries with a number above `after`, oldest first.
    pub(crate) fn page(&self, after: u64, most: usize) -> Vec<LogEntry> {
        let records = self.records();
        let first = records
            .list
            .partition_point(|record| record.number <= after);
        let entries = records.list.iter().skip(first).take(most);
        entries.map(Record::entry).collect()
    }

    /// Returns at most `most` entries with a change number above `after`, in the order of their
    /// changes. If there are none, waits up to `wait` for one.
    pub(crate) fn changes(&self, after: u64, most: usize, wait: Duration) -> Vec<LogEntry> {
        let waited = self
            .changed
            .wait_timeout_while(self.records(), wait, |records| records.changes <= after);
        let (records, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_new = |record: &&Record| record.change > after;
        let mut found: Vec<&Record> = records.list.iter().filter(is_new).collect();
        found.sort_unstable_by_key(|record| record.change);
        found.into_iter().take(most).map(Record::entry).collect()
    }

    /// Returns one denial for each host, port and reason that was refused in this time, at most the
    /// latest [`MAX_DENIALS`].
    pub(crate) fn denials(&self, during: RangeInclusive<u64>, is_shared: bool) -> Vec<Denial> {
        let records = self.records();
        let mut found: Vec<(&Record, u64)> = Vec::new();
        let during = records
            .list
            .iter()
            .filter(|record| during.contains(&record.when_ns));
        let is_refusal = |record: &&Record| {
            matches!(
                record.decision,
                Decision::Refused(_) | Decision::Withheld(_)
            ) || record.proxy_failure().is_some()
        };
        for record in during.filter(is_refusal) {
            let same = found.iter_mut().find(|(other, _)| record.is_like(other));
            match same {
                Some((_, attempts)) => *attempts += 1,
                None => found.push((record, 1)),
            }
        }
        let first = found.len().saturating_sub(MAX_DENIALS);
        let latest = found.into_iter().skip(first);
        latest
            .filter_map(|(record, attempts)| record.denial(attempts, is_shared))
            .collect()
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::traffic::Direction;

    fn refuse(log: &Log, host: &str, port: Option<u16>, reason: EgressReason) {
        log.refused(host, port, reason, None);
    }

    #[test]
    fn equal_refusals_are_one_denial() {
        let log = Log::default();
        refuse(&log, "old.example", None, EgressReason::Unlisted);
        let since = now_ns();
        for _ in 0..3 {
            refuse(&log, "a.example", None, EgressReason::Unlisted);
        }
        log.allowed("fine.example", 443, None, Arc::new(Traffic::begin()));
        refuse(&log, "a.example", Some(22), EgressReason::Port);
        for when_ns in [since - 1, since, since + 1] {
            log.withheld("T", "b.example", 443, SecretReason::OtherHost, when_ns);
        }
        let found = log.denials(since..=u64::MAX, false);
        assert_eq!(found.len(), 3);
        assert!(matches!(&found[2], Denial::Secret { attempts: 2, .. }));
        assert!(matches!(
            &found[0],
            Denial::Egress {
                attempts: 3,
                port: None,
                ..
            }
        ));
    }

    #[test]
    fn it_is_bounded_and_printable() {
        let log = Log::default();
        for number in 0..2 * MAX_RECORDS {
            let host = format!("n{number}\u{1b}.{}", "x".repeat(1000));
            refuse(&log, &host, None, EgressReason::Unlisted);
        }
        assert_eq!(log.denials(0..=u64::MAX, true).len(), MAX_DENIALS);
        let all = log.page(0, usize::MAX);
        assert_eq!(all.len(), MAX_RECORDS);
        assert_eq!(all.last().unwrap().number, 2 * MAX_RECORDS as u64);
        for entry in all {
            assert!(!entry.host.contains('\u{1b}') && entry.host.chars().count() <= MAX_HOST_CHARS);
        }
    }

    #[test]
    fn changes_come_in_their_order_and_are_waited_for() {
        let log = Arc::new(Log::default());
        let traffic = Arc::new(Traffic::begin());
        let number = log.allowed("a.example", 443, None, Arc::clone(&traffic));
        refuse(&log, "b.example", None, EgressReason::Unlisted);
        log.failed(
            "c.example",
            None,
            "c.example".to_owned(),
            ConnectFailure::UnknownName,
        );
        let hosts = |entries: &[LogEntry]| -> Vec<String> {
            entries.iter().map(|entry| entry.host.clone()).collect()
        };
        let first = log.changes(0, 10, Duration::ZERO);
        assert_eq!(hosts(&first), ["a.example", "b.example", "c.example"]);
        assert_eq!(first[2].failure, Some(ConnectFailure::UnknownName));
        let last = first[2].change;
        assert_eq!(log.changes(last, 10, Duration::ZERO), []);

        let waiting = Arc::clone(&log);
        let waiter = std::thread::spawn(move || waiting.changes(last, 10, Duration::from_mins(1)));
        traffic.fail(ConnectFailure::Refused);
        traffic.end();
        log.ended(number);
        let news = waiter.join().unwrap();
        assert_eq!(hosts(&news), ["a.example"]);
        assert_eq!(news[0].failure, Some(ConnectFailure::Refused));
        assert_eq!(
            hosts(&log.changes(1, 10, Duration::ZERO)),
            ["b.example", "c.example", "a.example"]
        );
        assert_eq!(hosts(&log.changes(0, 1, Duration::ZERO)), ["b.example"]);

        // The end of one that is no longer kept is no change: a follower would ask for it for ever.
        for _ in 0..MAX_RECORDS {
            refuse(&log, "d.example", None, EgressReason::Unlisted);
        }
        let newest = log.page(0, usize::MAX).last().unwrap().change;
        log.ended(number);
        assert_eq!(log.changes(newest, 10, Duration::ZERO), []);
    }

    #[test]
    fn pages_follow_each_other_and_tell_what_an_open_connection_carries() {
        let log = Log::default();
        let traffic = Arc::new(Traffic::begin());
        log.allowed(
            "a.example",
            443,
            Some("*.example".to_owned()),
            Arc::clone(&traffic),
        );
        refuse(&log, "b.example", None, EgressReason::Unlisted);
        traffic.bytes.add(Direction::Sent, 7);
        traffic.bytes.add(Direction::Received, 11);
        let first = log.page(0, 1).remove(0);
        assert_eq!(
            (first.sent_bytes, first.received_bytes, first.duration_ms),
            (7, 11, None)
        );
        assert_eq!(first.rule.as_deref(), Some("*.example"));
        traffic.end();
        assert!(log.page(0, 1)[0].duration_ms.is_some());
        let second = log.page(first.number, 10);
        assert_eq!(second.len(), 1);
        assert_eq!(second[0].refused, Some(EgressReason::Unlisted));
        assert_eq!(log.page(second[0].number, 10), []);
    }
}
