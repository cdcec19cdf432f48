//! Policy to which rules can be added while it decides about connections, permanently or for a
//! limited time.
//!
//! An expired rule has no effect any longer, but connections that it allowed stay open.

use crate::policy::rule::Rule;
use crate::policy::{Policy, PolicyError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A rule in force, for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleInForce {
    /// The rule itself.
    pub rule: Rule,
    /// True if the rule denies the hosts it matches.
    pub is_denial: bool,
    /// True if the rule was added while the sandbox was running.
    pub is_added: bool,
    /// Remaining time until the rule expires, in milliseconds. `None` if it stays as long as the
    /// sandbox runs.
    pub remaining_ms: Option<u64>,
}

/// Policy to which rules can be added.
#[derive(Debug)]
pub(crate) struct LivePolicy(Mutex<Rules>);

#[derive(Debug)]
struct Rules {
    base: Policy,
    added: Vec<AddedRule>,
    /// Base rules and added rules together.
    in_force: Arc<Policy>,
}

#[derive(Debug)]
struct AddedRule {
    rule: Rule,
    until: Option<Instant>,
}

impl LivePolicy {
    pub(crate) fn new(base: Policy) -> Self {
        Self(Mutex::new(Rules {
            in_force: Arc::new(base.clone()),
            base,
            added: Vec::new(),
        }))
    }

    /// Returns the policy in force now.
    pub(crate) fn in_force(&self) -> Arc<Policy> {
        Arc::clone(&self.current().in_force)
    }

    /// Returns the IPv4 addresses that a base rule opens without a name.
    pub(crate) fn first_addresses(&self) -> BTreeSet<Ipv4Addr> {
        self.current().base.addresses()
    }

    /// Adds rules until `until`, or permanently if `None`. A rule that was added before gets the
    /// new expiry time; a base rule stays permanent.
    ///
    /// # Errors
    /// [`PolicyError`]; nothing has been added then.
    pub(crate) fn add(&self, rules: &[Rule], until: Option<Instant>) -> Result<(), PolicyError> {
        let mut current = self.current();
        let is_new = |rule: &&Rule| !current.in_force.allowed().contains(rule);
        let new: Vec<Rule> = rules.iter().filter(is_new).cloned().collect();
        current.in_force = Arc::new(current.in_force.with(new)?);
        for rule in rules {
            if current.base.allowed().contains(rule) {
                continue;
            }
            match current.added.iter_mut().find(|added| added.rule == *rule) {
                Some(added) => added.until = until,
                None => current.added.push(AddedRule {
                    rule: rule.clone(),
                    until,
                }),
            }
        }
        Ok(())
    }

    /// Returns all rules in force: the base rules, then the added ones.
    pub(crate) fn list(&self) -> Vec<RuleInForce> {
        let current = self.current();
        let now = Instant::now();
        let of_base = |rule: &Rule, is_denial| RuleInForce {
            rule: rule.clone(),
            is_denial,
            is_added: false,
            remaining_ms: None,
        };
        let base = &current.base;
        let allowed = base.allowed().iter().map(|rule| of_base(rule, false));
        let denied = base.denied().iter().map(|rule| of_base(rule, true));
        let added = current.added.iter().map(|added| RuleInForce {
            rule: added.rule.clone(),
            is_denial: false,
            is_added: true,
            remaining_ms: added
                .until
                .map(|until| until.saturating_duration_since(now).as_millis() as u64),
        });
        allowed.chain(denied).chain(added).collect()
    }

    /// Locks the rules and removes those that have expired.
    fn current(&self) -> MutexGuard<'_, Rules> {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let before = rules.added.len();
        rules
            .added
            .retain(|added| added.until.is_none_or(|until| until > now));
        if rules.added.len() != before {
            let added = rules.added.iter().map(|added| added.rule.clone()).collect();
            // Fails only for too many rules, ports or addresses, and removing rules adds none.
            if let Ok(policy) = rules.base.with(added) {
                rules.in_force = Arc::new(policy);
            }
        }
        rules
    }
}

/// Returns the time at which a lifetime that begins now ends. `None` if it is unlimited or too far
/// in the future to be represented.
pub(crate) fn end_of(lifetime: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(lifetime?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::name::Host;
    use glovebox_proto::EgressReason;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn decide(policy: &LivePolicy, host: &str, port: u16) -> Result<Rule, EgressReason> {
        let policy = policy.in_force();
        policy.decide(&Host::parse(host).unwrap(), port).cloned()
    }

    #[test]
    fn a_rule_holds_until_its_end_and_no_longer() {
        let policy = LivePolicy::new(Policy::new(&["a.example"], &["c.example"]).unwrap());
        let soon = Instant::now() + Duration::from_millis(200);
        policy.add(&rules(&["b.example:8080"]), Some(soon)).unwrap();
        policy
            .add(&rules(&["c.example", "d.example"]), None)
            .unwrap();
        assert!(decide(&policy, "b.example", 8080).is_ok());
        assert_eq!(decide(&policy, "b.example", 80), Err(EgressReason::Port));
        // What is denied stays closed.
        assert_eq!(decide(&policy, "c.example", 80), Err(EgressReason::Denied));
        let list = policy.list();
        assert_eq!(list.len(), 5);
        assert!(list[1].is_denial && !list[1].is_added);
        assert!(list[2].is_added && list[2].remaining_ms.unwrap() <= 200);
        std::thread::sleep(Duration::from_millis(250));
        assert_eq!(
            decide(&policy, "b.example", 8080),
            Err(EgressReason::Unlisted)
        );
        assert!(decide(&policy, "a.example", 80).is_ok());
        assert!(decide(&policy, "d.example", 80).is_ok());
        assert_eq!(policy.list().len(), 4);
    }

    #[test]
    fn the_last_word_about_a_rule_holds_and_those_of_the_beginning_stay() {
        let policy = LivePolicy::new(Policy::new(&["a.example"], &[]).unwrap());
        policy.add(&rules(&["b.example"]), None).unwrap();
        let past = Instant::now();
        policy
            .add(&rules(&["b.example", "a.example"]), Some(past))
            .unwrap();
        assert_eq!(
            decide(&policy, "b.example", 80),
            Err(EgressReason::Unlisted)
        );
        assert!(decide(&policy, "a.example", 80).is_ok());
        assert_eq!(policy.list().len(), 1);
    }

    #[test]
    fn too_many_rules_change_nothing() {
        let policy = LivePolicy::new(Policy::default());
        let many: Vec<Rule> = (0..=crate::MAX_RULES)
            .map(|number| format!("n{number}.example").parse().unwrap())
            .collect();
        assert_eq!(policy.add(&many, None), Err(PolicyError::TooManyRules));
        assert_eq!(policy.list(), []);
        policy.add(&many[1..], None).unwrap();
        assert_eq!(policy.add(&many[..1], None), Err(PolicyError::TooManyRules));
        // The same again is not more.
        policy.add(&many[1..], None).unwrap();
    }
}
