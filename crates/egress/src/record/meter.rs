//! Meter of one connection: counts its bytes, and stops or slows it when a limit is reached.

use crate::ConnectFailure;
use crate::policy::name::Host;
use crate::record::accounts::{Account, FlowControl};
use crate::record::control::Control;
use crate::record::ledger::EgressVerdict;
use crate::record::traffic::{Direction, Traffic};
use glovebox_proto::EgressReason;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Counter of one connection. Dropping it completes the connection's records.
#[derive(Debug)]
pub(crate) struct Meter {
    control: Arc<Control>,
    /// Number of the connection's record in the log.
    number: u64,
    traffic: Arc<Traffic>,
    account: Arc<Account>,
    host: String,
    port: u16,
    /// Rule that allowed the connection.
    rule: Option<String>,
    /// True if the result of connecting has been recorded.
    is_settled: AtomicBool,
    is_stopped: AtomicBool,
    has_sent_all: AtomicBool,
}

impl Meter {
    /// Begins the records of a connection that the policy has allowed. `None` if a limit refuses
    /// it.
    pub(crate) fn begin(control: &Arc<Control>, host: &Host, port: u16) -> Option<Arc<Self>> {
        let shown = host.to_string();
        let account = match control.accounts.open(&shown) {
            Ok(account) => account,
            Err(reason) => {
                control.refuse(&shown, Some(port), reason, None);
                return None;
            }
        };
        let policy = control.policy.in_force();
        let rule = policy.decide(host, port).ok().map(ToString::to_string);
        let traffic = Arc::new(Traffic::begin());
        control.begin_sending();
        let number = control
            .log
            .allowed(&shown, port, rule.clone(), Arc::clone(&traffic));
        Some(Arc::new(Self {
            control: Arc::clone(control),
            number,
            traffic,
            account,
            host: shown,
            port,
            rule,
            is_settled: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            has_sent_all: AtomicBool::new(false),
        }))
    }

    /// Repeats the decision for a further connection to the host, because its rule may have
    /// expired.
    ///
    /// # Errors
    /// An I/O error if the host is not allowed any longer. The refusal is recorded.
    pub(crate) fn decide_again(&self, host: &Host) -> io::Result<()> {
        let policy = self.control.policy.in_force();
        let decision = policy.decide(host, self.port);
        decision.map(drop).map_err(|reason| {
            self.control
                .refuse(&self.host, Some(self.port), reason, None);
            io::Error::other("the rule that opened it has ended")
        })
    }

    /// Counts bytes that the program has sent or receives, and returns the pace at which they may
    /// be passed on.
    pub(crate) fn count(&self, direction: Direction, bytes: usize) -> FlowControl {
        let bytes = bytes as u64;
        self.traffic.bytes.add(direction, bytes);
        self.account.bytes.add(direction, bytes);
        let flow = self.control.accounts.count(direction, bytes);
        if flow == FlowControl::Stop && !self.is_stopped.swap(true, Ordering::Relaxed) {
            let reason = EgressReason::ByteLimit;
            self.control
                .refuse(&self.host, Some(self.port), reason, None);
        }
        flow
    }

    /// Records that the host could not be connected to.
    pub(crate) fn fail(&self, failure: ConnectFailure) {
        self.traffic.fail(failure);
        self.settle(EgressVerdict::Failed(failure));
    }

    /// Records that the host was connected to.
    pub(crate) fn connected(&self) {
        self.settle(EgressVerdict::Allowed);
    }

    /// Records the result of the first connection to the host. Later ones record nothing.
    fn settle(&self, verdict: EgressVerdict) {
        if !self.is_settled.swap(true, Ordering::Relaxed) {
            let rule = self.rule.clone();
            self.control
                .decided(&self.host, Some(self.port), rule, verdict);
        }
    }

    /// Records that the program sends nothing further and all its data has been passed on.
    pub(crate) fn sent_all(&self) {
        if !self.has_sent_all.swap(true, Ordering::Relaxed) {
            self.control.end_sending();
        }
    }

    /// Returns the maximum number of bytes to transfer at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.control.accounts.most_at_once()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.sent_all();
        // Without a result the connection was given up, or refused for another reason, before the
        // host was dialled. It was allowed nevertheless.
        self.settle(EgressVerdict::Allowed);
        // The duration is set before followers are woken: otherwise they would see the entry
        // without its end and would not be woken again.
        self.traffic.end();
        self.control.log.ended(self.number);
        self.control.accounts.close();
    }
}
