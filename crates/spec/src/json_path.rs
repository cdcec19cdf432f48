//! Paths in JSON: text, or their bytes where they are not UTF-8, for a directory may have any name.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// A path as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum EncodedPath {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for EncodedPath {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<EncodedPath> for PathBuf {
    fn from(written: EncodedPath) -> Self {
        match written {
            EncodedPath::Text(text) => text.into(),
            EncodedPath::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// Writes one path.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    EncodedPath::from(path).serialize(serializer)
}

/// Reads one path.
///
/// # Errors
/// Those of the deserializer.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    EncodedPath::deserialize(deserializer).map(PathBuf::from)
}

/// A path that may be missing.
pub mod option {
    use super::{Deserialize, Deserializer, EncodedPath, PathBuf, Serialize, Serializer};

    /// Writes it.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        path.as_deref().map(EncodedPath::from).serialize(serializer)
    }

    /// Reads it.
    ///
    /// # Errors
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<EncodedPath>::deserialize(deserializer)?.map(PathBuf::from))
    }
}

/// A list of paths.
pub mod list {
    use super::{Deserialize, Deserializer, EncodedPath, PathBuf, Serializer};

    /// Writes them.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| EncodedPath::from(path.as_path())))
    }

    /// Reads them.
    ///
    /// # Errors
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let written = Vec::<EncodedPath>::deserialize(deserializer)?;
        Ok(written.into_iter().map(PathBuf::from).collect())
    }
}
