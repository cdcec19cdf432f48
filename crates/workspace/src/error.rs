//! Errors of pushes and pulls: direction, step and remedy.

use glovebox_proto::Fault;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Direction of a transfer.
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

/// Step of a transfer at which an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Determining the changes.
    Collect,
    /// Transferring contents across the sandbox boundary.
    Transfer,
    /// Checking received data.
    Validate,
    /// Comparing the changes with the host.
    Plan,
    /// Writing the changes.
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

/// A failed push or pull. [`SyncError::fault`] keeps the code of the cause; machine-readable output
/// has `sync-failed` with direction, stage and that code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{direction} failed at {stage}: {fault}")]
pub struct SyncError {
    /// Direction of the transfer.
    pub direction: Direction,
    /// Step at which the error occurred.
    pub stage: Stage,
    /// Cause and remedy.
    pub fault: Fault,
}

impl SyncError {
    /// Returns the error of a failed pull.
    pub fn pull(stage: Stage, fault: Fault) -> Self {
        Self {
            direction: Direction::Pull,
            stage,
            fault,
        }
    }

    /// Returns the error of a failed push.
    pub fn push(stage: Stage, fault: Fault) -> Self {
        Self {
            direction: Direction::Push,
            stage,
            fault,
        }
    }
}
