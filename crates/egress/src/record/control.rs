//! What holds for a sandbox's network for as long as the sandbox runs, over every proxy it has in that time: the rules
//! in force, what was decided by them, what was carried.

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

/// The rules, the log and the accounts of one sandbox.
#[derive(Debug)]
pub struct Control {
    pub(crate) policy: LivePolicy,
    pub(crate) accounts: Accounts,
    pub(crate) log: Log,
    ledger: Ledger,
    /// Connections whose programs may have sent what has not been passed on.
    sending: AtomicUsize,
}

impl Control {
    /// Nothing decided and nothing carried yet.
    pub fn new(policy: Policy, limits: TrafficLimits) -> Self {
        Self {
            policy: LivePolicy::new(policy),
            accounts: Accounts::new(limits),
            log: Log::default(),
            ledger: Ledger::default(),
            sending: AtomicUsize::new(0),
        }
    }

    /// The rules that hold now.
    pub fn rules(&self) -> Vec<RuleInForce> {
        self.policy.list()
    }

    /// At most `most` decisions after the one with this number, oldest first; 0 stands before all.
    pub fn log(&self, after: u64, most: usize) -> Vec<LogEntry> {
        self.log.page(after, most)
    }

    /// At most `most` decisions that were made, and connections that ended, after the change with this number, in that
    /// order; 0 stands before all. While there are none it waits, at most so long.
    pub fn log_changes(&self, after: u64, most: usize, wait: Duration) -> Vec<LogEntry> {
        self.log.changes(after, most, wait)
    }

    /// What was carried so far.
    pub fn stats(&self) -> TrafficStats {
        self.accounts.stats()
    }

    /// What was decided and carried since this was asked for last, with at most so many decisions: for one who asks
    /// again and again, and keeps the accounts. Equal decisions come together, those that were told a short while ago
    /// later; all of them where `is_last` says that nobody asks again.
    pub fn take_news(&self, most: usize, is_last: bool) -> TrafficNews {
        let stats = self.accounts.totals();
        self.ledger
            .take(stats.bytes, stats.open_connections, most, is_last)
    }

    /// Sets limits that hold at once, over what was carried before too.
    pub fn change_limits(&self, changes: TrafficLimitChanges) {
        self.accounts.change_limits(changes);
    }

    /// What was refused between two moments of CLOCK_MONOTONIC, in nanoseconds. `is_shared` says that more than one
    /// command ran.
    pub fn denials(&self, during: RangeInclusive<u64>, is_shared: bool) -> Vec<Denial> {
        self.log.denials(during, is_shared)
    }

    /// Whether some program may have sent what has not been passed on.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn begin_sending(&self) {
        self.sending.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_sending(&self) {
        self.sending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Writes down that a secret was not filled in.
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

    /// Writes down that a host was let through by this rule, and that there is nothing to connect to.
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

    /// Counts a decision for whoever keeps accounts.
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
