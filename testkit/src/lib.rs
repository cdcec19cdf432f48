//! Shared parts of tests: a hermetic home, the real binary, loud skips, canaries.
//!
//! Tests run the real `glovebox` against the real kernel. This crate isolates them from the
//! developer's own configuration and state, makes their output comparable, and makes unchecked
//! parts visible. A broken precondition panics: this code is for tests only.

pub mod bases;
mod canary;
mod census;
mod contract;
mod home;
mod model;
mod own_address;
mod person;
mod programs;
mod ran;
mod remote_service;
mod skip;
mod tar;

pub use canary::Canary;
pub use census::{Process, await_sleepers, marker, wait_until};
pub use contract::{ContractServer, install_sprite_cli};
pub use home::{Glovebox, Home, binary};
pub use model::{Asked, ModelServer, Step, Wanted};
pub use own_address::own_address;
pub use person::{Person, UNPRIVILEGED_ID};
pub use programs::{installed, libraries, suite};
pub use ran::{Ran, filters};
pub use remote_service::{RemoteService, SERVICE_TOKEN};
pub use skip::{SkipReason, has_layers_in_memory, has_program, is_root, skip_loudly};
pub use tar::TarBuilder;
