//! Exchange of the overlays of a running sandbox while no process but its guest runs in it.
//!
//! A separate process, the guest program started as `exchange`, does it in two steps. Between them
//! the host moves the layers to their places:
//!
//! ```text
//! host --Order+namespaces--> opens the layers, builds a staging file system in a mount namespace
//!                            of its own, enters the sandbox's and makes its overlays read-only
//! host <--Closed------------ from here on no process inside can write, not even to open files
//! host --()----------------> takes the old overlays out, makes new ones, puts them in
//! host <--Done--------------
//! ```
//!
//! The first step can be refused: the kernel makes no file system read-only while a file is open
//! for writing. Then nothing has changed. A later failure leaves a sandbox that has to be ended;
//! its layers are intact.
//!
//! The root is exchanged by two `pivot_root`, each of which moves every process that has the old
//! root: first into an empty file system, to which all mounts in the old root are moved, then to
//! the new root. So the old overlay is gone before its writable layer becomes one of the read-only
//! layers below the new one, and no part of the staging file system is ever visible inside.

mod host;
mod inside;

pub use host::{ClosedExchange, Exchange, ExchangeError};
pub use inside::run;

use crate::plan::{Identity, Plan, Source, Step};
use crate::stage0::FailedStep;
use serde::{Deserialize, Serialize};

/// First argument of the guest program that makes it carry out an exchange.
pub const MODE: &str = "exchange";

/// Request for an exchange: a part of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) identity: Identity,
    /// Sources of the plan. The first one holds the writable layers.
    pub(crate) sources: Vec<Source>,
    /// Steps of the plan, all of them overlays.
    pub(crate) steps: Vec<Step>,
}

impl Order {
    fn of(plan: &Plan) -> Self {
        Self {
            identity: plan.identity.clone(),
            sources: plan.sources.clone(),
            steps: plan.steps.clone(),
        }
    }
}

/// Answer of the process that makes the exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The old overlays are read-only.
    Closed,
    /// The overlays are still writable, because a process has a file open for writing.
    Busy,
    /// The new overlays are in place.
    Done,
    /// A step failed.
    Broken(FailedStep),
}
