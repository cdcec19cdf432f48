//! Exchanging the overlays of a sandbox that lives, while nothing runs in it but its guest.
//!
//! A process of its own, the guest program started as `exchange`, does it in two steps, between which
//! the host puts the layers where they belong:
//!
//! ```text
//! host --Order+namespaces--> opens the layers, builds a staging file system in a mount namespace
//!                            of its own, enters the sandbox's and makes its overlays read-only
//! host <--Closed------------ from here on nothing inside can write to them, whatever it holds open
//! host --()----------------> takes the old overlays out, makes new ones, puts them in
//! host <--Done--------------
//! ```
//!
//! The first step can be refused: while a file is open for writing the kernel makes no file system
//! read-only. Then everything is as before. What fails later leaves a sandbox that has to be ended;
//! its layers are whole.
//!
//! The root is exchanged by two `pivot_root`, which takes along every process whose root it is: first
//! into limbo, an empty file system to which all that is mounted in the old root is moved, then to
//! the new root. So the old overlay is gone before its writable layer becomes one of the read-only
//! ones below the new one, and nothing of the staging file system ever shows inside.

mod host;
mod inside;

pub use host::{ClosedExchange, Exchange, ExchangeError};
pub use inside::run;

use crate::plan::{Identity, Plan, Source, Step};
use crate::stage0::FailedStep;
use serde::{Deserialize, Serialize};

/// First argument of the guest program that makes an exchange.
pub const MODE: &str = "exchange";

/// What is exchanged: a part of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) identity: Identity,
    /// The first holds the writable layers.
    pub(crate) sources: Vec<Source>,
    /// Overlays only.
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

/// What comes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The old overlays are read-only.
    Closed,
    /// They are not, for something has files open for writing.
    Busy,
    /// The new ones are in place.
    Done,
    /// A step failed.
    Broken(FailedStep),
}
