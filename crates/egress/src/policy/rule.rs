//! Rule of a policy: a name or an address, a port, and the reach.
//!
//! Written `HOST[:PORT][=private|=ADDRESS]`. `HOST` is a name, `*.` and a name for all subdomains,
//! or an address. Without a port the rule applies to 80 and 443. A name may lead to public
//! addresses only; `=private` allows private addresses as well, and `=ADDRESS` fixes the address,
//! which is then not looked up.

use crate::policy::address::{AddressKind, kind};
use crate::policy::name::{Host, Name, NameError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Ports of an allowing rule that names none.
pub(crate) const USUAL_PORTS: [u16; 2] = [80, 443];

/// Hosts that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Exact(Host),
    Below(Name),
}

/// Addresses that a name may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Addresses of the public internet only.
    Public,
    /// Public and private addresses.
    Private,
    /// This address only; the name is not looked up.
    Pinned(IpAddr),
}

impl Reach {
    /// Returns the order of reaches; a higher rank reaches farther.
    pub(crate) const fn rank(self) -> u8 {
        match self {
            Self::Public => 0,
            Self::Private => 1,
            Self::Pinned(_) => 2,
        }
    }
}

/// Rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    pattern: Pattern,
    port: Option<u16>,
    reach: Reach,
}

/// Error of parsing a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The host is invalid.
    #[error("`{0}` is no host: {1}")]
    Host(String, NameError),
    /// The port is invalid.
    #[error("`{0}` is no port; ports are numbers from 1 to 65535")]
    Port(String),
    /// The text behind `=` is invalid.
    #[error("`{0}` is not how far a rule reaches; write `=private`, or `=` and an address")]
    Reach(String),
    /// The address is of a kind that no rule allows.
    #[error("{0} is never reached: it is no single machine, or hands out credentials")]
    Never(IpAddr),
    /// A pattern or an address has a fixed address.
    #[error("`{0}` names no single host, so it has no fixed address")]
    PinnedPattern(String),
}

impl Rule {
    /// Returns the port that the rule names. `None` means 80 and 443 if the rule allows, and all
    /// ports if it denies.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the reach of the rule.
    pub const fn reach(&self) -> Reach {
        self.reach
    }

    /// Returns the address if the rule is for an address. `None` if it is for names.
    pub(crate) const fn address(&self) -> Option<IpAddr> {
        match self.pattern {
            Pattern::Exact(Host::Address(address)) => Some(address),
            _ => None,
        }
    }

    /// Returns the only host that the rule matches. `None` if it matches all subdomains of a name.
    pub(crate) const fn host(&self) -> Option<&Host> {
        match &self.pattern {
            Pattern::Exact(host) => Some(host),
            Pattern::Below(_) => None,
        }
    }

    /// Returns true if the rule matches this host.
    pub fn matches_host(&self, host: &Host) -> bool {
        match (&self.pattern, host) {
            (Pattern::Exact(own), host) => own == host,
            (Pattern::Below(parent), Host::Name(name)) => name.is_below(parent),
            (Pattern::Below(_), Host::Address(_)) => false,
        }
    }

    /// Returns true if the rule is for names and not for an address.
    pub(crate) const fn is_by_name(&self) -> bool {
        !matches!(self.pattern, Pattern::Exact(Host::Address(_)))
    }

    /// Returns the name of the rule; for a pattern, the name whose subdomains it matches. `None` if
    /// the rule is for an address.
    pub(crate) fn name(&self) -> Option<&Name> {
        match &self.pattern {
            Pattern::Exact(Host::Name(name)) | Pattern::Below(name) => Some(name),
            Pattern::Exact(Host::Address(_)) => None,
        }
    }

