//! The Model Context Protocol, both sides of it: Glovebox's tools served to other programs ([`server`]), and the
//! tools of other servers used by an agent ([`client`]).
//!
//! In: clients over a pair of pipes or over HTTP, and a [`server::SessionFactory`] that knows where their tools work;
//! the definitions and answers of other servers. Out: what the tools answer. No tool, policy or sandbox logic is
//! here: a call becomes what it is on the wire, and nothing is left when a client is gone.
//!
//! Both read messages before the SDK does ([`message`]), because it drops what it cannot decode.
//!
//! Both sides are asynchronous, tools are not: each call is made on a thread that may block
//! (`spawn_blocking`), bounded in number.

pub mod client;
pub mod message;
pub mod server;
mod transport;
