//! Policy: which calls are made, which are asked about, which are refused, and why.
//!
//! ```text
//! 1  the toolset lacks the tool                  refused
//! 2  any deny rule that matches                  refused
//! 3  of the ask and allow rules that match,      asked, or made
//!    the most specific one; of two that are
//!    equally specific, the one that asks
//! 4  no rule matches                             made; a tool of an MCP server: asked,
//!                                                unless it is known to be harmless
//! ```
//!
//! The order of rules has no meaning, so rules of several files can be combined. Rules decide when
//! to ask. The sandbox decides what is possible: a rule on the text of a command can be evaded, an
//! isolation boundary cannot. Therefore a toolset that may not write also gets a sandbox with a
//! read-only workspace.

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

/// Call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct PermitRequest<'a> {
    /// Identifier of the call, for the journal and for questions.
    pub call: &'a CallId,
    /// Canonical name of the tool.
    pub tool: &'a str,
    /// Arguments under their canonical names.
    pub arguments: &'a Value,
    /// True if a script makes the call. An agent that asks about its model's calls has not seen it.
    pub is_nested: bool,
    /// Channel for questions about this call. Takes precedence over the asker of the policy gate.
    /// `None` if the client has none.
    pub asker: Option<&'a dyn Ask>,
    /// Set when the caller cancels the call.
    pub cancel: &'a AtomicBool,
}

/// Decides about calls, after the arguments were checked and before the call waits for its turn.
/// May block, for example to ask a person.
pub trait Permit: Debug + Send + Sync {
    /// Returns if the call may be made.
    ///
    /// # Errors
    /// A refusal that names the rule.
    fn permit(&self, asked: &PermitRequest<'_>) -> Result<(), Fault>;

    /// Returns true if the tool exists for this session, so that a message may recommend it. A rule
    /// may still refuse a call of it.
    fn has_tool(&self, _tool: &str) -> bool {
        true
    }
}

/// Toolset, and rules about its tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    toolset: Toolset,
    rules: Vec<Rule>,
    served: Vec<ServerTool>,
    /// True if refusals name neither files nor commands of the operator.
    is_for_users: bool,
}

/// Tool of an MCP server, to the extent that rules need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTool {
    /// Name in the form `server__tool`.
    pub name: String,
    /// True if the tool changes nothing, according to a server that the user trusts.
    pub is_read_only: bool,
    /// True if its calls are asked about when no rule matches.
    pub is_asked: bool,
}

/// Decision about a call, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// Effect on the call.
    pub effect: Effect,
    /// Rule that decided: its text, or `toolset NAME`, or `default`.
    pub rule: String,
    /// Place where the rule was written.
    pub source: String,
}

impl Default for Policy {
    /// Default toolset, without rules.
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
    /// Creates a policy without tools of servers.
    pub const fn new(toolset: Toolset, rules: Vec<Rule>) -> Self {
        Self {
            toolset,
            rules,
            served: Vec::new(),
            is_for_users: false,
        }
    }

    /// Sets whether refusals go to users of a server. They then name the rule, but neither the
    /// files nor the commands of the operator.
    #[must_use]
    pub fn for_users(mut self, is_for_users: bool) -> Self {
        self.is_for_users = is_for_users;
        self
    }

    /// True if refusals name neither files nor commands of the operator.
    pub const fn is_for_users(&self) -> bool {
        self.is_for_users
    }

    /// Sets the tools of MCP servers. Tools of servers that are not listed are always refused.
    #[must_use]
    pub fn with_served(mut self, served: Vec<ServerTool>) -> Self {
        self.served = served;
        self
    }

    /// Returns true if the tool of this canonical name exists: the toolset has it, and a read-only
    /// toolset does not have tools of servers that may write.
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

    /// Restricts the toolset to tools that only read, under the same rules.
    #[must_use]
    pub fn only_reading(self) -> Self {
        Self {
            toolset: self.toolset.only_reading(),
            ..self
        }
    }

    /// Returns the toolset.
    pub const fn toolset(&self) -> &Toolset {
        &self.toolset
    }

    /// Returns all rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Decides about a call of the tool with this canonical name.
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
