//! State of a sandbox's network over all proxies that run for it: the rules in force, the
//! decisions, and the transferred bytes.

use crate::ConnectFailure;
use crate::policy::Policy;
use crate::policy::live_policy::{LivePolicy, RuleInForce};
use crate::record::accounts::{Accounts, TrafficStats};
use crate::record::ledger::{DecisionKey, EgressVerdict, Ledger, TrafficNews};
use crate::record::limits::{TrafficLimitChanges, TrafficLimits};
use crate::record::log::{Log, LogEntry};
use glovebox_proto::{Denial, EgressReason, SecretReason};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Rules, log and accounts of one sandbox.
#[derive(Debug)]
pub struct Control {
    pub(crate) policy: LivePolicy,
    pub(crate) accounts: Accounts,
    pub(crate) log: Log,
    ledger: Ledger,
    /// Number of connections whose programs may have sent data that has not been passed on.
    sending: AtomicUsize,
}

impl Control {
    /// Creates the state of a new sandbox, without decisions and traffic.
    pub fn new(policy: Policy, limits: TrafficLimits) -> Self {
        Self {
            policy: LivePolicy::new(policy),
            accounts: Accounts::new(limits),
            log: Log::default(),
            ledger: Ledger::default(),
            sending: AtomicUsize::new(0),
        }
    }

    /// Returns the rules in force.
    pub fn rules(&self) -> Vec<RuleInForce> {
        self.policy.list()
    }

    /// Returns at most `most` decisions with a number above `after`, oldest first. Numbers begin at
    /// 1.
    pub fn log(&self, after: u64, most: usize) -> Vec<LogEntry> {
        self.log.page(after, most)
    }

    /// Returns at most `most` changes with a number above `after`, in their order: decisions, and
    /// ends of connections. If there are none, waits up to `wait` for one.
    pub fn log_changes(&self, after: u64, most: usize, wait: Duration) -> Vec<LogEntry> {
        self.log.changes(after, most, wait)
    }

    /// Returns the traffic so far.
    pub fn stats(&self) -> TrafficStats {
        self.accounts.stats()
    }

    /// Takes the decisions and traffic since the previous call, with at most `most` decisions. It
    /// is meant for a caller that polls and keeps accounts. Equal decisions are combined, and those
    /// that were reported within the last ten minutes are held back. With `is_last` nothing is held
    /// back, because no later call follows.
    pub fn take_news(&self, most: usize, is_last: bool) -> TrafficNews {
        let stats = self.accounts.totals();
        self.ledger
            .take(stats.bytes, stats.open_connections, most, is_last)
    }

    /// Changes the limits with immediate effect. Earlier traffic counts against them.
    pub fn change_limits(&self, changes: TrafficLimitChanges) {
        self.accounts.change_limits(changes);
    }

    /// Returns the refusals between two times of `CLOCK_MONOTONIC`, in nanoseconds. `is_shared` is
    /// true if more than one command ran in that time.
    pub fn denials(&self, during: RangeInclusive<u64>, is_shared: bool) -> Vec<Denial> {
        self.log.denials(during, is_shared)
    }

    /// Returns true if a program may have sent data that has not been passed on.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn begin_sending(&self) {
        self.sending.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_sending(&self) {
        self.sending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that a secret was not filled in. `when_ns` is a time of `CLOCK_MONOTONIC` in
    /// nanoseconds.
    pub(crate) fn withhold(
        &self,
        secret: &str,
        host: &str,
        port: u16,
        reason: SecretReason,
        when_ns: u64,
    ) {
        self.accounts.count_refusal();
        self.decided(host, Some(port), None, EgressVerdict::Withheld(reason));
        self.log.withheld(secret, host, port, reason, when_ns);
    }

    pub(crate) fn refuse(
        &self,
        host: &str,
        port: Option<u16>,
        reason: EgressReason,
        rule: Option<String>,
    ) {
        self.accounts.count_refusal();
        self.decided(host, port, rule.clone(), EgressVerdict::Refused(reason));
        self.log.refused(host, port, reason, rule);
    }

    /// Records that a rule allowed a host which could not be resolved.
    pub(crate) fn fail(
        &self,
        host: &str,
        port: Option<u16>,
        rule: String,
        failure: ConnectFailure,
    ) {
        let verdict = EgressVerdict::Failed(failure);
        self.decided(host, port, Some(rule.clone()), verdict);
        self.log.failed(host, port, rule, failure);
    }

    /// Adds a decision to the ledger.
    pub(crate) fn decided(
        &self,
        host: &str,
        port: Option<u16>,
        rule: Option<String>,
        verdict: EgressVerdict,
    ) {
        self.ledger.add(DecisionKey::new(host, port, rule, verdict));
    }
}
