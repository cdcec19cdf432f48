//! What is written down about a sandbox beside its spec: where it stands, who owns it, why it ended.

use crate::process::ProcessRef;
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxState {
    /// It is coming up.
    Starting,
    /// It serves.
    Ready,
    /// It was ended in order (wall-clock limit, lease); its layers are kept.
    Stopped,
    /// It belonged to one command and was ended with it; its changes are kept for a day.
    Parked,
    /// Its owner died; its layers are kept.
    Lost,
    /// There is none.
    Gone,
}

impl std::fmt::Display for SandboxState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopped => "stopped",
            Self::Parked => "parked",
            Self::Lost => "lost",
            Self::Gone => "gone",
        })
    }
}

/// What is known about parked changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkedChanges {
    /// When they were parked, in milliseconds since the epoch.
    pub unix_ms: u64,
    /// Bytes of the layers, or the disk limit where those could not be counted.
    pub bytes: u64,
    /// Number of changes; `None` when nobody counted.
    pub changes: Option<u64>,
}

/// What `status.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    pub(crate) state: SandboxState,
    /// Process that owns the sandbox.
    pub(crate) pid: u32,
    pub(crate) is_supervised: bool,
    pub(crate) created_unix_ms: u64,
    pub(crate) slot: Option<u32>,
    /// Process whose end ends the sandbox.
    pub(crate) process: Option<ProcessRef>,
    /// Why it ended.
    pub(crate) reason: Option<String>,
    /// When its changes were parked, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parked: Option<ParkedChanges>,
}

impl Status {
    pub(crate) fn starting(is_supervised: bool) -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            state: SandboxState::Starting,
            pid: std::process::id(),
            is_supervised,
            created_unix_ms: now.as_millis() as u64,
            slot: None,
            process: None,
            reason: None,
            parked: None,
        }
    }
}
