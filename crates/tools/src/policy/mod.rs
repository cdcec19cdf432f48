//! Policy: which calls are made, which need somebody's word, which are refused, and why.
//!
//! ```text
//! 1  a tool that the toolset does not have         refused
//! 2  any deny rule that fits                       refused
//! 3  of the ask and allow rules that fit, the one that says most outright; of two that say as much,
//!    the one that asks                             asked, or made
//! 4  no rule fits                                  made; a server's tool: asked, unless it is known to be harmless
//! ```
//!
//! The order in which rules are written means nothing, so rules of several files can be put together.
//! Rules decide when to ask. What is possible is decided by the sandbox: a rule on the text of a
//! command can be talked around, a wall cannot. So a toolset that may not write also has its sandbox
//! made with a read-only workspace.

mod ask;
mod command;
mod gate;
mod host;
mod journal;
mod name;
mod pattern;
mod rule;
mod summary;
mod toolset;

pub use ask::{Ask, PermitAnswer, PermitQuestion};
pub use gate::{CallId, PolicyGate};
pub(crate) use host::HostAnswer;
pub use host::{AskHost, HostConsent, HostReply};
pub use journal::{DecisionEntry, Journal};
pub use name::{check_server_name, parts as served_parts, served_name};
pub use rule::{CallSubject, Effect, Rule};
pub use toolset::{Toolset, USUAL_TOOLSET};

use glovebox_proto::Fault;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::atomic::AtomicBool;

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct PermitRequest<'a> {
    /// Its name for as long as anybody speaks of it.
    pub call: &'a CallId,
    /// The tool's own name.
    pub tool: &'a str,
    /// Its arguments under their own names, whichever names they came under.
    pub arguments: &'a Value,
    /// A script makes it. Whoever asks about a model's calls before they come here has not seen it.
    pub is_nested: bool,
    /// Who can be asked about this call, before anybody the policy knows of.
    pub asker: Option<&'a dyn Ask>,
    /// Set when the caller gives up.
    pub cancel: &'a AtomicBool,
}

/// Decides about calls: asked after the arguments were checked and before the call waits for its turn.
/// It may take its time, for example to ask a person.
pub trait Permit: Debug + Send + Sync {
    /// Returns when the call may be made.
    ///
    /// # Errors
    /// A refusal that says which rule applied.
    fn permit(&self, asked: &PermitRequest<'_>) -> Result<(), Fault>;

    /// Whether there is this tool at all, so that a message may advise it. A rule may still refuse a call of it.
    fn has_tool(&self, _tool: &str) -> bool {
        true
    }
}

/// A toolset and rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    toolset: Toolset,
    rules: Vec<Rule>,
    served: Vec<ServerTool>,
    /// True if refusals name neither files nor commands of the operator.
    is_for_users: bool,
}

/// A tool of a server, as far as rules need to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTool {
    /// `server__tool`.
    pub name: String,
    /// Whether it changes nothing, by somebody whose word counts.
    pub is_read_only: bool,
    /// Whether somebody is asked where no rule says anything.
    pub is_asked: bool,
}

/// What becomes of a call, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// What becomes of it.
    pub effect: Effect,
    /// The rule: as it was written, or `toolset NAME`, or `default`.
    pub rule: String,
    /// Where that was written.
    pub source: String,
}

impl Default for Policy {
    /// The usual toolset, without rules.
    fn default() -> Self {
        let toolset = Toolset::shipped()
            .into_iter()
            .find(|toolset| toolset.name == USUAL_TOOLSET);
        Self {
            toolset: toolset.unwrap_or_else(Toolset::nothing),
            rules: Vec::new(),
            served: Vec::new(),
            is_for_users: false,
        }
    }
}

impl Policy {
    /// Rules over a toolset.
    pub const fn new(toolset: Toolset, rules: Vec<Rule>) -> Self {
        Self {
            toolset,
            rules,
            served: Vec::new(),
            is_for_users: false,
        }
    }

    /// For users of a server, who are told the rule and neither the operator's files nor commands.
    #[must_use]
    pub fn for_users(mut self, is_for_users: bool) -> Self {
        self.is_for_users = is_for_users;
        self
    }

    /// True if refusals name neither files nor commands of the operator.
    pub const fn is_for_users(&self) -> bool {
        self.is_for_users
    }

    /// With these tools of servers; no other is ever called.
    #[must_use]
    pub fn with_served(mut self, served: Vec<ServerTool>) -> Self {
        self.served = served;
        self
    }

    /// Whether there is the tool of this own name: the toolset has it and, where nothing may be written,
    /// it is not one of a server that might.
    pub fn has(&self, tool: &str) -> bool {
        let is_there = match (name::parts(tool), self.served(tool)) {
            (None, _) => true,
            (Some(_), Some(served)) => served.is_read_only || !self.toolset.is_read_only,
            (Some(_), None) => false,
        };
        is_there && self.toolset.has(tool)
    }

    fn served(&self, tool: &str) -> Option<&ServerTool> {
        self.served.iter().find(|served| served.name == tool)
    }

    /// The same rules over what of the toolset only reads.
    #[must_use]
    pub fn only_reading(self) -> Self {
        Self {
            toolset: self.toolset.only_reading(),
            ..self
        }
    }

    /// The tools there are.
    pub const fn toolset(&self) -> &Toolset {
        &self.toolset
    }

