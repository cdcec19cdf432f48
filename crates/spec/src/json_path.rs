//! Paths in JSON: a string, or an array of bytes if the path is not UTF-8, which directory names
//! need not be.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Path in its JSON form.
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

/// Serializes a path.
///
/// # Errors
/// Any error of the serializer.
pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    EncodedPath::from(path).serialize(serializer)
}

/// Deserializes a path.
///
/// # Errors
/// Any error of the deserializer.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    EncodedPath::deserialize(deserializer).map(PathBuf::from)
}

/// Optional path.
pub mod option {
    use super::{Deserialize, Deserializer, EncodedPath, PathBuf, Serialize, Serializer};

    /// Serializes an optional path.
    ///
    /// # Errors
    /// Any error of the serializer.
    pub fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        path.as_deref().map(EncodedPath::from).serialize(serializer)
    }

    /// Deserializes an optional path.
    ///
    /// # Errors
    /// Any error of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<EncodedPath>::deserialize(deserializer)?.map(PathBuf::from))
    }
}

/// List of paths.
pub mod list {
    use super::{Deserialize, Deserializer, EncodedPath, PathBuf, Serializer};

    /// Serializes a list of paths.
    ///
    /// # Errors
    /// Any error of the serializer.
    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| EncodedPath::from(path.as_path())))
    }

    /// Deserializes a list of paths.
    ///
    /// # Errors
    /// Any error of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let written = Vec::<EncodedPath>::deserialize(deserializer)?;
        Ok(written.into_iter().map(PathBuf::from).collect())
    }
}
