//! From a host that may be reached to a connection with it: its addresses, looked up once and checked, and TLS to it.

pub(crate) mod machine_proxy;
pub(crate) mod resolve;
pub(crate) mod target;
pub(crate) mod tls_client;
pub(crate) mod upstream;
