//! Probe of a host: decides and resolves as for a program inside, and connects from this machine.

use crate::ConnectFailure;
use crate::outward::resolve::{ResolveError, kind_from_here};
use crate::policy::address::AddressKind;
use crate::policy::name::Host;
use crate::state::ProxyState;
use glovebox_proto::EgressReason;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Instant;

/// Default port of `http:` (RFC 9110, 4.2.1).
const HTTP_PORT: u16 = 80;

/// Result of probing a host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Normalized host.
    pub host: String,
    /// Probed port.
    pub port: u16,
    /// Reason of the refusal. `None` if the host is allowed.
    pub refused: Option<EgressReason>,
    /// Rule that decided. `None` if no rule matches.
    pub rule: Option<String>,
    /// Addresses of the host and their kinds. Empty if the name was not looked up or not found.
    pub addresses: Vec<(IpAddr, AddressKind)>,
    /// The machine's proxy through which the host is reached, as `HOST:PORT (VARIABLE)`. `None` if
    /// the host is reached directly.
    pub upstream: Option<String>,
    /// Result of connecting. `None` if no connection was attempted.
    pub connection: Option<ProbeConnection>,
}

/// Result of connecting to a probed host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeConnection {
    /// The connection was made.
    Made {
        /// Time until the connection was made, in microseconds.
        took_us: u64,
    },
    /// The connection failed.
    Failed {
        /// Reason of the failure.
        failure: ConnectFailure,
    },
}

/// Decides, resolves and connects as for a program inside. Sends no data to the host and writes
/// nothing to the log, because no program inside has made a request.
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
