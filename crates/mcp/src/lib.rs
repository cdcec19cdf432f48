//! The Model Context Protocol (MCP), both sides: Glovebox's tools served to other programs
//! ([`server`]), and the tools of other servers for an agent ([`client`]).
//!
//! In: clients over a pair of pipes or over HTTP, with a [`server::SessionFactory`] that makes the
//! sessions in which their tools work; definitions and results of other servers. Out: results of
//! tools. This crate has no logic of tools, policy or sandboxes: it translates calls to and from
//! the wire, and leaves nothing behind when a client is gone.
//!
//! Both sides read messages before the SDK does ([`message`]), because the SDK drops messages that
//! it cannot decode.
//!
//! Both sides are asynchronous and tools are not: each call runs on a thread that may block
//! (`spawn_blocking`). The number of these threads is bounded.

pub mod client;
pub mod message;
pub mod server;
mod transport;
