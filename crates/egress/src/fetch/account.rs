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

/// What was decided and carried, and not told yet.
#[derive(Debug, Default)]
pub struct FetchAccount {
    ledger: Ledger,
    bytes: ByteCounts,
}

impl FetchAccount {
    /// Counts a request, and what came of it.
    pub(crate) fn see(
        &self,
        policy: &Policy,
        request: &FetchRequest,
        answered: &Result<FetchAnswer, FetchError>,
    ) {
        // One that names no host was not decided about.
        let Ok((host, port)) = request.target() else {
            return;
        };
        let verdict = match answered {
            Ok(answer) => {
                self.carried(request, answer.body.len());
                EgressVerdict::Allowed
            }
            Err(FetchError::Refused { reason, .. }) => EgressVerdict::Refused(*reason),
            Err(FetchError::TimedOut { .. }) => EgressVerdict::Failed(ConnectFailure::TimedOut),
            Err(FetchError::TooLarge { max_bytes, .. }) => {
                self.carried(request, *max_bytes);
                EgressVerdict::Allowed
            }
            // The host has answered, and its caller has had enough.
            Err(FetchError::Budget(_)) => EgressVerdict::Allowed,
            Err(_) => EgressVerdict::Failed(ConnectFailure::Other),
        };
        let rule = rule_of(policy, &host, port);
        let shown = host.to_string();
        self.ledger
            .add(DecisionKey::new(&shown, Some(port), rule, verdict));
    }

    fn carried(&self, request: &FetchRequest, received: usize) {
        self.bytes.add(Direction::Sent, request.body.len() as u64);
        self.bytes.add(Direction::Received, received as u64);
    }

    /// What happened since this was asked last.
    pub fn take_news(&self) -> TrafficNews {
        let carried = (self.bytes.sent(), self.bytes.received());
        self.ledger.take(carried, 0, usize::MAX, false)
    }

    /// Whether there is nothing left to tell or to remember.
    pub fn is_told(&self) -> bool {
        self.ledger.is_empty()
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
