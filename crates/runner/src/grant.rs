//! Hosts that tools may reach: rules of the operator for all tools or for tools with one name. This
//! module also decides which policy applies to a tool, and which rule would open a refused host.

use glovebox_egress::{FetchBudget, Host, Policy, PolicyError};
use glovebox_proto::{Denial, EgressReason};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Budget of the requests of one call.
pub const CALL_BUDGET: FetchBudget = FetchBudget {
    requests: 100,
    parallel: 6,
    sent_bytes: 4 << 20,
    answer_bytes: 4 << 20,
    received_bytes: 32 << 20,
};
/// Maximum number of characters of a tool's name, which is the limit of model providers.
pub const MAX_TOOL_NAME_CHARS: usize = 64;
/// Maximum number of tools with rules of their own.
const MAX_TOOLS: usize = 100;

/// Returns true if a tool can have this name: ASCII letters, digits, `_` and `-`, at most
/// [`MAX_TOOL_NAME_CHARS`].
pub fn is_tool_name(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_TOOL_NAME_CHARS).contains(&text.len()) && text.bytes().all(is_word)
}

/// Rule as an operator writes it: `[TOOL=]HOST[:PORT][=private|=ADDRESS]`, or the name of a preset
/// in the place of the host. With a tool's name it applies only to tools with that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    tool: Option<String>,
    /// Rule or preset as [`Policy::new`] accepts it.
    word: String,
}

/// Error of parsing a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostRuleError {
    /// The text is not a valid host rule.
    #[error(transparent)]
    Host(PolicyError),
    /// The text behind `=` is a valid host rule, but the text before it is not a tool's name.
    #[error(
        "`{0}` is no name of a tool: letters, digits, `_` and `-`, at most {MAX_TOOL_NAME_CHARS}"
    )]
    ToolName(String),
    /// Neither the text behind `=` nor the whole text is a valid host rule.
    #[error("{rest} for the tool `{tool}`, and for all tools {whole}")]
    Neither {
        /// Tool that the text would name.
        tool: String,
        /// Error of the text behind `=`.
        rest: PolicyError,
        /// Error of the whole text.
        whole: PolicyError,
    },
    /// The text is ambiguous: a host name with a fixed address, or a tool's name with an address to
    /// reach.
    #[error(
        "`{name}={address}` can be read in two ways: write `{name}={address}:443` for what the tool `{name}` may reach, \
         or `{name}:443={address}` for where the host `{name}` is"
    )]
    TwoReadings {
        /// Name of the tool or the host.
        name: String,
        /// Address behind `=`.
        address: String,
    },
}

fn check_word(word: &str) -> Result<(), PolicyError> {
    Policy::new(&[word], &[""; 0]).map(drop)
}

impl FromStr for HostRule {
    type Err = HostRuleError;

    fn from_str(text: &str) -> Result<Self, HostRuleError> {
        let whole = check_word(text);
        let Some((tool, rest)) = text.split_once('=') else {
            return match whole {
                Ok(()) => Ok(Self::common(text)),
                Err(error) => Err(HostRuleError::Host(error)),
            };
        };
        match (whole, check_word(rest), is_tool_name(tool)) {
            (Ok(()), Ok(()), true) => Err(HostRuleError::TwoReadings {
                name: tool.to_owned(),
                address: rest.to_owned(),
            }),
            (Ok(()), ..) => Ok(Self::common(text)),
            (Err(_), Ok(()), true) => Ok(Self {
                tool: Some(tool.to_owned()),
                word: rest.to_owned(),
            }),
            (Err(_), Ok(()), false) => Err(HostRuleError::ToolName(tool.to_owned())),
            (Err(whole), Err(rest), true) => Err(HostRuleError::Neither {
                tool: tool.to_owned(),
                rest,
                whole,
            }),
            (Err(whole), Err(_), false) => Err(HostRuleError::Host(whole)),
        }
    }
}

impl HostRule {
    fn common(word: &str) -> Self {
        Self {
            tool: None,
            word: word.to_owned(),
        }
    }

    /// Returns the tool that the rule applies to. `None` if it applies to all tools.
    pub fn tool(&self) -> Option<&str> {
        self.tool.as_deref()
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tool {
            Some(tool) => write!(f, "{tool}={}", self.word),
            None => f.write_str(&self.word),
        }
    }
}

