//! The way out of a sandbox that may reach some names and nothing else.
//!
//! A [`Policy`] says which names and ports; a [`Proxy`] sees to it. Inside, every listed name has an address of a
//! reserved range that belongs to the sandbox's own loopback interface, so that programs need not know of a proxy.
//! The sockets on that side are made inside, by the sandbox's first process, and handed out: nothing here runs
//! inside, and nothing inside decides anything.
//!
//! Hosts may have a secret: then TLS to them ends here, and an [`Interceptor`] puts the value in the place of the
//! placeholder that programs have, and takes it out of what comes back.
//!
//! In: the sockets, the policy, secrets. Out: connections to addresses that were resolved and checked here, and what a
//! [`Control`] knows of them: a log of what was allowed and refused, and sums of what was carried. Rules can be added
//! while a proxy runs ([`ProxyHandle::allow`]).

mod accounts;
mod address;
mod allow;
mod arrival;
mod authority;
mod control;
mod dns;
mod endpoint;
mod http_link;
mod http_proxy;
mod http_relay;
mod intercept;
mod interceptor;
mod listeners;
mod live_policy;
mod log;
mod meter;
mod metered;
mod name;
mod peek;
mod policy;
mod preset;
mod probe;
mod proxy;
mod pump;
mod relay;
mod resolve;
mod rule;
mod scrub;
mod scrubbed_body;
mod secret;
mod socks;
mod stand_in;
mod state;
mod swap;
mod target;
mod tls_client;
mod traffic;

pub use accounts::{TrafficLimits, TrafficStats, TrafficSum};
pub use address::{AddressKind, kind};
pub use allow::AllowError;
pub use control::Control;
pub use endpoint::{Endpoint, EndpointError};
pub use interceptor::{Interceptor, InterceptorError};
pub use live_policy::RuleInForce;
pub use log::{LogEntry, WithheldSecret};
pub use name::{Host, Name, NameError};
pub use policy::{MAX_ADDRESSES, MAX_PORTS, MAX_RULES, Policy, PolicyError};
pub use preset::{PRESETS, Preset};
pub use probe::{Probe, ProbeConnection};
pub use proxy::{Proxy, ProxyHandle, Sockets};
pub use resolve::{Resolve, SystemResolver};
pub use rule::{Reach, Rule, RuleError};
pub use secret::{
    MAX_SECRETS, MAX_VALUE_BYTES, MIN_VALUE_BYTES, Secret, SecretError, SecretName, SecretSource,
    SecretValue, ValueError,
};
