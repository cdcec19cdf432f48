//! Large file that came with a task. Scripts search it; it is never read whole into a conversation.

use serde::{Deserialize, Serialize};

/// Location and size of the file, as the tools see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextData {
    /// Path in the sandbox.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl ContextData {
    /// Maximum size, in bytes.
    pub const MAX_BYTES: u64 = glovebox_js::MAX_CONTEXT_BYTES;
}
