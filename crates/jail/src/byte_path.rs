//! Paths in serialized messages.

use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path as bytes, because names on Linux need not be UTF-8.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytePath(#[serde(with = "serde_bytes")] Vec<u8>);

impl BytePath {
    /// Returns the path.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl<P: Into<PathBuf>> From<P> for BytePath {
    fn from(path: P) -> Self {
        Self(path.into().into_os_string().into_vec())
    }
}

impl std::fmt::Debug for BytePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_path().fmt(f)
    }
}
