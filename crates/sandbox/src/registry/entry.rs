//! Entry of the list of sandboxes.

use crate::Name;
use crate::state::status::{ParkedChanges, SandboxState};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Entry of the list of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryEntry {
    /// Name.
    pub name: Name,
    /// State.
    pub state: SandboxState,
    /// Name of the backend. Empty if its files cannot be read.
    pub backend: String,
    /// Process that owns it. `None` if it does not run.
    pub pid: Option<u32>,
    /// True if a supervisor owns it; false if the process that created it does.
    pub is_supervised: bool,
    /// Time of creation, in milliseconds since the Unix epoch. 0 if its files cannot be read.
    pub created_unix_ms: u64,
    /// Directory of its workspace, with replacement characters for bytes that are not UTF-8. `None`
    /// if it has none.
    pub workspace: Option<String>,
    /// A few words about its spec.
    pub summary: String,
    /// Reason of its end, or the fault of its files. `None` if there is neither.
    pub problem: Option<String>,
    /// Facts about its changes, if they are parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<ParkedChanges>,
    /// Directory of the sandbox.
    pub dir: PathBuf,
}

/// Result of [`Registry::start`](crate::Registry::start).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartOutcome {
    /// The sandbox was created.
    Created,
    /// The sandbox was running already.
    Existing,
    /// The sandbox was stopped or lost, and runs again on its layers.
    Resumed,
}
