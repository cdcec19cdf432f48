//! Counts what a connection carries, and stops or slows it where a limit says so.

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

/// Counts one connection. Dropping it ends the connection's records.
#[derive(Debug)]
pub(crate) struct Meter {
    control: Arc<Control>,
    /// Of its record in the log.
    number: u64,
    traffic: Arc<Traffic>,
    account: Arc<Account>,
    host: String,
    port: u16,
    /// The rule that let it through.
    rule: Option<String>,
    /// It was told what came of it.
    is_settled: AtomicBool,
    is_stopped: AtomicBool,
    has_sent_all: AtomicBool,
}

impl Meter {
    /// Begins the records of a connection that the policy has let through; `None` when a limit does not.
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

    /// Decides once more about a host whose connection is made anew: its rule may have ended.
    pub(crate) fn decide_again(&self, host: &Host) -> io::Result<()> {
        let policy = self.control.policy.in_force();
        let decision = policy.decide(host, self.port);
        decision.map(drop).map_err(|reason| {
            self.control
                .refuse(&self.host, Some(self.port), reason, None);
            io::Error::other("the rule that opened it has ended")
        })
    }

    /// Counts bytes of the program's end of the connection: those it sent when they have been read, those it
    /// receives when they have been written.
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

    /// The host could not be connected to.
    pub(crate) fn fail(&self, failure: ConnectFailure) {
        self.traffic.fail(failure);
        self.settle(EgressVerdict::Failed(failure));
    }

    /// The host was connected to.
    pub(crate) fn connected(&self) {
        self.settle(EgressVerdict::Allowed);
    }

    /// The first connection to the host says what came of it; one that is made anew says nothing more.
    fn settle(&self, verdict: EgressVerdict) {
        if !self.is_settled.swap(true, Ordering::Relaxed) {
            let rule = self.rule.clone();
            self.control
                .decided(&self.host, Some(self.port), rule, verdict);
        }
    }

    /// All that the program has sent has been passed on, and it sends no more.
    pub(crate) fn sent_all(&self) {
        if !self.has_sent_all.swap(true, Ordering::Relaxed) {
            self.control.end_sending();
        }
    }

    /// Most bytes that are to be taken at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.control.accounts.most_at_once()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.sent_all();
        // Let through, and given up or refused for something else before a connection was needed.
        self.settle(EgressVerdict::Allowed);
        self.traffic.end();
        self.control.log.ended(self.number);
        self.control.accounts.close();
    }
}
