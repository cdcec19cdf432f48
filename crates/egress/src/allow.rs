//! Adds rules to a running proxy: parses the rules and checks that they can still take effect.

use crate::policy::name::Host;
use crate::policy::rule::Rule;
use crate::policy::{Policy, PolicyError};
use glovebox_proto::dns::is_local;
use std::io;
use std::net::Ipv4Addr;

/// Error of adding a rule to a running proxy.
#[derive(Debug, thiserror::Error)]
pub enum AllowError {
    /// The text is neither a rule nor a preset, or the policy would have too many rules.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The address cannot be added to the sandbox's own network interface.
    #[error("{address} cannot be opened while the sandbox runs: {error}")]
    Address {
        /// Address that the rule names.
        address: Ipv4Addr,
        /// Error of the kernel.
        error: io::Error,
    },
    /// The rule names `localhost` or a name below it, which never leaves the sandbox.
    #[error("`{0}` is the sandbox itself, whatever the rules say; choose another name")]
    OwnName(Host),
    /// A rule that denies closes every port that the new rule would open.
    #[error(
        "`{rule}` stays closed: the sandbox was started with `{by}` denied, and that goes first"
    )]
    Denied {
        /// Rule that was to be added.
        rule: String,
        /// Denying rule that closes it.
        by: String,
    },
    /// The sandbox has [`MAX_ADDRESSES`](crate::MAX_ADDRESSES) addresses, including those of
    /// expired rules.
    #[error(
        "{address} cannot be opened: {} addresses have been opened, and there can be no more",
        crate::MAX_ADDRESSES
    )]
    TooManyAddresses {
        /// First address for which there is no room.
        address: Ipv4Addr,
    },
    /// The proxy listens on [`MAX_PORTS`](crate::MAX_PORTS) ports.
    #[error(
        "port {port} cannot be opened: {} ports are open, and there can be no more",
        crate::MAX_PORTS
    )]
    TooManyPorts {
        /// First port for which no socket is left.
        port: u16,
    },
    /// The proxy cannot listen on the port.
    #[error("port {port} cannot be opened: {error} (does a program inside listen on it?)")]
    Port {
        /// Port that the rule opens.
        port: u16,
        /// Error of the kernel.
        error: io::Error,
    },
}

/// Returns the rules that `words` stand for: rules, or names of presets.
///
/// Fails with [`AllowError::OwnName`] or [`AllowError::Denied`] for a rule that could have no
/// effect under the policy `in_force`, and with [`AllowError::Policy`] for a text that is not a
/// rule.
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
