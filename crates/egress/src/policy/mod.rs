//! Policy: the names and ports that a sandbox may reach.
//!
//! A host is reachable only if a rule allows it and no rule denies it. The decision is a pure
//! function of the policy: it performs no I/O and changes nothing.

pub(crate) mod address;
pub(crate) mod endpoint;
pub(crate) mod live_policy;
pub(crate) mod name;
pub(crate) mod preset;
pub(crate) mod rule;
pub(crate) mod stand_in;

use crate::policy::name::Host;
use crate::policy::rule::{Rule, RuleError};
use crate::policy::stand_in::is_own;
use glovebox_proto::EgressReason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// Maximum number of rules of a policy.
pub const MAX_RULES: usize = 1000;
/// Maximum number of different ports of a policy. Each needs a listener inside.
pub const MAX_PORTS: usize = 32;

/// Maximum number of IPv4 addresses that rules open without a name. Each is added to the sandbox's
/// own interface.
pub const MAX_ADDRESSES: usize = 64;

/// Allowing and denying rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    allow: Vec<Rule>,
    deny: Vec<Rule>,
}

/// Error of making a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A text is neither a rule nor a preset.
    #[error("`{word}` is neither a host nor a preset ({known})")]
    UnknownWord {
        /// The text.
        word: String,
        /// Names of all presets, separated by commas.
        known: String,
    },
    /// A preset is followed by something other than `=private`.
    #[error(
        "`{preset}` is a preset of several hosts, which cannot all be at `{reach}`; write `{preset}=private`, or \
         HOST=ADDRESS for one host"
    )]
    PresetReach {
        /// Name of the preset.
        preset: String,
        /// Text behind `=`.
        reach: String,
    },
    /// A rule is invalid.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The policy has too many rules.
    #[error("there are more than {MAX_RULES} rules")]
    TooManyRules,
    /// The policy has too many ports.
    #[error("the rules name more than {MAX_PORTS} different ports")]
    TooManyPorts,
    /// The policy has too many addresses.
    #[error(
        "the rules name more than {MAX_ADDRESSES} different addresses; give them names (`NAME=ADDRESS`)"
    )]
    TooManyAddresses,
    /// A rule allows an address that belongs to the sandbox itself.
    #[error("{0} is an address of the sandbox itself; give what is meant a name: `NAME:PORT={0}`")]
    OwnAddress(IpAddr),
}

