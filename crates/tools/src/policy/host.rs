//! Questions to the user about hosts that a command was refused: each once in a run, and the answer holds.

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
    /// Only an administrator of the server opens this host; nobody was asked.
    AdministratorOnly,
    /// The question was not answered.
    Unanswered,
}

/// A user who can be asked about hosts.
pub trait AskHost: Debug + Send + Sync {
    /// Waits for the reply about the host that a rule would open.
    // TRUST: a command chose the host; it is printable, and nothing else about it is known.
    fn ask_host(&self, rule: &str) -> HostReply;
}

/// What became of a refused host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostAnswer {
    /// It is open from now on.
    Opened,
    /// The user wants it closed.
    Closed,
    /// Only an administrator of the server opens it.
    AdministratorOnly,
    /// The user wants it open, and it cannot be.
    Failed(String),
}

/// The user's answers in one run.
#[derive(Debug)]
pub struct HostConsent {
    asker: Arc<dyn AskHost>,
    /// What was answered about each rule. Held while asking, so that no question comes twice.
    answers: Mutex<BTreeMap<String, HostAnswer>>,
}

impl HostConsent {
    /// Nothing was asked yet.
    pub fn new(asker: Arc<dyn AskHost>) -> Self {
        Self {
            asker,
            answers: Mutex::default(),
        }
    }

    /// The answer about what a command was refused, asked for if it is not known; `None` where no rule would help, or
    /// nobody answers.
    pub(crate) fn settle(&self, sandbox: &Sandbox, denial: &Denial) -> Option<HostAnswer> {
        let rule = opening_rule(denial)?;
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        // What was opened and is refused all the same is not opened a second time, and not asked about.
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

/// The rule that opens what was refused.
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
    // What is no rule is nothing to ask about.
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
