//! The doors: an agent's hands lent to other programs ([`mcp`]), and the hands of others lent to an agent
//! ([`client`]).
//!
//! In: clients over a pair of pipes or over HTTP, and a [`mcp::House`] that knows where they work. Out:
//! what the tools answer. No tool, policy or sandbox logic is here: a door says what a call becomes on
//! its wire, and makes sure that nothing is left when a client is gone.
//!
//! The doors are asynchronous, tools are not: each call is made on a thread of its own kind
//! (`spawn_blocking`), bounded in number.

pub mod client;
pub mod mcp;
