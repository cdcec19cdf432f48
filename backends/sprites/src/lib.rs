//! Sprites of Fly as a backend: a microVM of the service for each sandbox.
//!
//! In: an address, a token, the name of a Sprite. Out: the service's data about it ([`Client`]),
//! and pipes to a program in it ([`ExecPipe`], [`SpriteConnect`]). The rest of the backend is the
//! same as for any other: the guest speaks over such a pipe.
//!
//! The public interface is synchronous; one thread of the process waits for the service. Texts of
//! the service are untrusted: bounded, and escaped before they become part of a message.

mod address;
mod checkpoints;
mod cli;
mod client;
mod connect;
mod driver;
mod failure;
mod http;
mod names;
mod pipe;
mod prune;
mod renewal;
mod service;
mod token;

pub use address::{BaseUrl, DEFAULT_BASE_URL};
pub use cli::{Cli, CliConnect};
pub use client::{
    Client, NewSprite, OpenedSprite, PolicyAction, PolicyRule, ServiceCheckpoint, Sprite,
};
pub use connect::{BringUp, SpriteConnect};
pub use driver::Sprites;
pub use names::{LABEL, labels, name_prefix, owner_label, read_until, sprite_name};
pub use pipe::{ExecEnd, ExecPipe, ExecRequest, ExecTimes, await_goodbyes};
pub use prune::{Claim, MadeSprite};
pub use renewal::{Renew, Renewal, RenewalTimes};
pub use token::TokenSource;
