//! What a check of the machine found.

use serde::{Deserialize, Serialize};

/// How well something works here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingState {
    /// It works.
    Ok,
    /// Sandboxes start without it, and are weaker or slower in the way the finding says.
    Degraded,
    /// Native sandboxes cannot start.
    Missing,
}

/// One line of the doctor's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable kebab-case name, for scripts.
    pub id: String,
    /// Title for people.
    pub title: String,
    /// How well it works.
    pub state: FindingState,
    /// Detail of what was seen.
    pub detail: String,
    /// Remedy, where something can be done.
    pub remedy: Option<String>,
}
