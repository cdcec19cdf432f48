//! Status of a sandbox beside its spec: state, owner and reason of its end.

use crate::process::ProcessRef;
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// State of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxState {
    /// Starting.
    Starting,
    /// Running; accepts requests.
    Ready,
    /// Ended in an orderly way (wall-clock limit, lease). The layers are kept.
    Stopped,
    /// Belonged to one command and ended with it. The changes are kept for a day.
    Parked,
    /// Its owner died. The layers are kept.
    Lost,
    /// Does not exist.
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

/// Facts about parked changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkedChanges {
    /// Time of parking, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Size of the layers in bytes, or the disk limit if they could not be measured.
    pub bytes: u64,
    /// Number of changes. `None` if they were not counted.
    pub changes: Option<u64>,
}

/// Content of `status.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    pub(crate) state: SandboxState,
    /// Id of the process that owns the sandbox.
    pub(crate) pid: u32,
    pub(crate) is_supervised: bool,
    pub(crate) created_unix_ms: u64,
    pub(crate) slot: Option<u32>,
    /// Process whose end ends the sandbox.
    pub(crate) process: Option<ProcessRef>,
    /// Reason of its end. `None` while it runs or if the reason is unknown.
    pub(crate) reason: Option<String>,
    /// Facts about its changes, if they are parked.
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
