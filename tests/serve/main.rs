//! `glovebox serve` as its clients meet it: tasks, events, files, changes, users, and the end of the server.
//!
//! Runs once, not once per user: what depends on the user is tried as both inside.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod bundles;
mod environment;
mod events;
mod limits;
mod operation;
mod recovery;
mod server;
mod sessions;
mod terminal;
mod users;
