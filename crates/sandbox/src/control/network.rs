//! Orders to a supervisor about its sandbox's egress proxy, and their answers: JSON, in pages that
//! fit into one packet.

use crate::fault;
use glovebox_egress::{AllowError, Host, ProxyHandle, RuleInForce, TrafficLimitChanges};
use glovebox_proto::{Code, Fault, Setting};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Maximum number of words in one order to open hosts. All rules that they stand for fit into one
/// answer.
const MAX_WORDS: usize = 100;
/// Maximum length of a word, in bytes. A name, a port and an address are shorter.
const MAX_WORD_BYTES: usize = 512;
/// Size at which a page ends, in bytes. The next item always fits into the rest of the packet.
const PAGE_BYTES: usize = 48 << 10;
/// Maximum number of decisions in one page of news. The largest take 3 KiB each.
const NEWS_ITEMS: usize = 16;
/// Maximum number of items in a page.
const PAGE_ITEMS: usize = 1000;

/// Maximum time to wait for a change of the log. A client that is gone is noticed only after it.
const MAX_CHANGES_WAIT: Duration = Duration::from_secs(10);

/// Order about the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetworkOrder {
    /// Return the decisions with a number above `after`.
    Log { after: u64 },
    /// Return the decisions and ends of connections after a change. Waits for at most `wait_ms`.
    LogChanges { after: u64, wait_ms: u64 },
    /// Return the rules in force, without the first `skip`.
    Rules { skip: usize },
    /// Return the decisions and traffic since the previous order.
    News { is_last: bool },
    /// Return the traffic.
    Stats,
    /// Change limits and return the traffic.
    Limit(TrafficLimitChanges),
    /// Open hosts for `lifetime_ms`, or as long as the sandbox runs.
    Allow {
        words: Vec<String>,
        lifetime_ms: Option<u64>,
    },
    /// Decide about a connection and try it.
    Probe { host: String, port: u16 },
}

impl NetworkOrder {
    /// Creates the order to open hosts.
    ///
    /// # Errors
    /// `too-large` if there are too many words or one is too long.
    pub(crate) fn allow(words: &[String], lifetime: Option<Duration>) -> Result<Self, Fault> {
        if words.len() > MAX_WORDS {
            return Err(Fault::refused(
                Code::TooLarge,
                format!(
                    "{} hosts are more than can be opened at once ({MAX_WORDS})",
                    words.len()
                ),
            ));
        }
        if words.iter().any(|word| word.len() > MAX_WORD_BYTES) {
            return Err(Fault::refused(
                Code::TooLarge,
                format!("a host is longer than {MAX_WORD_BYTES} bytes"),
            ));
        }
        Ok(Self::Allow {
            words: words.to_vec(),
            lifetime_ms: lifetime.map(|lifetime| lifetime.as_millis() as u64),
        })
    }
}

/// Executes an order on a sandbox's proxy and returns the answer as JSON.
pub(super) fn answer(proxy: Option<&ProxyHandle>, order: NetworkOrder) -> Result<String, Fault> {
    let proxy = proxy.ok_or_else(no_filtered_network)?;
    match order {
        NetworkOrder::Log { after } => page(proxy.control().log(after, PAGE_ITEMS)),
        NetworkOrder::LogChanges { after, wait_ms } => {
            let wait = Duration::from_millis(wait_ms).min(MAX_CHANGES_WAIT);
            page(proxy.control().log_changes(after, PAGE_ITEMS, wait))
        }
        NetworkOrder::Rules { skip } => page(proxy.control().rules().into_iter().skip(skip)),
        NetworkOrder::News { is_last } => to_json(&proxy.control().take_news(NEWS_ITEMS, is_last)),
        NetworkOrder::Stats => to_json(&proxy.control().stats()),
        NetworkOrder::Limit(changes) => {
            proxy.control().change_limits(changes);
            to_json(&proxy.control().stats())
        }
        NetworkOrder::Allow { words, lifetime_ms } => to_json(&allow(
            proxy,
            &words,
            lifetime_ms.map(Duration::from_millis),
        )?),
        NetworkOrder::Probe { host, port } => {
            let host = Host::parse(&host).map_err(|error| {
                Fault::refused(
                    Code::InvalidArgument,
                    format!("`{host}` is no host: {error}"),
                )
            })?;
            let ended = || Fault::lost(Code::LinkLost, "the sandbox has ended");
            to_json(&proxy.probe(host, port).ok_or_else(ended)?)
        }
    }
}

