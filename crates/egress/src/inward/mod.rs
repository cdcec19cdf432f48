//! Arrival of connections and queries from inside: DNS, connections to stand-in addresses, and the
//! proxy port. They arrive on sockets of the sandbox's network or are passed on by a monitor.

pub(crate) mod arrival;
pub(crate) mod dns;
pub(crate) mod http_proxy;
pub(crate) mod listeners;
pub(crate) mod passed;
pub(crate) mod socks;
