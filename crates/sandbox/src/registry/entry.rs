//! One line of the list of sandboxes.

use crate::Name;
use crate::state::status::{ParkedChanges, SandboxState};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryEntry {
    /// Name.
    pub name: Name,
    /// State.
    pub state: SandboxState,
    /// The backend's word; empty when its files cannot be read.
    pub backend: String,
    /// Process that owns it, while it lives.
    pub pid: Option<u32>,
    /// Whether it lives in its own supervisor, or in the process that made it.
    pub is_supervised: bool,
    /// When it was made, in milliseconds since the epoch; 0 when its files cannot be read.
    pub created_unix_ms: u64,
    /// Directory it works on, with replacement characters where it is not UTF-8.
    pub workspace: Option<String>,
    /// A few words about what was asked for.
    pub summary: String,
    /// Why it ended, or what is wrong with its files.
    pub problem: Option<String>,
    /// What is known about its changes, if they are parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<ParkedChanges>,
    /// Its own directory.
    pub dir: PathBuf,
}

/// What `Registry::start` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartOutcome {
    /// It is new.
    Created,
    /// It was there already.
    Existing,
    /// It was stopped or lost, and lives again on its layers.
    Resumed,
}
