//! What the requests of callers that belong together came to, for accounts that are kept elsewhere: what was decided about
//! hosts, and the bytes of bodies.

use crate::ConnectFailure;
use crate::fetch::client::FetchAnswer;
use crate::fetch::error::FetchError;
use crate::fetch::request::FetchRequest;
use crate::policy::Policy;
use crate::policy::name::Host;
use crate::record::ledger::{DecisionKey, EgressVerdict, Ledger, TrafficNews};
use crate::record::traffic::{ByteCounts, Direction};
use std::sync::Arc;

/// What was decided and carried, and not told yet.
#[derive(Debug, Default)]
pub struct FetchAccount {
    ledger: Ledger,
    bytes: Arc<ByteCounts>,
}

impl FetchAccount {
    /// Where bytes of bodies are counted as they pass.
    pub(crate) const fn bytes(&self) -> &Arc<ByteCounts> {
        &self.bytes
    }

    /// What happened since this was asked last. Decisions that were told a short while ago come later; all of them where
    /// `is_last` says that nobody asks again.
    pub fn take_news(&self, is_last: bool) -> TrafficNews {
        let carried = (self.bytes.sent(), self.bytes.received());
        self.ledger.take(carried, 0, usize::MAX, is_last)
    }

    /// Adds what somebody else has counted of the same callers: the proxy of a sandbox that has ended.
    pub fn absorb(&self, news: &TrafficNews) {
        self.bytes.add(Direction::Sent, news.sent_bytes);
        self.bytes.add(Direction::Received, news.received_bytes);
        self.ledger.absorb(&news.decisions);
    }

    /// Whether there is something to tell, now or later.
    pub fn has_untold(&self) -> bool {
        self.ledger.has_untold()
    }

    /// Whether there is nothing left to tell or to remember.
    pub fn is_told(&self) -> bool {
        self.ledger.is_empty()
    }
}

/// One request in an account, which counts it when this is dropped: one that is given up while it is being made was let
/// through as well.
#[derive(Debug)]
pub(crate) struct RequestRecord<'a> {
    ledger: &'a Ledger,
    /// `None` for one that names no host: it was not decided about.
    key: Option<DecisionKey>,
}

impl<'a> RequestRecord<'a> {
    /// Of a request that is about to be made.
    pub(crate) fn begin(
        account: &'a FetchAccount,
        policy: &Policy,
        request: &FetchRequest,
    ) -> Self {
        let key = request.target().ok().map(|(host, port)| {
            let rule = rule_of(policy, &host, port);
            let verdict = EgressVerdict::Allowed;
            DecisionKey::new(&host.to_string(), Some(port), rule, verdict)
        });
        Self {
            ledger: &account.ledger,
            key,
        }
    }

    /// Ends it with what came of the request.
    pub(crate) fn settle(mut self, answered: &Result<FetchAnswer, FetchError>) {
        let verdict = match answered {
            // Where there was too much of an answer the host has answered, and its caller has had enough.
            Ok(_) | Err(FetchError::TooLarge { .. } | FetchError::Budget(_)) => {
                EgressVerdict::Allowed
            }
            Err(FetchError::Refused { reason, .. }) => EgressVerdict::Refused(*reason),
            Err(FetchError::TimedOut { .. }) => EgressVerdict::Failed(ConnectFailure::TimedOut),
            Err(_) => EgressVerdict::Failed(ConnectFailure::Other),
        };
        if let Some(key) = &mut self.key {
            key.set_verdict(verdict);
        }
    }
}

impl Drop for RequestRecord<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.ledger.add(key);
        }
    }
}

fn rule_of(policy: &Policy, host: &Host, port: u16) -> Option<String> {
    match policy.decide(host, port) {
        Ok(rule) => Some(rule.to_string()),
        Err(_) => policy
            .closing_rule(host, Some(port))
            .map(ToString::to_string),
    }
}
