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
//! while a proxy runs ([`ProxyHandle::allow`]). Where the user's environment names a proxy of the machine
//! ([`MachineProxy`]), connections to public and unknown names go through it.
//!
//! What has no network itself, such as a tool of a bundle, asks for a request and not for a connection: a [`Fetcher`]
//! makes it by the same [`Policy`] and the same check of addresses (`fetch`).

mod allow;
mod connect_failure;
mod fetch;
mod innermost;
mod inward;
mod memory;
mod outward;
mod peek;
mod policy;
mod probe;
mod proxy;
mod proxy_variable;
mod record;
mod relay;
mod secrets;
mod state;

pub use allow::AllowError;
pub use connect_failure::ConnectFailure;
pub use fetch::account::FetchAccount;
pub use fetch::client::{CertificateError, FetchAnswer, FetchClient};
pub use fetch::error::FetchError;
pub use fetch::fetcher::{FetchBudget, FetchCaller, FetchGroup, FetchReply, FetchSession, Fetcher};
pub use fetch::request::{FetchRequest, MAX_URL_BYTES, Redirects};
pub use outward::machine_proxy::{MachineProxy, UnusedProxy};
pub use outward::resolve::{Resolve, ResolveError, Resolver, SystemResolver};
pub use policy::address::{AddressKind, kind};
pub use policy::endpoint::{Endpoint, EndpointError};
pub use policy::live_policy::RuleInForce;
pub use policy::name::{Host, Name, NameError};
pub use policy::preset::{PRESETS, Preset};
pub use policy::rule::{Reach, Rule, RuleError};
pub use policy::stand_in::is_own;
pub use policy::{MAX_ADDRESSES, MAX_PORTS, MAX_RULES, Policy, PolicyError};
pub use probe::{Probe, ProbeConnection};
pub use proxy::{AddAddress, Proxy, ProxyHandle, Sockets, UpstreamSettings};
pub use proxy_variable::ProxyVariable;
pub use record::accounts::{TrafficStats, TrafficSum};
pub use record::control::Control;
pub use record::ledger::{DecisionSum, EgressVerdict, TrafficNews, WITHHELD_SECRET};
pub use record::limits::{LimitChange, TrafficLimitChanges, TrafficLimits};
pub use record::log::{LogEntry, WithheldSecret};
pub use secrets::interceptor::{Interceptor, InterceptorError};
pub use secrets::java_truststore::java_truststore;
pub use secrets::secret::{
    MAX_SECRETS, MAX_VALUE_BYTES, MIN_VALUE_BYTES, Secret, SecretError, SecretName, SecretSource,
    SecretValue, ValueError,
};
