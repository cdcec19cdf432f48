//! The way out of a sandbox that may reach some names and nothing else.
//!
//! A [`Policy`] says which names and ports; a [`Proxy`] sees to it. Inside, every listed name has an address of a
//! reserved range that belongs to the sandbox's own loopback interface, so that programs need not know of a proxy.
//! The sockets on that side are made inside, by the sandbox's first process, and handed out: nothing here runs
//! inside, and nothing inside decides anything.
//!
//! In: the sockets, the policy. Out: connections to addresses that were resolved and checked here, and a record of
//! everything that was refused ([`Proxy::denials`]).

mod address;
mod arrival;
mod dns;
mod http_proxy;
mod http_relay;
mod name;
mod peek;
mod policy;
mod preset;
mod proxy;
mod pump;
mod refusals;
mod relay;
mod resolve;
mod rule;
mod socks;
mod stand_in;
mod state;
mod target;

pub use address::{AddressKind, kind};
pub use name::{Host, Name, NameError};
pub use policy::{MAX_ADDRESSES, MAX_PORTS, MAX_RULES, Policy, PolicyError};
pub use preset::{PRESETS, Preset};
pub use proxy::{Proxy, Sockets};
pub use resolve::{Resolve, SystemResolver};
pub use rule::{Reach, Rule, RuleError};
