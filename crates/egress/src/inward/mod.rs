//! How connections and questions of programs arrive: names, addresses that stand for hosts, and the proxy that is asked.

pub(crate) mod arrival;
pub(crate) mod dns;
pub(crate) mod http_proxy;
pub(crate) mod listeners;
pub(crate) mod socks;
