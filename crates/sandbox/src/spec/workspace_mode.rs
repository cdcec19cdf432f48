//! Ways of a sandbox to the project.

use serde::Serialize;

/// Way of a sandbox to the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceMode {
    /// It reads the project and writes to a layer of its own.
    Overlay,
    /// It reads the project and can write nothing there.
    ReadOnly,
    /// It has a copy.
    Copy,
    /// It writes to the project itself.
    Live,
    /// It has nothing.
    None,
}

impl WorkspaceMode {
    /// The word used in flags and configuration.
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
