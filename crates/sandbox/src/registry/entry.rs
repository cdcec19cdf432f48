//! One line of the list of sandboxes, and the states a sandbox can be in.

use crate::Name;
use crate::Parked;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
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

impl std::fmt::Display for State {
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

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Name.
    pub name: Name,
    /// State.
    pub state: State,
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
    pub parked: Option<Parked>,
    /// Its own directory.
    pub dir: PathBuf,
}

/// What [`Registry::start`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Started {
    /// It is new.
    Created,
    /// It was there already.
    Existing,
    /// It was stopped or lost, and lives again on its layers.
    Resumed,
}
