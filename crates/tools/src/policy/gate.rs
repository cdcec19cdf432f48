//! Gate that every call passes before it is made.

use super::name::parts;
use super::{
    Ask, CallSubject, DecisionEntry, Effect, Journal, Permit, PermitAnswer, PermitQuestion,
    PermitRequest, Policy, PolicyDecision, summary,
};
use glovebox_proto::{Code, Fault, Remedy};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Identifier of a call, under which its journal entry is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallId(String);

impl CallId {
    /// Creates a random identifier.
    pub fn random() -> Self {
        Self(glovebox_sandbox::Name::random("call").to_string())
    }

    /// Returns the identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Remedy in refusals for users of a server.
const FOR_USERS: &str = "do it another way; the administrator can allow it";

/// Policy, with the asker and the journal that it uses.
#[derive(Debug, Default)]
pub struct PolicyGate {
    policy: Policy,
    asker: Option<Arc<dyn Ask>>,
    journal: Option<Arc<Journal>>,
    /// Tools that were allowed for all later calls by [`PermitAnswer::Tool`].
    granted: Mutex<BTreeSet<String>>,
}

impl PolicyGate {
    /// Creates a gate without an asker and without a journal.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Puts questions of ask rules to `asker`, unless the call brings its own.
    #[must_use]
    pub fn asking(mut self, asker: Arc<dyn Ask>) -> Self {
        self.asker = Some(asker);
        self
    }

    /// Writes every decision to `journal`.
    #[must_use]
    pub fn writing(mut self, journal: Arc<Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Returns the policy.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    fn admit(&self, asked: &PermitRequest<'_>, subject: CallSubject<'_>) -> Result<(), Fault> {
        let (call, tool) = (asked.call, asked.tool);
        let verdict = self.policy.decide(tool, subject);
        let summary = summary::line(&subject.text());
        let (answer, result) = match verdict.effect {
            Effect::Allow => (None, Ok(())),
            Effect::Deny => (None, Err(self.denied(call, tool, &verdict))),
            Effect::Ask => self.question(asked, &summary, &verdict),
        };
        if let Some(journal) = &self.journal {
            // A journal that cannot be written (a full disk) does not stop the call.
            let _ = journal.write(&DecisionEntry {
                call: call.to_string(),
                unix_ms: super::journal::now_unix_ms(),
                tool: tool.to_owned(),
                summary,
                effect: verdict.effect.as_str().to_owned(),
                rule: verdict.rule,
                source: verdict.source,
                toolset: self.policy.toolset().name.clone(),
                answer,
                is_made: result.is_ok(),
            });
        }
        result
    }

    fn denied(&self, call: &CallId, tool: &str, verdict: &PolicyDecision) -> Fault {
        let toolset = &self.policy.toolset().name;
        if self.policy.is_for_users() {
            let message = if self.policy.has(tool) {
                format!("{tool} is refused by the rule `{}`", verdict.rule)
            } else {
                format!("the toolset `{toolset}` does not have the tool {tool}")
            };
            return refused(message, FOR_USERS);
        }
        if !self.policy.has(tool) {
            return refused(
                format!("the toolset `{toolset}` does not have the tool {tool}"),
                format!(
                    "use another tool; the user can choose another toolset (`glovebox tools` shows them, `glovebox why {call}` explains)"
                ),
            );
        }
        refused(
            format!(
                "{tool} is refused by the rule `{}` ({})",
                verdict.rule, verdict.source
            ),
            format!(
                "do it another way; the user can change the rule (`glovebox why {call}` explains)"
            ),
        )
    }

    fn question(
        &self,
        asked: &PermitRequest<'_>,
        summary: &str,
        verdict: &PolicyDecision,
    ) -> (Option<String>, Result<(), Fault>) {
        let (call, tool) = (asked.call, asked.tool);
        let granted = || self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        if granted().contains(tool) {
            return (Some("allowed from an earlier call on".to_owned()), Ok(()));
        }
        let unasked = |why: &str| {
            if self.policy.is_for_users() {
                let message = format!(
                    "{tool} needs somebody's word by the rule `{}`, and there is nobody to ask{why}",
                    verdict.rule
                );
                return (
                    Some("nobody to ask".to_owned()),
                    Err(refused(message, FOR_USERS)),
                );
            }
            let fault = refused(
                format!(
                    "{tool} needs somebody's word by the rule `{}` ({}), and there is nobody to ask{why}",
                    verdict.rule, verdict.source
                ),
                format!(
                    "do it another way; the user can write an allow rule for it (`glovebox why {call}` explains)"
                ),
            );
            (Some("nobody to ask".to_owned()), Err(fault))
        };
        let Some(asker) = asked.asker.or(self.asker.as_deref()) else {
            return unasked("");
        };
        let question = PermitQuestion {
            call,
            tool,
            summary,
            arguments: asked.arguments,
            verdict,
            cancel: asked.cancel,
        };
        match asker.ask(&question) {
            PermitAnswer::Once => (Some("allowed once".to_owned()), Ok(())),
            PermitAnswer::Tool => {
                let _ = granted().insert(tool.to_owned());
                (Some("allowed from now on".to_owned()), Ok(()))
            }
            PermitAnswer::Unasked(why) => unasked(&format!(": {why}")),
            PermitAnswer::Deny(reason) => {
                let reason = summary::line(&reason);
                let fault = refused(
                    format!(
                        "{tool} was asked about by the rule `{}` and denied: {reason}",
                        verdict.rule
                    ),
                    // A model that is told to try another way works around a denial.
                    "do not work around it: stop, or ask the user",
                );
                (Some(format!("denied: {reason}")), Err(fault))
            }
        }
    }
}

impl Permit for PolicyGate {
    /// A remedy that invites the model to try another way would make it work around the denial.
    fn permit(&self, asked: &PermitRequest<'_>) -> Result<(), Fault> {
        if parts(asked.tool).is_some() {
            let text = asked.arguments.to_string();
            return self.admit(asked, CallSubject::Arguments(&text));
        }
        self.admit(asked, CallSubject::of(asked.tool, asked.arguments))
    }

