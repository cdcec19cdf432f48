//! Questions to the user about hosts that the egress proxy refused to a command. Each question is
//! put once in a run, and its answer holds for the run.

use glovebox_egress::Policy;
use glovebox_proto::{Denial, EgressReason};
use glovebox_sandbox::Sandbox;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

/// Reply to a question about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostReply {
    /// The user opens the host.
    Open,
    /// The user keeps the host closed.
    Close,
    /// Only an administrator of the server may open this host. No question was put.
    AdministratorOnly,
    /// The question got no answer.
    Unanswered,
}

/// Channel to a user who answers questions about hosts.
pub trait AskHost: Debug + Send + Sync {
    /// Puts the question whether to open this host, and blocks until it is answered.
    // TRUST: a command chose the host. It is printable; nothing else about it is checked.
    fn ask_host(&self, rule: &str) -> HostReply;
}

/// Outcome for a refused host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostAnswer {
    /// The host is open from now on.
    Opened,
    /// The user keeps the host closed.
    Closed,
    /// Only an administrator of the server may open the host.
    AdministratorOnly,
    /// The user opened the host, but the rule could not be added, for this reason.
    Failed(String),
}

/// The user's answers in one run.
#[derive(Debug)]
pub struct HostConsent {
    asker: Arc<dyn AskHost>,
    /// Answer for each rule. Locked while the user is asked, so that no question is put twice.
    answers: Mutex<BTreeMap<String, HostAnswer>>,
}

impl HostConsent {
    /// Creates a record without answers.
    pub fn new(asker: Arc<dyn AskHost>) -> Self {
        Self {
            asker,
            answers: Mutex::default(),
        }
    }

    /// Returns the outcome for the host of a denial. Asks the user and blocks if there is none yet.
    /// `None` if no rule would open the host, or the user does not answer.
    pub(crate) fn settle(&self, sandbox: &Sandbox, denial: &Denial) -> Option<HostAnswer> {
        let rule = opening_rule(denial)?;
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        // Also for a host that was opened and is refused all the same: it is neither opened nor
        // asked about again.
        if let Some(answer) = answers.get(&rule) {
            return Some(answer.clone());
        }
        let answer = match self.asker.ask_host(&rule) {
            HostReply::Open => match sandbox.allow_hosts(std::slice::from_ref(&rule)) {
                Ok(_) => HostAnswer::Opened,
                Err(fault) => HostAnswer::Failed(fault.message),
            },
            HostReply::Close => HostAnswer::Closed,
            HostReply::AdministratorOnly => HostAnswer::AdministratorOnly,
            HostReply::Unanswered => return None,
        };
        answers.insert(rule, answer.clone());
        Some(answer)
    }
}

/// Returns the rule that would open the refused host. `None` if none would.
fn opening_rule(denial: &Denial) -> Option<String> {
    let Denial::Egress {
        host,
        port,
        reason: EgressReason::Unlisted | EgressReason::Port,
        ..
    } = denial
    else {
        return None;
    };
    let rule = Denial::opening_rule(host, *port);
    // A host for which no valid rule can be written cannot be opened.
    Policy::new(&[&rule], &[]).is_ok().then_some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, port: Option<u16>, reason: EgressReason) -> Denial {
        Denial::Egress {
            host: host.to_owned(),
            port,
            reason,
            attempts: 1,
            is_shared: false,
        }
    }

    #[test]
    fn only_what_a_rule_would_open_is_asked_about() {
        let rule = |host, port, reason| opening_rule(&refused(host, port, reason));
        let unlisted = EgressReason::Unlisted;
        assert_eq!(rule("a.test", None, unlisted).as_deref(), Some("a.test"));
        assert_eq!(
            rule("a.test", Some(443), unlisted).as_deref(),
            Some("a.test")
        );
        assert_eq!(
            rule("a.test", Some(22), EgressReason::Port).as_deref(),
            Some("a.test:22")
        );
        for (host, port, rule_of) in [
            ("10.0.0.5", Some(8080), Some("10.0.0.5:8080")),
            ("8.8.8.8", None, Some("8.8.8.8")),
            ("[fd00::1]", Some(443), Some("[fd00::1]")),
            ("169.254.169.254", None, None),
            ("127.0.0.1", Some(8080), None),
        ] {
            assert_eq!(rule(host, port, unlisted).as_deref(), rule_of, "{host}");
        }
        for reason in [
            EgressReason::Denied,
            EgressReason::Private,
            EgressReason::OtherName,
            EgressReason::ByteLimit,
            EgressReason::Never,
        ] {
            assert_eq!(rule("a.test", None, reason), None, "{reason:?}");
        }
        for host in ["localthing", "a b", "127.1", "*.a.test x", ""] {
            assert_eq!(rule(host, None, unlisted), None, "{host:?}");
        }
        assert_eq!(opening_rule(&Denial::Memory), None);
    }
}
