//! Findings of a check of the machine.

use serde::{Deserialize, Serialize};

/// State of one feature on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingState {
    /// The feature works.
    Ok,
    /// Sandboxes start without the feature; the finding says in which way they are weaker or
    /// slower.
    Degraded,
    /// Native sandboxes cannot start without the feature.
    Missing,
}

/// Line of the report of `glovebox doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable kebab-case name, for scripts.
    pub id: String,
    /// Title for people.
    pub title: String,
    /// State of the feature.
    pub state: FindingState,
    /// Detail of the observation.
    pub detail: String,
    /// Hint on how to fix it; `None` if nothing can be done.
    pub remedy: Option<String>,
}