    fn has_tool(&self, tool: &str) -> bool {
        self.policy.has(tool)
    }
}

fn refused(message: impl Into<String>, remedy: impl Into<Remedy>) -> Fault {
    Fault::refused(Code::PolicyRefused, message).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Rule, Toolset};
    use glovebox_proto::Class;
    use std::sync::atomic::AtomicBool;

    static NEVER: AtomicBool = AtomicBool::new(false);

    #[derive(Debug)]
    struct FixedAnswer(PermitAnswer);

    impl Ask for FixedAnswer {
        fn ask(&self, question: &PermitQuestion<'_>) -> PermitAnswer {
            assert_eq!(question.tool, "Bash");
            self.0.clone()
        }
    }

    fn gate() -> PolicyGate {
        let toolset = Toolset::find(&Toolset::shipped(), "implement")
            .unwrap()
            .clone();
        let rules = vec![
            Rule::parse(Effect::Ask, "Bash", "here").unwrap(),
            Rule::parse(Effect::Deny, "Read(**/.env)", "here").unwrap(),
        ];
        PolicyGate::new(Policy::new(toolset, rules))
    }

    fn admit(
        gate: &PolicyGate,
        call: &CallId,
        tool: &str,
        subject: CallSubject<'_>,
        asker: Option<&dyn Ask>,
    ) -> Result<(), Fault> {
        let asked = PermitRequest {
            call,
            tool,
            arguments: &serde_json::Value::Null,
            is_nested: false,
            asker,
            cancel: &NEVER,
        };
        gate.admit(&asked, subject)
    }

    fn bash(gate: &PolicyGate) -> Result<(), Fault> {
        admit(
            gate,
            &CallId::random(),
            "Bash",
            CallSubject::Command("ls"),
            None,
        )
    }

    #[test]
    fn without_anybody_to_ask_what_asks_is_refused() {
        let fault = bash(&gate()).unwrap_err();
        assert_eq!(
            (fault.class, fault.code),
            (Class::Refused, Code::PolicyRefused)
        );
        assert!(fault.message.contains("`ask Bash` (here)"), "{fault:?}");
        assert!(
            fault
                .remedy
                .unwrap()
                .to_string()
                .contains("glovebox why call-")
        );
    }

    #[test]
    fn answers_are_heeded_and_remembered_for_their_tool_only() {
        let gate_with = |answer| gate().asking(Arc::new(FixedAnswer(answer)));
        assert!(bash(&gate_with(PermitAnswer::Once)).is_ok());
        let fault = bash(&gate_with(PermitAnswer::Deny("no".to_owned()))).unwrap_err();
        assert!(fault.message.ends_with("denied: no"), "{fault:?}");
        let mut gate = gate_with(PermitAnswer::Tool);
        assert!(bash(&gate).is_ok());
        gate.asker = None;
        assert!(bash(&gate).is_ok());
        // A denial is not asked about.
        let read = admit(
            &gate,
            &CallId::random(),
            "Read",
            CallSubject::Path("a/.env"),
            None,
        );
        assert!(read.unwrap_err().message.contains("deny Read(**/.env)"));
    }

    #[test]
    fn who_comes_with_the_call_is_asked_first() {
        let gate = gate().asking(Arc::new(FixedAnswer(PermitAnswer::Once)));
        let ask = |answer| {
            let asker = FixedAnswer(answer);
            admit(
                &gate,
                &CallId::random(),
                "Bash",
                CallSubject::Command("ls"),
                Some(&asker),
            )
        };
        assert!(ask(PermitAnswer::Once).is_ok());
        assert!(
            ask(PermitAnswer::Deny("no".to_owned()))
                .unwrap_err()
                .message
                .ends_with("denied: no")
        );
        let fault = ask(PermitAnswer::Unasked("it is deaf".to_owned())).unwrap_err();
        assert!(
            fault.message.ends_with("nobody to ask: it is deaf"),
            "{fault:?}"
        );
        assert!(fault.remedy.unwrap().to_string().contains("allow rule"));
    }

    #[test]
    fn decisions_are_written_down_without_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::new(dir.path().join("decisions")));
        let gate = gate().writing(Arc::clone(&journal));
        let call = CallId::random();
        let line = CallSubject::Command("TOKEN=hunter2 curl x");
        assert!(admit(&gate, &call, "Bash", line, None).is_err());
        let entry = journal.find(call.as_str()).unwrap().unwrap();
        assert_eq!(entry.summary, "TOKEN=[hidden] curl x");
        assert_eq!((entry.rule.as_str(), entry.is_made), ("ask Bash", false));
        assert_eq!(entry.answer.as_deref(), Some("nobody to ask"));
    }
}
