//! Why a push or a pull failed: which way, at which step, and what to do about it.

use glovebox_proto::Fault;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which way the files were going.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the host into the sandbox.
    Push,
    /// From the sandbox to the host.
    Pull,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Push => "push",
            Self::Pull => "pull",
        })
    }
}

/// The step at which it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Finding out what there is.
    Collect,
    /// Moving bytes through the wall.
    Transfer,
    /// Checking what arrived.
    Validate,
    /// Comparing it with the host.
    Plan,
    /// Writing it.
    Apply,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Collect => "collect",
            Self::Transfer => "transfer",
            Self::Validate => "validate",
            Self::Plan => "plan",
            Self::Apply => "apply",
        })
    }
}

/// A push or pull that failed. The code of the cause stays in [`SyncError::fault`]; programs see
/// `sync-failed` with direction, stage and that code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{direction} failed at {stage}: {fault}")]
pub struct SyncError {
    /// Which way the files were going.
    pub direction: Direction,
    /// The step at which it failed.
    pub stage: Stage,
    /// What went wrong there, and the remedy.
    pub fault: Fault,
}

impl SyncError {
    /// A failed pull.
    pub fn pull(stage: Stage, fault: Fault) -> Self {
        Self {
            direction: Direction::Pull,
            stage,
            fault,
        }
    }

    /// A failed push.
    pub fn push(stage: Stage, fault: Fault) -> Self {
        Self {
            direction: Direction::Push,
            stage,
            fault,
        }
    }
}
