//! Search for the address that a command tried to reach, if it was seen to try one without a route.
//!
//! The kernel counts such attempts without their addresses. Programs print the address in their
//! error message, or the command line names it. The result is a rule to propose; nothing is decided
//! by it.

use glovebox_egress::{AddressKind, is_own, kind};
use glovebox_proto::{Denial, EgressReason};
use std::net::{IpAddr, Ipv4Addr};

/// Separators between an address and a port in programs' messages.
const BEFORE_PORT: [&str; 8] = [
    ":",
    " port ",
    ", port ",
    "\", port ",
    " ",
    ", ",
    "', ",
    "\", ",
];
/// Prefix of a device path of `bash` for an address and a port (`/dev/tcp/ADDRESS/PORT`).
const DEVICE: &str = "/dev/tcp/";

/// Address that a text names. `port` is `None` if the text names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NamedAddress {
    address: Ipv4Addr,
    port: Option<u16>,
}

/// Returns true if the record is about an unknown address.
pub(super) const fn lacks_address(denial: &Denial) -> bool {
    matches!(
        denial,
        Denial::Connection { rule: None, .. }
            | Denial::Egress {
                reason: EgressReason::Address,
                ..
            }
    )
}

/// Adds the address to a record, if the end of the output or the command line names one. Calls
/// `command` only if the output names none.
pub(super) fn with_address<'a>(
    denial: Denial,
    output: &[u8],
    command: impl FnOnce() -> &'a [u8],
) -> Denial {
    // TRUST: a command can print anything. An address is digits and dots, and the rule is only
    // proposed.
    let output = named(&String::from_utf8_lossy(output)).pop();
    let from_command = || {
        named(&String::from_utf8_lossy(command()))
            .into_iter()
            .next()
    };
    let Some(named) = output.or_else(from_command) else {
        return denial;
    };
    match denial {
        Denial::Connection {
            attempts,
            is_shared,
            rule: None,
        } => Denial::Connection {
            attempts,
            is_shared,
            rule: Some(named.rule()),
        },
        Denial::Egress {
            reason: EgressReason::Address,
            attempts,
            is_shared,
            ..
        } => Denial::Egress {
            host: named.address.to_string(),
            port: named.port,
            reason: EgressReason::Unlisted,
            attempts,
            is_shared,
        },
        other => other,
    }
}

impl NamedAddress {
    /// Returns the rule that opens the address.
    fn rule(self) -> String {
        Denial::opening_rule(&self.address.to_string(), self.port)
    }

    /// Returns true if the address is outside the sandbox and a rule can open it.
    fn can_be_opened(self) -> bool {
        !is_own(self.address) && kind(IpAddr::V4(self.address)) != AddressKind::Never
    }
}

/// Returns the addresses that a text names, in order.
fn named(text: &str) -> Vec<NamedAddress> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, word) = rest.split_at(start);
        let is_begun = before.ends_with(is_part);
        let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        // The full stop of a sentence may follow the address.
        let address = word.trim_end_matches('.').parse::<Ipv4Addr>();
        if let Ok(address) = address
            && !is_begun
        {
            let port = if before.ends_with(DEVICE) {
                after.strip_prefix('/').and_then(leading_port)
            } else {
                BEFORE_PORT
                    .iter()
                    .filter_map(|between| after.strip_prefix(between))
                    .find_map(leading_port)
            };
            found.push(NamedAddress { address, port });
        }
        rest = after;
    }
    found.retain(|named| named.can_be_opened());
    found
}

/// Returns the port at the start of a text. `None` if there is none.
fn leading_port(text: &str) -> Option<u16> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, after) = text.split_at(end);
    let is_whole = !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
    // More digits than a port has, and 0, are not ports.
    digits.parse().ok().filter(|port| is_whole && *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules(text: &str) -> Vec<String> {
        named(text).into_iter().map(NamedAddress::rule).collect()
    }

    #[test]
    fn an_address_is_found_as_programs_write_it() {
        for (text, rule) in [
            (
                "curl: (7) Failed to connect to 8.8.4.4 port 80 after 0 ms",
                "8.8.4.4",
            ),
            (
                "connect to host 10.0.0.5 port 22: Network is unreachable",
                "10.0.0.5:22",
            ),
            (
                "connection to server at \"10.0.0.5\", port 5432 failed",
                "10.0.0.5:5432",
            ),
            (
                "npm error connect ENETUNREACH 10.0.0.5:4873 - Local",
                "10.0.0.5:4873",
            ),
            (
                "dial tcp 8.8.8.8:53: connect: network is unreachable",
                "8.8.8.8:53",
            ),
            (
                "socket.create_connection(('192.168.1.9', 8080))",
                "192.168.1.9:8080",
            ),
            ("exec 3<>/dev/tcp/172.16.0.1/6379", "172.16.0.1:6379"),
            ("curl http://10.1.2.3/path/8080", "10.1.2.3"),
            ("ping: connect: 1.1.1.1.", "1.1.1.1"),
            ("nc 10.0.0.5 9000", "10.0.0.5:9000"),
        ] {
            let found = rules(text);
            assert!(found.contains(&rule.to_owned()), "{text}: {found:?}");
            assert_eq!(found.len(), 1, "{text}: {found:?}");
        }
    }

    #[test]
    fn what_is_no_address_outside_is_not_proposed() {
        for text in [
            "version 1.2.3",
            "v1.2.3.4",
            "1.2.3.4.5",
            "lib-1.2.3.4.so",
            "300.1.1.1",
            "010.0.0.1",
            "127.0.0.1:80",
            "198.18.0.1:808",
            "169.254.169.254",
            "0.0.0.0:80",
            "224.0.0.1",
        ] {
            assert_eq!(rules(text), [""; 0], "{text}");
        }
        // A number that is not a port is left out of the rule.
        assert_eq!(rules("8.8.8.8:99999"), ["8.8.8.8"]);
        assert_eq!(rules("8.8.8.8:0"), ["8.8.8.8"]);
    }

    #[test]
    fn the_last_of_the_output_counts_and_then_the_command() {
        let refused = Denial::Egress {
            host: String::new(),
            port: None,
            reason: EgressReason::Address,
            attempts: 2,
            is_shared: false,
        };
        assert!(lacks_address(&refused));
        let told = |output: &str, command: &str| {
            with_address(refused.clone(), output.as_bytes(), || command.as_bytes())
        };
        let Denial::Egress {
            host,
            port,
            reason,
            attempts,
            ..
        } = told("8.8.8.8:1 and then 10.0.0.5:2", "curl 1.1.1.1")
        else {
            panic!("another record");
        };
        assert_eq!((host.as_str(), port, attempts), ("10.0.0.5", Some(2), 2));
        assert_eq!(reason, EgressReason::Unlisted);
        assert!(matches!(
            told("it failed", "curl 1.1.1.1"),
            Denial::Egress {
                reason: EgressReason::Unlisted,
                port: None,
                ..
            }
        ));
        assert_eq!(told("it failed", "curl"), refused);
    }

    proptest! {
        #[test]
        fn any_text_is_looked_at(text in ".{0,30}[0-9.:]{0,20}.{0,30}") {
            for found in named(&text) {
                prop_assert!(text.contains(&found.address.to_string()));
            }
        }
    }
}
