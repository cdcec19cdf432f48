//! Network access of a sandbox that may reach listed hosts only.
//!
//! A [`Policy`] holds the allowed names and ports, and a [`Proxy`] enforces it. Inside, every
//! listed name resolves to an address of a reserved range that belongs to the sandbox's own
//! loopback interface, so that programs need no proxy settings. The sandbox's first process creates
//! the inner sockets and hands them out: no code of this crate runs inside, and no process inside
//! takes part in a decision.
//!
//! A host may have a secret. TLS to it then ends in the proxy, and an [`Interceptor`] replaces the
//! placeholder that programs hold by the secret's value, and removes the value from responses.
//!
//! Input: the sockets, the policy, the secrets. Output: connections to addresses that were resolved
//! and checked here, and the records of a [`Control`]: a log of allowed and refused connections,
//! and counts of transferred bytes. Rules can be added while a proxy runs ([`ProxyHandle::allow`]).
//! If the user's environment names a proxy of the machine ([`MachineProxy`]), connections to public
//! and unknown names go through it.
//!
//! A component without a network, such as a tool of a bundle, sends requests instead of opening
//! connections: a [`Fetcher`] makes them under the same [`Policy`] and with the same check of
//! addresses (`fetch`).

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
pub use proxy::{AddAddress, Arrivals, Proxy, ProxyHandle, Sockets, UpstreamSettings};
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
