//! Kinds of ending of a run, for the loop and the session log.

use serde::{Deserialize, Serialize};

/// Kind of ending of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The model ended its work.
    Completed,
    /// A limit ended the run.
    StoppedByLimit,
    /// The user stopped the run.
    Aborted,
    /// The sandbox is lost.
    Lost,
    /// The run failed.
    Failed,
}