/// Flags with which the rules were given, for messages that suggest one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GrantFlags {
    /// `--allow` and `--deny` of `glovebox bundle`.
    #[default]
    Bundle,
    /// `--bundle-allow` and `--bundle-deny` of `glovebox serve`.
    Serve,
}

impl GrantFlags {
    /// Returns the flag that opens a host.
    pub const fn allow(self) -> &'static str {
        match self {
            Self::Bundle => "--allow",
            Self::Serve => "--bundle-allow",
        }
    }

    /// Returns the flag that closes a host.
    pub const fn deny(self) -> &'static str {
        match self {
            Self::Bundle => "--deny",
            Self::Serve => "--bundle-deny",
        }
    }
}

/// Error of making a grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The rules for all tools, alone or with those for one tool, are too many.
    #[error("{error}{}", of_tool(.tool.as_deref()))]
    Policy {
        /// Tool whose rules are too many. `None` if the rules for all tools are too many.
        tool: Option<String>,
        /// Limit that is exceeded.
        error: PolicyError,
    },
    /// The rules name too many tools.
    #[error("the rules name more than {MAX_TOOLS} tools")]
    TooManyTools,
}

fn of_tool(tool: Option<&str>) -> String {
    tool.map_or_else(String::new, |tool| format!(" (for the tool `{tool}`)"))
}

/// Hosts that tools may reach. An operator grants them; a bundle cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostGrant {
    /// Policy of the tools without rules of their own.
    common: Arc<Policy>,
    /// Policies of the other tools by name: the common rules and their own.
    of_tools: BTreeMap<String, Arc<Policy>>,
    /// Certificates (PEM) that are trusted in addition to those of this machine.
    authorities: Vec<u8>,
    flags: GrantFlags,
}

impl HostGrant {
    /// Makes a grant from these rules. A host that a rule of `deny` closes stays closed, even if
    /// other rules open it.
    ///
    /// # Errors
    /// [`GrantError`] if there are too many rules or tools.
    pub fn new(
        allow: &[HostRule],
        deny: &[HostRule],
        flags: GrantFlags,
    ) -> Result<Self, GrantError> {
        let policy_of = |tool: Option<&str>| {
            let words = |rules: &[HostRule]| -> Vec<String> {
                let holds = |rule: &&HostRule| rule.tool.is_none() || rule.tool() == tool;
                let rules = rules.iter().filter(holds);
                rules.map(|rule| rule.word.clone()).collect()
            };
            let policy = Policy::new(&words(allow), &words(deny));
            policy.map(Arc::new).map_err(|error| GrantError::Policy {
                tool: tool.map(str::to_owned),
                error,
            })
        };
        let tools = allow.iter().chain(deny).filter_map(HostRule::tool);
        let tools: BTreeSet<&str> = tools.collect();
        if tools.len() > MAX_TOOLS {
            return Err(GrantError::TooManyTools);
        }
        let common = policy_of(None)?;
        let of_tools = tools
            .into_iter()
            .map(|tool| Ok((tool.to_owned(), policy_of(Some(tool))?)));
        Ok(Self {
            common,
            of_tools: of_tools.collect::<Result<_, GrantError>>()?,
            authorities: Vec::new(),
            flags,
        })
    }

    /// Returns the grant with certificates (PEM) that are trusted in addition to those of this
    /// machine.
    #[must_use]
    pub fn with_authorities(mut self, authorities: Vec<u8>) -> Self {
        self.authorities = authorities;
        self
    }

    pub(crate) fn authorities(&self) -> &[u8] {
        &self.authorities
    }

    /// Returns true if no tool may reach any host.
    pub fn is_empty(&self) -> bool {
        let mut policies = self.of_tools.values().chain([&self.common]);
        policies.all(|policy| policy.allowed().is_empty())
    }

