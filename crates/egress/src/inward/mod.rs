//! Arrival of connections and queries from inside: DNS, connections to stand-in addresses, and the
//! proxy port.

pub(crate) mod arrival;
pub(crate) mod dns;
pub(crate) mod http_proxy;
pub(crate) mod listeners;
pub(crate) mod socks;
