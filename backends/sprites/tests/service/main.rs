//! The library against a server with the contract of Sprites, which really runs commands.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod broken;
mod exec;
mod guest;
mod rest;
mod service;
