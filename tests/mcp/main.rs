//! `glovebox mcp` as its clients meet it: the official Python SDK, the official inspector, and people
//! who mean no good. The real binary, on the real kernel, over both transports.
//!
//! Runs once, not once per user: what depends on the user is tried as both inside.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod asks;
mod clients;
mod endings;
mod hostile;
mod hosts;
mod odd_messages;
mod pipe;
mod results;
mod returns;
mod site;
mod suite;
mod waits;
