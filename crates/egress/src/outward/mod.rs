//! Connections to allowed hosts: addresses that are looked up once and checked, and TLS to hosts
//! that have a secret.

pub(crate) mod machine_proxy;
pub(crate) mod resolve;
pub(crate) mod target;
pub(crate) mod tls_client;
pub(crate) mod upstream;
