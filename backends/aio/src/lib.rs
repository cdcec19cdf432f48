//! AIO Sandbox as a backend: a directory in a container that the user runs.
//!
//! In: a base URL, a key, and the guest's program. Out: facts about the service
//! ([`Client::probe`]), and pipes to a guest there ([`Connector`]), which `glovebox_carrier` makes
//! into one stream that outlives each of them.
//!
//! Only these endpoints are used: `/v1/sandbox`, `/v1/file/upload`, `/v1/file/write`, and of
//! `/v1/bash` `exec`, `output`, `write`, `kill`, `sessions` and `sessions/ID/close`. Requests run
//! on one thread of the process; callers block. Responses of the service are untrusted.

mod base_url;
mod client;
mod connect;
mod driver;
mod failure;
mod guest;
mod held;
mod key;
mod pipe;
mod probe;
mod program;
mod script;
mod wire;

pub use base_url::BaseUrl;
pub use client::Client;
pub use connect::Connector;
pub use driver::Aio;
pub use key::ApiKey;
pub use pipe::PipeSizes;
pub use probe::{Facts, Probe};
pub use program::{GuestProgram, Placement, Tenant};
