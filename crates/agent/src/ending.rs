//! How a run ends, in one word: of the loop and of its log.

use serde::{Deserialize, Serialize};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The model said it is done.
    Completed,
    /// A limit was reached first.
    StoppedByLimit,
    /// The user stopped it.
    Aborted,
    /// The sandbox is gone.
    Lost,
    /// It could not go on.
    Failed,
}
