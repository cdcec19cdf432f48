//! What would become of a connection to a host, and what becomes of one from this machine.

use crate::ConnectFailure;
use crate::outward::resolve::{ResolveError, kind_from_here};
use crate::policy::address::AddressKind;
use crate::policy::name::Host;
use crate::state::ProxyState;
use glovebox_proto::EgressReason;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Instant;

/// The port of `http:` (RFC 9110, 4.2.1).
const HTTP_PORT: u16 = 80;

/// What a host and a port come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The host, in its one spelling.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Why it is refused; `None` when it is allowed.
    pub refused: Option<EgressReason>,
    /// The rule that decides, if one does.
    pub rule: Option<String>,
    /// What the name leads to, with what kind of address that is; empty when it was not looked up.
    pub addresses: Vec<(IpAddr, AddressKind)>,
    /// The machine's proxies, where it is reached through them: `HOST:PORT (VARIABLE)`.
    pub upstream: Option<String>,
    /// What came of connecting; `None` where nothing was connected to.
    pub connection: Option<ProbeConnection>,
}

/// What came of connecting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeConnection {
    /// It was made, and took so many microseconds.
    Made {
        /// How long it took.
        took_us: u64,
    },
    /// It was not made.
    Failed {
        /// Why not.
        failure: ConnectFailure,
    },
}

/// Decides, looks up and connects as for a program inside. Nothing is sent, and nothing is written into the log: nobody
/// inside has asked.
pub(crate) async fn probe(state: &ProxyState, host: &Host, port: u16) -> Probe {
    let policy = state.control().policy.in_force();
    let mut probe = Probe {
        host: host.to_string(),
        port,
        refused: None,
        rule: None,
        addresses: Vec::new(),
        upstream: None,
        connection: None,
    };
    let rule = match policy.decide(host, port) {
        Ok(rule) => rule,
        Err(reason) => {
            probe.refused = Some(reason);
            probe.rule = policy
                .closing_rule(host, Some(port))
                .map(ToString::to_string);
            return probe;
        }
    };
    probe.rule = Some(rule.to_string());
    let failed = |failure| Some(ProbeConnection::Failed { failure });
    let with_kind = |address: &IpAddr| (*address, kind_from_here(*address));
    match state.find_route(host, Some(port), rule).await {
        Ok(route) => {
            probe.addresses = route.addresses.iter().map(with_kind).collect();
            probe.upstream = route.shown_proxy(host, port);
            let begun = Instant::now();
            let connected = match port {
                HTTP_PORT => route.dial_http(host, port).await.map(drop),
                _ => route.dial(host, port).await.map(drop),
            };
            probe.connection = Some(match connected {
                Ok(()) => ProbeConnection::Made {
                    took_us: begun.elapsed().as_micros() as u64,
                },
                Err(error) => ProbeConnection::Failed {
                    failure: (&error).into(),
                },
            });
        }
        Err(ResolveError::Unknown) => probe.connection = failed(ConnectFailure::UnknownName),
        Err(ResolveError::NoAnswer) => {
            probe.connection = failed(ConnectFailure::NoResolverAnswer);
        }
        Err(ResolveError::Forbidden) => {
            probe.refused = Some(EgressReason::Private);
            let addresses = state.resolver().all(host).await;
            probe.addresses = addresses.iter().map(with_kind).collect();
        }
    }
    probe
}