impl Policy {
    /// Makes a policy from texts of users: rules and names of presets.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn new<S: AsRef<str>>(allow: &[S], deny: &[S]) -> Result<Self, PolicyError> {
        let policy = Self {
            allow: rules(allow)?,
            deny: rules(deny)?,
        };
        policy.within_bounds()
    }

    /// Returns the policy with further allowing rules.
    ///
    /// # Errors
    /// [`PolicyError`] if there are too many rules, ports or addresses then, or a rule names an
    /// address of the sandbox itself.
    pub(crate) fn with(&self, allow: Vec<Rule>) -> Result<Self, PolicyError> {
        let mut policy = self.clone();
        policy.allow.extend(allow);
        policy.within_bounds()
    }

    fn within_bounds(self) -> Result<Self, PolicyError> {
        if self.allow.len() + self.deny.len() > MAX_RULES {
            return Err(PolicyError::TooManyRules);
        }
        if self.ports().len() > MAX_PORTS {
            return Err(PolicyError::TooManyPorts);
        }
        for address in self.allow.iter().filter_map(Rule::address) {
            let is_own = match address {
                IpAddr::V4(address) => is_own(address),
                IpAddr::V6(address) => address.is_loopback(),
            };
            if is_own {
                return Err(PolicyError::OwnAddress(address));
            }
        }
        if self.addresses().len() > MAX_ADDRESSES {
            return Err(PolicyError::TooManyAddresses);
        }
        Ok(self)
    }

    /// Returns the allowing rules.
    pub fn allowed(&self) -> &[Rule] {
        &self.allow
    }

    /// Returns the denying rules.
    pub fn denied(&self) -> &[Rule] {
        &self.deny
    }

    /// Returns true if the policy has no rules.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Returns all ports that a rule allows.
    pub fn ports(&self) -> BTreeSet<u16> {
        let ports = self.allow.iter().flat_map(Rule::opened_ports);
        ports.copied().collect()
    }

    /// Returns all IPv4 addresses that a rule allows without a name.
    pub fn addresses(&self) -> BTreeSet<Ipv4Addr> {
        let addresses = self.allow.iter().filter_map(Rule::address);
        addresses
            .filter_map(|address| match address {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            })
            .collect()
    }

    /// Returns the rule that allows this host and port. If several do, the one with the farthest
    /// reach.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn decide(&self, host: &Host, port: u16) -> Result<&Rule, EgressReason> {
        if self.deny.iter().any(|rule| rule.closes(host, port)) {
            return Err(EgressReason::Denied);
        }
        let mut about = self
            .allow
            .iter()
            .filter(|rule| rule.matches_host(host))
            .peekable();
        if about.peek().is_none() {
            return Err(EgressReason::Unlisted);
        }
        about
            .filter(|rule| rule.opened_ports().contains(&port))
            .max_by_key(|rule| rule.reach().rank())
            .ok_or(EgressReason::Port)
    }

    /// Returns true if all hosts that `wanted` matches may be reached at this port.
    pub fn opens(&self, wanted: &Rule, port: u16) -> bool {
        let is_closed =
            |rule: &Rule| rule.covers(wanted) && rule.port().is_none_or(|own| own == port);
        let is_open = |rule: &Rule| rule.covers(wanted) && rule.opened_ports().contains(&port);
        !self.deny.iter().any(is_closed) && self.allow.iter().any(is_open)
    }

    /// Returns the first rule that denies this host at `port`, or at any port if `None`.
    pub(crate) fn closing_rule(&self, host: &Host, port: Option<u16>) -> Option<&Rule> {
        let closes = |rule: &&Rule| match port {
            Some(port) => rule.closes(host, port),
            None => rule.matches_host(host),
        };
        self.deny.iter().find(closes)
    }

    /// Returns the rule with the farthest reach among those that allow this host at any port.
    ///
    /// # Errors
    /// The reason of the refusal if no port is allowed.
    pub fn decide_host(&self, host: &Host) -> Result<&Rule, EgressReason> {
        let about = self.allow.iter().filter(|rule| rule.matches_host(host));
        let decisions = about
            .flat_map(Rule::opened_ports)
            .map(|port| self.decide(host, *port));
        let mut reason = EgressReason::Unlisted;
        let open = decisions.filter_map(|decision| decision.map_err(|why| reason = why).ok());
        open.max_by_key(|rule| rule.reach().rank()).ok_or(reason)
    }
}

