//! Adding rules to a running proxy: from words to rules, with the checks that only matter while it runs.

use crate::policy::name::Host;
use crate::policy::rule::Rule;
use crate::policy::{Policy, PolicyError};
use glovebox_proto::dns::is_local;
use std::io;
use std::net::Ipv4Addr;

/// Why a rule cannot be added to a running proxy.
#[derive(Debug, thiserror::Error)]
pub enum AllowError {
    /// It is no rule, or there are too many.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// An address cannot be made one of the sandbox's own.
    #[error("{address} cannot be opened while the sandbox runs: {error}")]
    Address {
        /// The address.
        address: Ipv4Addr,
        /// What the kernel says.
        error: io::Error,
    },
    /// It is about a name that never leaves the sandbox.
    #[error("`{0}` is the sandbox itself, whatever the rules say; choose another name")]
    OwnName(Host),
    /// A rule closes all that it would open.
    #[error(
        "`{rule}` stays closed: the sandbox was started with `{by}` denied, and that goes first"
    )]
    Denied {
        /// The rule.
        rule: String,
        /// The one that closes it.
        by: String,
    },
    /// As many addresses have been opened as there can be, with those whose rules have ended.
    #[error(
        "{address} cannot be opened: {} addresses have been opened, and there can be no more",
        crate::MAX_ADDRESSES
    )]
    TooManyAddresses {
        /// The address.
        address: Ipv4Addr,
    },
    /// There are listeners on as many ports as there can be.
    #[error(
        "port {port} cannot be opened: {} ports are open, and there can be no more",
        crate::MAX_PORTS
    )]
    TooManyPorts {
        /// The port.
        port: u16,
    },
    /// The port cannot be listened on.
    #[error("port {port} cannot be opened: {error} (does a program inside listen on it?)")]
    Port {
        /// The port.
        port: u16,
        /// What the kernel says.
        error: io::Error,
    },
}

/// The rules that these words stand for, where they can be added under this policy.
pub(crate) fn new_rules<S: AsRef<str>>(
    words: &[S],
    in_force: &Policy,
) -> Result<Vec<Rule>, AllowError> {
    let rules = Policy::new(words, &[])?.allowed().to_vec();
    for rule in &rules {
        let Some(host) = rule.host() else { continue };
        if let Host::Name(name) = host
            && is_local(name.as_str().as_bytes())
        {
            return Err(AllowError::OwnName(host.clone()));
        }
        let closing = |port: &u16| in_force.closing_rule(host, Some(*port));
        let closed: Option<Vec<&Rule>> = rule.opened_ports().iter().map(closing).collect();
        if let Some(by) = closed.as_deref().and_then(<[_]>::first) {
            return Err(AllowError::Denied {
                rule: rule.to_string(),
                by: by.to_string(),
            });
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_opened_while_a_sandbox_runs_is_told() {
        let policy = Policy::new(&["a.example"], &["b.example", "c.example:80"]).unwrap();
        let told = |word: &str| new_rules(&[word], &policy).unwrap_err().to_string();
        assert!(told("[::1]:80").contains("the sandbox itself"));
        assert!(told("127.0.0.1:80").contains("the sandbox itself"));
        assert!(told("localhost:80=private").contains("the sandbox itself"));
        assert!(told("x.localhost").contains("the sandbox itself"));
        assert!(told("b.example:8080").contains("`b.example` denied"));
        assert!(told("c.example:80").contains("`c.example:80` denied"));
        assert!(told("nmp").contains("neither a host nor a preset"));
        assert!(told("169.254.169.254").contains("never reached"));
        for fine in [
            "c.example",
            "*.b.example",
            "npm",
            "d.example:5=127.0.0.1",
            "192.0.2.1:80",
            "10.0.0.1:5432",
            "[2001:db8::1]",
        ] {
            assert!(new_rules(&[fine], &policy).is_ok(), "{fine}");
        }
    }
}