    /// Returns the tools with rules of their own.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.of_tools.keys().map(String::as_str)
    }

    /// Returns the policy of a tool with this name.
    pub fn policy_of(&self, tool: &str) -> &Arc<Policy> {
        self.of_tools.get(tool).unwrap_or(&self.common)
    }

    /// Returns a sentence on how the user can open a host that was refused to a tool.
    pub(crate) fn remedy(
        &self,
        tool: &str,
        host: &str,
        port: Option<u16>,
        reason: EgressReason,
    ) -> String {
        let (allow, deny) = (self.flags.allow(), self.flags.deny());
        match reason {
            EgressReason::Unlisted | EgressReason::Port => {
                format!("`{allow} {tool}={}` opens it", opening_word(host, port))
            }
            EgressReason::Private => format!(
                "`{allow} {tool}={}=private` opens it",
                opening_word(host, port)
            ),
            EgressReason::Denied => format!("whoever runs the tool can leave out that `{deny}`"),
            EgressReason::Address => format!(
                "connect by name, and list it with `{allow} {tool}=HOST:PORT`, or list the address: `{allow} \
                 {tool}=ADDRESS:PORT`"
            ),
            EgressReason::ByteLimit => format!(
                "one call sends and receives at most {} MiB",
                (CALL_BUDGET.sent_bytes + CALL_BUDGET.received_bytes) >> 20
            ),
            EgressReason::ConnectionLimit => format!(
                "one call has at most {} connections at a time",
                CALL_BUDGET.requests
            ),
            // No flag of the user changes these decisions.
            EgressReason::OtherName | EgressReason::NoTls | EgressReason::Never => {
                let denial = Denial::Egress {
                    host: host.to_owned(),
                    port,
                    reason,
                    attempts: 1,
                    is_shared: false,
                };
                denial.remedy().to_string()
            }
        }
    }
}

/// Host that a tool requested and may not reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedHost {
    /// Normalized host.
    pub host: String,
    /// Requested port. `None` if only the name was looked up.
    pub port: Option<u16>,
    /// Reason of the refusal.
    pub reason: EgressReason,
    /// Sentence on how the user can open the host.
    pub remedy: String,
}