fn rules<S: AsRef<str>>(words: &[S]) -> Result<Vec<Rule>, PolicyError> {
    let mut rules = Vec::new();
    for word in words {
        let word = word.as_ref();
        // Presets are looked up first, because the name of a preset is also a valid host of one
        // label.
        let (head, reach) = word.split_once('=').unzip();
        let head = head.unwrap_or(word);
        if let Some(preset) = preset::find(head) {
            if let Some(reach) = reach.filter(|reach| *reach != "private") {
                return Err(PolicyError::PresetReach {
                    preset: head.to_owned(),
                    reach: reach.to_owned(),
                });
            }
            let suffix = &word[head.len()..];
            for rule in preset.rules {
                rules.push(format!("{rule}{suffix}").parse()?);
            }
        } else if word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            // A host of one label must have a port. Without one it is probably a mistyped preset.
            let known: Vec<_> = preset::PRESETS.iter().map(|preset| preset.name).collect();
            return Err(PolicyError::UnknownWord {
                word: word.to_owned(),
                known: known.join(", "),
            });
        } else {
            rules.push(word.parse()?);
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::rule::Reach;

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        Policy::new(allow, deny).unwrap()
    }

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn nothing_is_open_that_no_rule_opens() {
        let none = policy(&[], &[]);
        assert_eq!(
            none.decide(&host("a.example"), 443),
            Err(EgressReason::Unlisted)
        );
        let one = policy(&["example.com"], &[]);
        for open in ["example.com", "EXAMPLE.com", "example.com."] {
            assert!(
                one.decide(&host(open), 443).is_ok() && one.decide(&host(open), 80).is_ok(),
                "{open}"
            );
        }
        for closed in [
            "a.example.com",
            "evilexample.com",
            "example.com.evil.io",
            "xn--exmple-cua.com",
            "com",
        ] {
            assert_eq!(
                one.decide(&host(closed), 443),
                Err(EgressReason::Unlisted),
                "{closed}"
            );
        }
        for port in [22, 8080, 8443] {
            assert_eq!(
                one.decide(&host("example.com"), port),
                Err(EgressReason::Port)
            );
        }
    }

    #[test]
    fn of_several_rules_the_farthest_holds() {
        let several = policy(
            &[
                "a.example",
                "a.example:443=private",
                "a.example:8080=10.0.0.1",
            ],
            &[],
        );
        let reach = |port| several.decide(&host("a.example"), port).unwrap().reach();
        assert_eq!(reach(80), Reach::Public);
        assert_eq!(reach(443), Reach::Private);
        let any = several.decide_host(&host("a.example")).unwrap();
        assert!(matches!(any.reach(), Reach::Pinned(_)));
    }

    #[test]
    fn patterns_mean_what_is_below() {
        let below = policy(&["*.example.com:8443"], &[]);
        assert!(below.decide(&host("a.b.example.com"), 8443).is_ok());
        assert_eq!(
            below.decide(&host("example.com"), 8443),
            Err(EgressReason::Unlisted)
        );
        assert_eq!(
            below.decide(&host("a.example.com"), 443),
            Err(EgressReason::Port)
        );
        assert!(below.decide_host(&host("a.example.com")).is_ok());
    }

    #[test]
    fn what_is_denied_stays_closed() {
        let mixed = policy(
            &["*.example.com", "npm"],
            &["bad.example.com", "*.example.com:80"],
        );
        assert_eq!(
            mixed.decide(&host("bad.example.com"), 443),
            Err(EgressReason::Denied)
        );
        assert_eq!(
            mixed.decide_host(&host("bad.example.com")),
            Err(EgressReason::Denied)
        );
        assert!(mixed.decide(&host("good.example.com"), 443).is_ok());
        assert_eq!(
            mixed.decide(&host("good.example.com"), 80),
            Err(EgressReason::Denied)
        );
        assert!(mixed.decide(&host("registry.npmjs.org"), 443).is_ok());
    }

    #[test]
    fn a_pattern_is_open_where_all_it_is_about_is() {
        let some = policy(&["a.test", "*.b.test:8443"], &["bad.b.test"]);
        let opens = |rule: &str, port| some.opens(&rule.parse().unwrap(), port);
        assert!(opens("a.test", 443) && opens("x.b.test", 8443) && opens("*.b.test", 8443));
        assert!(opens("*.c.b.test", 8443));
        for (rule, port) in [
            ("a.test", 8443),
            ("*.a.test", 443),
            ("b.test", 8443),
            ("*.test", 8443),
            ("bad.b.test", 8443),
        ] {
            assert!(!opens(rule, port), "{rule}:{port}");
        }
    }

    #[test]
    fn preset_private_reaches_private_addresses_of_its_hosts() {
        let policy = policy(&["pypi=private"], &[]);
        let rule: Vec<_> = policy.allowed().iter().map(Rule::reach).collect();
        assert!(rule.len() > 1 && rule.iter().all(|reach| *reach == Reach::Private));
        let error = Policy::new(&["pypi=10.0.0.1"], &[]).unwrap_err();
        assert!(error.to_string().contains("`pypi` is a preset"), "{error}");
        // A host of one label that is no preset stays a host.
        assert!(Policy::new(&["mirror=private"], &[]).is_ok());
    }

    #[test]
    fn words_are_presets_or_rules() {
        let error = Policy::new(&["nmp"], &[]).unwrap_err().to_string();
        assert!(
            error.contains("`nmp` is neither") && error.contains("npm"),
            "{error}"
        );
        assert!(Policy::new(&["registry:4873=127.0.0.1"], &[]).is_ok());
        for own in [
            "127.0.0.1:80",
            "198.18.0.1",
            "[::1]:80",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(
                matches!(Policy::new(&[own], &[]), Err(PolicyError::OwnAddress(_))),
                "{own}"
            );
        }
        let plain = policy(&["192.0.2.1:5432", "[2001:db8::1]", "192.0.2.1"], &[]);
        assert_eq!(plain.addresses().len(), 1);
        let many: Vec<String> = (1..=65).map(|last| format!("192.0.2.{last}")).collect();
        assert_eq!(Policy::new(&many, &[]), Err(PolicyError::TooManyAddresses));
        let many: Vec<String> = (1..=33).map(|port| format!("a.example:{port}")).collect();
        assert_eq!(Policy::new(&many, &[]), Err(PolicyError::TooManyPorts));
    }
}