/// Opens hosts in a running proxy. Returns the rules that were added.
pub(crate) fn allow(
    proxy: &ProxyHandle,
    words: &[String],
    lifetime: Option<Duration>,
) -> Result<Vec<RuleInForce>, Fault> {
    proxy.allow(words, lifetime).map_err(|error| {
        let code = match error {
            AllowError::Policy(_) | AllowError::OwnName(_) => Code::InvalidArgument,
            AllowError::Denied { .. } => Code::PermissionDenied,
            AllowError::Address { .. } => Code::Unsupported,
            AllowError::TooManyAddresses { .. }
            | AllowError::TooManyPorts { .. }
            | AllowError::Port { .. } => Code::Busy,
        };
        Fault::refused(code, error.to_string())
    })
}

/// Returns the fault for a sandbox without an egress proxy.
pub(crate) fn no_filtered_network() -> Fault {
    Fault::failed(
        Code::Unsupported,
        "this sandbox has no network of listed hosts",
    )
    .remedy(["start one with ".into(), Setting::Net.of("egress")])
}

/// Returns a JSON array of as many items as fit into a page, at least one.
fn page<T: Serialize>(items: impl IntoIterator<Item = T>) -> Result<String, Fault> {
    let mut text = String::from("[");
    for item in items {
        let item = to_json(&item)?;
        if text.len() > 1 {
            if text.len() + item.len() > PAGE_BYTES {
                break;
            }
            text.push(',');
        }
        text.push_str(&item);
    }
    text.push(']');
    Ok(text)
}

/// Encodes an answer as JSON.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|error| fault::internal(error.to_string()))
}

/// Parses an answer.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| {
        Fault::lost(
            Code::Protocol,
            format!("the supervisor answered something else: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_egress::{Control, Policy, TrafficLimits};
    use glovebox_proto::{EgressReason, encode};

    #[test]
    fn pages_fit_into_a_packet_and_lose_nothing() {
        let hosts: Vec<String> = (0..1000)
            .map(|number| format!("n{number}.{}.example", ["x"; 60].concat()))
            .collect();
        let control = Control::new(Policy::new(&hosts, &[]).unwrap(), TrafficLimits::default());
        let mut found = Vec::new();
        loop {
            let text = page(control.rules().into_iter().skip(found.len())).unwrap();
            let rules: Vec<RuleInForce> = read(&text).unwrap();
            let answer: super::super::Answer = Ok(text);
            assert!(encode(&answer).unwrap().len() < super::super::PACKET_BYTES);
            if rules.is_empty() {
                break;
            }
            found.extend(rules);
        }
        assert_eq!(found, control.rules());
    }

    #[test]
    fn the_largest_order_and_entry_fit_into_a_packet() {
        let words = vec!["x".repeat(MAX_WORD_BYTES); MAX_WORDS];
        let order = super::super::Order::Network(NetworkOrder::allow(&words, None).unwrap());
        assert!(encode(&order).unwrap().len() < super::super::PACKET_BYTES);
        assert!(NetworkOrder::allow(&vec![String::new(); MAX_WORDS + 1], None).is_err());
        assert!(NetworkOrder::allow(&["x".repeat(MAX_WORD_BYTES + 1)], None).is_err());
        let entry = glovebox_egress::LogEntry {
            number: u64::MAX,
            change: u64::MAX,
            when_unix_ms: u64::MAX,
            host: "\u{10ffff}".repeat(256),
            port: Some(u16::MAX),
            refused: Some(EgressReason::ConnectionLimit),
            withheld: Some(glovebox_egress::WithheldSecret {
                secret: "x".repeat(64),
                reason: glovebox_proto::SecretReason::OtherHost,
            }),
            failure: Some(glovebox_egress::ConnectFailure::NoResolverAnswer),
            rule: Some("x".repeat(MAX_WORD_BYTES)),
            sent_bytes: u64::MAX,
            received_bytes: u64::MAX,
            duration_ms: Some(u64::MAX),
        };
        let text = to_json(&entry).unwrap();
        assert!(PAGE_BYTES + text.len() < super::super::PACKET_BYTES);
    }
}
