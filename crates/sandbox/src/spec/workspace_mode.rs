//! Modes of a sandbox's access to the project.

use serde::Serialize;

/// Mode of a sandbox's access to the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceMode {
    /// Reads the project and writes to a layer of its own.
    Overlay,
    /// Reads the project and cannot write there.
    ReadOnly,
    /// Works on a copy.
    Copy,
    /// Writes to the project itself.
    Live,
    /// Has no project.
    None,
}

impl WorkspaceMode {
    /// Returns the word used in flags and configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::ReadOnly => "read-only",
            Self::Copy => "copy",
            Self::Live => "live",
            Self::None => "none",
        }
    }
}