    /// Every rule.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What becomes of a call of the tool with this own name.
    pub fn decide(&self, tool: &str, subject: CallSubject<'_>) -> PolicyDecision {
        if !self.has(tool) {
            return PolicyDecision {
                effect: Effect::Deny,
                rule: format!("toolset {}", self.toolset.name),
                source: self.toolset.source.clone(),
            };
        }
        let strongest = self
            .rules
            .iter()
            .filter(|rule| rule.fits(tool, subject))
            .max_by_key(|rule| (rule.effect == Effect::Deny, rule.specificity(), rule.effect));
        match strongest {
            Some(rule) => PolicyDecision {
                effect: rule.effect,
                rule: rule.id.clone(),
                source: rule.source.clone(),
            },
            None if self.served(tool).is_some_and(|served| served.is_asked) => PolicyDecision {
                effect: Effect::Ask,
                rule: "default".to_owned(),
                source: "no rule fits, and it is a server's".to_owned(),
            },
            None => PolicyDecision {
                effect: Effect::Allow,
                rule: "default".to_owned(),
                source: format!("no rule fits, and the toolset {} has it", self.toolset.name),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(toolset: &str, rules: &[(Effect, &str)]) -> Policy {
        let toolset = Toolset::find(&Toolset::shipped(), toolset).unwrap().clone();
        let rules = rules
            .iter()
            .map(|(effect, text)| Rule::parse(*effect, text, "test").unwrap())
            .collect();
        Policy::new(toolset, rules)
    }

    #[test]
    fn the_order_of_precedence_is_as_documented() {
        use Effect::{Allow, Ask, Deny};
        let policy = policy(
            "implement",
            &[
                (Allow, "Bash(git *)"),
                (Ask, "Bash"),
                (Ask, "Bash(git push *)"),
                (Deny, "Bash(git push --force *)"),
                (Ask, "Write(/workspace/docs/**)"),
                (Allow, "Write(/workspace/docs/**)"),
                (Deny, "Read(**/secret)"),
                (Ask, "*"),
                (Allow, "Glob"),
            ],
        );
        let bash = |line: &str| policy.decide("Bash", CallSubject::Command(line));
        assert_eq!(bash("git status").effect, Allow);
        assert_eq!(bash("git push origin").effect, Ask);
        assert_eq!(bash("make").effect, Ask);
        let denied = bash("git push --force origin");
        assert_eq!(
            (denied.effect, denied.rule.as_str()),
            (Deny, "deny Bash(git push --force *)")
        );
        assert_eq!(
            policy.decide("Write", CallSubject::Path("docs/a")).effect,
            Ask
        );
        assert_eq!(
            policy.decide("Read", CallSubject::Path("a/secret")).effect,
            Deny
        );
        assert_eq!(policy.decide("Read", CallSubject::Path("a")).rule, "ask *");
        assert_eq!(policy.decide("Glob", CallSubject::None).effect, Allow);
    }

    #[test]
    fn what_the_toolset_lacks_no_rule_gives() {
        let policy = policy("research", &[(Effect::Allow, "*")]);
        let verdict = policy.decide("Bash", CallSubject::Command("ls"));
        assert_eq!(
            (verdict.effect, verdict.rule.as_str()),
            (Effect::Deny, "toolset research")
        );
        assert_eq!(
            policy.decide("Read", CallSubject::Path("x")).effect,
            Effect::Allow
        );
    }

    #[test]
    fn tools_of_servers_ask_unless_it_is_said_otherwise() {
        use Effect::{Allow, Ask, Deny};
        let served = || {
            let tool = |name: &str, is_read_only, is_asked| ServerTool {
                name: format!("hub__{name}"),
                is_read_only,
                is_asked,
            };
            vec![
                tool("search", true, false),
                tool("delete", false, true),
                tool("push", false, true),
                tool("merge", false, true),
            ]
        };
        let rules = [(Allow, "hub__*"), (Ask, "hub__merge"), (Deny, "hub__push")];
        let decide = |policy: &Policy, tool: &str| {
            let verdict = policy.decide(tool, CallSubject::Arguments("{}"));
            (verdict.effect, verdict.rule)
        };
        let plain = policy("implement", &[]).with_served(served());
        assert_eq!(decide(&plain, "hub__search").0, Allow);
        assert_eq!(decide(&plain, "hub__delete"), (Ask, "default".to_owned()));
        assert_eq!(
            decide(&plain, "hub__other"),
            (Deny, "toolset implement".to_owned())
        );
        let ruled = policy("implement", &rules).with_served(served());
        assert_eq!(
            decide(&ruled, "hub__delete"),
            (Allow, "allow hub__*".to_owned())
        );
        assert_eq!(
            decide(&ruled, "hub__merge"),
            (Ask, "ask hub__merge".to_owned())
        );
        assert_eq!(decide(&ruled, "hub__push").0, Deny);
        let reading = policy("review", &rules).with_served(served());
        assert_eq!(decide(&reading, "hub__search").0, Allow);
        assert_eq!(
            decide(&reading, "hub__delete"),
            (Deny, "toolset review".to_owned())
        );
        let safe = policy("safe", &rules).with_served(served());
        assert_eq!(decide(&safe, "hub__search").0, Deny);
    }

    proptest! {
        #[test]
        fn the_order_of_rules_means_nothing(seed in any::<u64>(), line in "(git|make) [a-z]{0,6}( ; [a-z]{1,4})?") {
            use Effect::{Allow, Ask, Deny};
            let mut rules = vec![
                (Allow, "Bash(git *)"), (Ask, "Bash(git p*)"), (Deny, "Bash(make x*)"),
                (Allow, "Bash"), (Ask, "*"), (Allow, "Bash(git pu*)"),
            ];
            let one = policy("full", &rules).decide("Bash", CallSubject::Command(&line));
            let turns = (seed % 6) as usize;
            rules.rotate_left(turns);
            if seed % 2 == 0 { rules.reverse(); }
            let other = policy("full", &rules).decide("Bash", CallSubject::Command(&line));
            prop_assert_eq!(one.effect, other.effect);
        }
    }
}