/// Returns the rule that opens a host at a port and is unambiguous behind a tool's name. An address
/// needs its port, and so does a name of one label, which would be read as a preset otherwise.
fn opening_word(host: &str, port: Option<u16>) -> String {
    let is_name = host.contains('.') && matches!(Host::parse(host), Ok(Host::Name(_)));
    match port {
        None | Some(80 | 443) if is_name => host.to_owned(),
        None => format!("{host}:PORT"),
        Some(port) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> HostRule {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn rules(texts: &[&str]) -> Vec<HostRule> {
        texts.iter().map(|text| rule(text)).collect()
    }

    fn grant(allow: &[&str], deny: &[&str]) -> HostGrant {
        HostGrant::new(&rules(allow), &rules(deny), GrantFlags::Serve).unwrap()
    }

    fn opens(grant: &HostGrant, tool: &str, host: &str, port: u16) -> bool {
        let host = Host::parse(host).unwrap();
        grant.policy_of(tool).decide(&host, port).is_ok()
    }

    #[test]
    fn a_rule_is_about_all_tools_or_about_those_of_one_name() {
        for (text, tool) in [
            ("api.example.com", None),
            ("npm", None),
            ("*.example.com:8443", None),
            ("api.example.com=private", None),
            ("intranet=private", None),
            ("intranet:8080=10.0.0.1", None),
            ("weather=2001:db8::1", None),
            ("weather=127.0.0.1", None),
            ("weather=api.example.com", Some("weather")),
            ("weather=*.example.com:8443", Some("weather")),
            ("weather=npm", Some("weather")),
            ("get_2-b=build.corp.example:8080=private", Some("get_2-b")),
            ("weather=api.example.com:443=127.0.0.1", Some("weather")),
            ("weather=10.0.0.1:443", Some("weather")),
            ("weather=[2001:db8::1]:443", Some("weather")),
        ] {
            let rule = rule(text);
            assert_eq!(rule.tool(), tool, "{text}");
            assert_eq!(rule.to_string(), text);
        }
        for (text, told) in [
            ("", "neither a host nor a preset"),
            ("nmp", "neither a host nor a preset"),
            ("=api.example.com", "`` is no name of a tool"),
            ("my tool=api.example.com", "`my tool` is no name of a tool"),
            ("a.b=api.example.com", "`a.b` is no name of a tool"),
            (
                "api.example.com=privat",
                "`privat` is not how far a rule reaches",
            ),
            ("weather=nmp", "`nmp` is neither a host nor a preset"),
            ("weather=", "for the tool `weather`"),
            ("weather=http://a.example/", "for the tool `weather`"),
            ("weather=169.254.169.254:80", "never reached"),
            ("weather=other=api.example.com", "for the tool `weather`"),
            ("weather=10.0.0.1", "read in two ways"),
            ("weather=[2001:db8::1]", "read in two ways"),
        ] {
            let error = text.parse::<HostRule>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
        let long = "t".repeat(MAX_TOOL_NAME_CHARS + 1);
        assert!(format!("{long}=a.example").parse::<HostRule>().is_err());
        assert_eq!(
            rule(&format!("{}=a.example", &long[1..])).tool(),
            Some(&long[1..])
        );
    }

    #[test]
    fn a_tool_has_the_common_rules_and_its_own_and_none_of_others() {
        let grant = grant(
            &[
                "all.example",
                "*.wide.example",
                "weather=api.example",
                "weather=npm",
                "b=b.example:81",
            ],
            &["weather=bad.wide.example", "never.wide.example"],
        );
        for (tool, host, port, is_open) in [
            ("weather", "all.example", 443, true),
            ("weather", "api.example", 443, true),
            ("weather", "registry.npmjs.org", 443, true),
            ("weather", "b.example", 81, false),
            ("weather", "bad.wide.example", 443, false),
            ("weather", "never.wide.example", 443, false),
            ("b", "all.example", 443, true),
            ("b", "b.example", 81, true),
            ("b", "b.example", 443, false),
            ("b", "api.example", 443, false),
            ("b", "bad.wide.example", 443, true),
            ("other", "all.example", 443, true),
            ("other", "api.example", 443, false),
            ("other", "never.wide.example", 443, false),
            ("Weather", "api.example", 443, false),
            ("", "api.example", 443, false),
        ] {
            assert_eq!(
                opens(&grant, tool, host, port),
                is_open,
                "{tool} {host}:{port}"
            );
        }
        assert!(grant.tools().eq(["b", "weather"]));
        assert!(!grant.is_empty());
        assert!(HostGrant::default().is_empty());
        let closed = HostGrant::new(&[], &rules(&["a=b.example"]), GrantFlags::Bundle);
        assert!(closed.unwrap().is_empty());
    }

    #[test]
    fn tools_and_rules_are_bounded_and_a_tool_with_too_many_is_named() {
        let of_tools = |count: usize| -> Vec<HostRule> {
            let texts = (0..count).map(|number| format!("t{number}=a.example"));
            texts.map(|text| rule(&text)).collect()
        };
        let made = |allow: &[HostRule]| HostGrant::new(allow, &[], GrantFlags::Bundle);
        assert!(made(&of_tools(MAX_TOOLS)).is_ok());
        assert_eq!(
            made(&of_tools(MAX_TOOLS + 1)),
            Err(GrantError::TooManyTools)
        );
        let mut many: Vec<HostRule> = (1..=32)
            .map(|port| rule(&format!("a.example:{port}")))
            .collect();
        assert!(made(&many).is_ok());
        many.push(rule("weather=a.example:33"));
        let error = made(&many).unwrap_err().to_string();
        assert!(
            error.contains("different ports") && error.contains("the tool `weather`"),
            "{error}"
        );
    }

    /// What is told to open a host opens it, for the tool that was refused and for no other.
    #[test]
    fn a_remedy_is_a_rule_that_opens_the_host_for_this_tool_alone() {
        for (host, port, reason) in [
            ("api.example", 443, EgressReason::Unlisted),
            ("api.example", 80, EgressReason::Unlisted),
            ("api.example", 8080, EgressReason::Port),
            ("intranet", 80, EgressReason::Unlisted),
            ("intranet", 443, EgressReason::Private),
            ("npm", 443, EgressReason::Unlisted),
            ("10.0.0.1", 80, EgressReason::Unlisted),
            ("[2001:db8::1]", 443, EgressReason::Unlisted),
            ("corp.example", 443, EgressReason::Private),
        ] {
            let told = grant(&[], &[]).remedy("get", host, Some(port), reason);
            let word = told.strip_prefix("`--bundle-allow ");
            let word = word.and_then(|rest| rest.strip_suffix("` opens it"));
            let word = word.unwrap_or_else(|| panic!("{told}"));
            let opened = grant(&[word], &[]);
            assert!(opens(&opened, "get", host, port), "{told}");
            assert!(!opens(&opened, "other", host, port), "{told}");
        }
        let local = HostGrant::default();
        let told = local.remedy("get", "api.example", None, EgressReason::Unlisted);
        assert_eq!(told, "`--allow get=api.example` opens it");
        for reason in EgressReason::ALL {
            let told = local.remedy("get", "api.example", Some(443), reason);
            assert!(!told.is_empty() && !told.contains("--net"), "{told}");
        }
    }
}
