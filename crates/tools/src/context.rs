//! A file that came with a task: too large to be read whole, and looked through by scripts.

use serde::{Deserialize, Serialize};

/// Where it is, as the tools see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextData {
    /// Its path.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
}

impl ContextData {
    /// The largest there can be, in bytes.
    pub const MAX_BYTES: u64 = glovebox_js::MAX_CONTEXT_BYTES;
}
