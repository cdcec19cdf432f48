//! Permissions of users to open hosts for the sandbox of a session.
//!
//! A host that a user opens is reached over the operator's network. Administrators may open any
//! host; other users none, or hosts of the public internet with `--users-open-hosts public`.

use super::App;
use glovebox_egress::Rule;

/// Hosts that a user may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostRights {
    /// No host.
    Nothing,
    /// Names, which resolve to public addresses only, and public addresses.
    Public,
    /// Every host that a rule can open.
    Everything,
}

impl HostRights {
    /// Returns true if the rule may be opened. An invalid rule may be opened with `Everything`
    /// only.
    pub(crate) fn cover(self, rule: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            // TRUST: a command chose the host of the rule.
            Self::Public => rule
                .parse::<Rule>()
                .is_ok_and(|rule| rule.leads_to_public_only()),
        }
    }
}

impl App {
    /// Returns the hosts that a user may open.
    pub(crate) const fn host_rights(&self, is_admin: bool) -> HostRights {
        match (is_admin, self.config.users_open_public_hosts) {
            (true, _) => HostRights::Everything,
            (false, true) => HostRights::Public,
            (false, false) => HostRights::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_rights_cover_names_and_public_addresses_only() {
        let public = HostRights::Public;
        for rule in ["a.test", "a.test:8443", "8.8.8.8", "[2606:4700::1111]"] {
            assert!(public.cover(rule), "{rule}");
        }
        for rule in [
            "10.0.0.5:8080",
            "192.168.1.1",
            "127.0.0.1:22",
            "[fd00::1]",
            "[::ffff:10.0.0.5]",
            "[64:ff9b::a00:5]",
            "169.254.169.254",
            "100.64.0.1",
            "a.test=private",
            "a.test=10.0.0.5",
            "",
        ] {
            assert!(!public.cover(rule), "{rule}");
            assert!(HostRights::Everything.cover(rule) && !HostRights::Nothing.cover(rule));
        }
    }
}
