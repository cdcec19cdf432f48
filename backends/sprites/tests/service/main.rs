//! The library against a server with the contract of Sprites, which runs commands for real.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod broken;
mod exec;
mod guest;
mod rest;
mod service;
