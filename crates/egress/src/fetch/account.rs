//! Account of a group of callers' requests, for statistics that are kept elsewhere: decisions about
//! hosts, and bytes of bodies.

use crate::ConnectFailure;
use crate::fetch::client::FetchAnswer;
use crate::fetch::error::FetchError;
use crate::fetch::request::FetchRequest;
use crate::policy::Policy;
use crate::policy::name::Host;
use crate::record::ledger::{DecisionKey, EgressVerdict, Ledger, TrafficNews};
use crate::record::traffic::{ByteCounts, Direction};
use std::sync::Arc;

/// Decisions and bytes of a group of callers that have not been reported yet.
#[derive(Debug, Default)]
pub struct FetchAccount {
    ledger: Ledger,
    bytes: Arc<ByteCounts>,
}

impl FetchAccount {
    /// Returns the counters of the bytes of bodies, which are updated while bodies are transferred.
    pub(crate) const fn bytes(&self) -> &Arc<ByteCounts> {
        &self.bytes
    }

    /// Takes the changes since the previous call. A decision equal to one reported within the last
    /// ten minutes is held back for a later call. With `is_last` all decisions are returned,
    /// because no later call follows.
    pub fn take_news(&self, is_last: bool) -> TrafficNews {
        let carried = (self.bytes.sent(), self.bytes.received());
        self.ledger.take(carried, 0, usize::MAX, is_last)
    }

    /// Adds the counts that another component took for the same callers, such as the proxy of a
    /// sandbox that has ended.
    pub fn absorb(&self, news: &TrafficNews) {
        self.bytes.add(Direction::Sent, news.sent_bytes);
        self.bytes.add(Direction::Received, news.received_bytes);
        self.ledger.absorb(&news.decisions);
    }

    /// Returns true if a decision has not been reported yet, including one that is held back.
    pub fn has_untold(&self) -> bool {
        self.ledger.has_untold()
    }

    /// Returns true if nothing is left to report and no recent report has to be remembered.
    pub fn is_told(&self) -> bool {
        self.ledger.is_empty()
    }
}

/// Record of one request in an account, written when this is dropped. A request that is aborted
/// while it is being made therefore counts as allowed.
#[derive(Debug)]
pub(crate) struct RequestRecord<'a> {
    ledger: &'a Ledger,
    /// Decision to record. `None` if the request's URL has no valid host, so that nothing was
    /// decided.
    key: Option<DecisionKey>,
}

impl<'a> RequestRecord<'a> {
    /// Begins the record of a request that is about to be made.
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

    /// Replaces the verdict by the result of the request and writes the record.
    pub(crate) fn settle(mut self, answered: &Result<FetchAnswer, FetchError>) {
        let verdict = match answered {
            // The host did answer when the response or the budget was too large.
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