    /// Returns true if the rule matches every host that `other` matches.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (&self.pattern, &other.pattern) {
            (_, Pattern::Exact(host)) => self.matches_host(host),
            (Pattern::Below(own), Pattern::Below(name)) => name == own || name.is_below(own),
            (Pattern::Exact(_), Pattern::Below(_)) => false,
        }
    }

    /// Returns the ports that the rule opens if it allows.
    pub fn opened_ports(&self) -> &[u16] {
        self.port
            .as_ref()
            .map_or(&USUAL_PORTS, std::slice::from_ref)
    }

    /// Returns true if the rule, used as a denial, closes this host and port. A denial without a
    /// port closes all ports.
    pub(crate) fn closes(&self, host: &Host, port: u16) -> bool {
        self.matches_host(host) && self.port.is_none_or(|own| own == port)
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (place, reach) = match text.split_once('=') {
            None => (text, Reach::Public),
            Some((place, "private")) => (place, Reach::Private),
            Some((place, address)) => {
                let parsed = Host::parse(address).or_else(|_| Host::parse(&format!("[{address}]")));
                match parsed {
                    Ok(Host::Address(address)) => (place, Reach::Pinned(address)),
                    _ => return Err(RuleError::Reach(address.to_owned())),
                }
            }
        };
        // A colon before a closing bracket is part of an IPv6 address.
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (place, None),
        };
        let port = port
            .map(|text| {
                let is_plain =
                    text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
                text.parse::<u16>()
                    .ok()
                    .filter(|_| is_plain)
                    .ok_or_else(|| RuleError::Port(text.to_owned()))
            })
            .transpose()?;
        let not_a_host = |error| RuleError::Host(host.to_owned(), error);
        let pattern = match host.strip_prefix("*.") {
            Some(parent) => Pattern::Below(Name::parse(parent).map_err(not_a_host)?),
            None => Pattern::Exact(Host::parse(host).map_err(not_a_host)?),
        };
        let addresses = [
            match &pattern {
                Pattern::Exact(Host::Address(address)) => Some(*address),
                _ => None,
            },
            match reach {
                Reach::Pinned(address) => Some(address),
                Reach::Public | Reach::Private => None,
            },
        ];
        for address in addresses.into_iter().flatten() {
            if kind(address) == AddressKind::Never {
                return Err(RuleError::Never(address));
            }
        }
        if matches!(reach, Reach::Pinned(_)) && !matches!(pattern, Pattern::Exact(Host::Name(_))) {
            return Err(RuleError::PinnedPattern(host.to_owned()));
        }
        Ok(Self {
            pattern,
            port,
            reach,
        })
    }
}

impl Rule {
    /// Returns true if the rule can reach no private address. Names that are looked up and not
    /// pinned lead to public addresses only, because addresses are checked after each lookup.
    pub fn leads_to_public_only(&self) -> bool {
        if self.reach != Reach::Public {
            return false;
        }
        match &self.pattern {
            Pattern::Exact(Host::Address(address)) => kind(*address) == AddressKind::Public,
            Pattern::Exact(Host::Name(_)) | Pattern::Below(_) => true,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Exact(host) => host.fmt(f)?,
            Pattern::Below(name) => write!(f, "*.{name}")?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        match self.reach {
            Reach::Public => Ok(()),
            Reach::Private => f.write_str("=private"),
            Reach::Pinned(address) => write!(f, "={address}"),
        }
    }
}

impl TryFrom<String> for Rule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rules_are_written_as_they_are_read() {
        for (text, want) in [
            ("Example.com", "example.com"),
            ("*.example.com:8443", "*.example.com:8443"),
            ("intranet.example=private", "intranet.example=private"),
            ("a.test:4873=127.0.0.1", "a.test:4873=127.0.0.1"),
            ("a.test=::1", "a.test=::1"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("192.0.2.1", "192.0.2.1"),
            ("localhost:8080=private", "localhost:8080=private"),
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), want, "{text}");
        }
        for text in [
            "",
            "*",
            "*.",
            "a:0",
            "a:080",
            "a:65536",
            "a:+1",
            "a:b",
            "a:",
            "*.*.a",
            "a.*.b",
            "a=",
            "a=b",
            "*.a=10.0.0.1",
            "10.0.0.1=10.0.0.2",
            "169.254.169.254",
            "a=169.254.169.254",
            "a=0.0.0.0",
            "[::]:80",
            "http://a",
            "a/b",
            "2001:db8::1",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_one_meaning(text in "[*a-c.:0-9=\\[\\]privte-]{0,30}") {
            if let Ok(rule) = text.parse::<Rule>() {
                prop_assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
            }
        }
    }
}
