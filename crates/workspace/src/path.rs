//! A path relative to the workspace, validated once at construction.

use glovebox_proto::limits::MAX_PATH_BYTES;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// Longest name of one component, in bytes (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;

/// A relative path without empty, `.` or `..` components and without NUL bytes: it can only lead
/// downwards. Names are bytes, as on Linux. Sorted so that a directory comes before its content.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "serde_bytes::ByteBuf")]
pub struct RelPath(#[serde(with = "serde_bytes")] Vec<u8>);

/// Reason for which bytes are not a path within the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// The path is empty or has an empty component (`a//b`, a leading or trailing slash).
    #[error("it has an empty component")]
    Empty,
    /// The path has a component `.` or `..`.
    #[error("it has a component `.` or `..`")]
    Dots,
    /// The path contains a NUL byte.
    #[error("it contains a NUL byte")]
    Nul,
    /// The path, or one of its components, is longer than Linux allows.
    #[error("it is longer than Linux allows")]
    TooLong,
}

impl RelPath {
    /// Validates a path from an untrusted source.
    ///
    /// # Errors
    /// [`BadPath`] names the rule that is broken.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, BadPath> {
        let bytes = bytes.into();
        if bytes.len() >= MAX_PATH_BYTES {
            return Err(BadPath::TooLong);
        }
        if bytes.contains(&0) {
            return Err(BadPath::Nul);
        }
        for name in bytes.split(|byte| *byte == b'/') {
            match name {
                b"" => return Err(BadPath::Empty),
                b"." | b".." => return Err(BadPath::Dots),
                name if name.len() > MAX_NAME_BYTES => return Err(BadPath::TooLong),
                _ => {}
            }
        }
        Ok(Self(bytes))
    }

    /// Returns the path in lower case. Two paths with the same result are one on a file system that
    /// folds case.
    pub(crate) fn folded(&self) -> Vec<u8> {
        match std::str::from_utf8(self.as_bytes()) {
            Ok(text) => text.to_lowercase().into_bytes(),
            Err(_) => self.as_bytes().to_ascii_lowercase(),
        }
    }

    /// Returns the bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path, to be joined to a directory or passed to system calls relative to one.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Iterates over the components, from the top.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }

    /// Returns the last component.
    pub fn name(&self) -> &[u8] {
        let start = self.0.iter().rposition(|byte| *byte == b'/');
        &self.0[start.map_or(0, |slash| slash + 1)..]
    }

    /// Returns the directory that contains the path; `None` at the top.
    pub fn parent(&self) -> Option<Self> {
        let slash = self.0.iter().rposition(|byte| *byte == b'/')?;
        Some(Self(self.0[..slash].to_vec()))
    }

    /// Returns true if the path is `other` or lies below it.
    pub fn starts_with(&self, other: &Self) -> bool {
        self.0
            .strip_prefix(other.0.as_slice())
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }
}

impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        compare(&self.0, &other.0)
    }
}

/// Orders paths by their components, on bytes: a slash sorts before everything else.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    let same = |(a, b): &(&u8, &u8)| a == b;
    let shared = a.iter().zip(b).take_while(same).count();
    let rank = |path: &[u8]| {
        let byte = *path.get(shared)?;
        Some(if byte == b'/' { 0 } else { u16::from(byte) + 1 })
    };
    rank(a).cmp(&rank(b))
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Writes the path with invalid UTF-8 replaced. Terminals need further escaping.
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_path().fmt(f)
    }
}

impl TryFrom<serde_bytes::ByteBuf> for RelPath {
    type Error = BadPath;

    fn try_from(bytes: serde_bytes::ByteBuf) -> Result<Self, BadPath> {
        Self::new(bytes.into_vec())
    }
}

/// Returns an absolute path without `.` and `..`. Works on the text alone: links are not followed.
pub fn normalize_path(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::ParentDir => {
                clean.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ways_down_are_paths() {
        for good in ["a", "a/b", "...", ".git", "a b/\n", "-"] {
            assert_eq!(RelPath::new(good).unwrap().as_bytes(), good.as_bytes());
        }
        assert!(RelPath::new(vec![0xff, b'/', 0xfe]).is_ok());
        for (bad, why) in [
            ("", BadPath::Empty),
            ("/a", BadPath::Empty),
            ("a/", BadPath::Empty),
            ("a//b", BadPath::Empty),
            (".", BadPath::Dots),
            ("a/../b", BadPath::Dots),
            ("a/.", BadPath::Dots),
            ("a\0b", BadPath::Nul),
        ] {
            assert_eq!(RelPath::new(bad), Err(why), "{bad:?}");
        }
        assert_eq!(RelPath::new("x".repeat(256)), Err(BadPath::TooLong));
        assert_eq!(RelPath::new("x/".repeat(3000) + "x"), Err(BadPath::TooLong));
    }

    #[test]
    fn a_directory_sorts_before_its_content_and_that_before_its_neighbours() {
        let mut paths = ["a-b", "a/b", "a", "a/b/c", "a.c"].map(|path| RelPath::new(path).unwrap());
        paths.sort();
        let sorted: Vec<_> = paths.iter().map(RelPath::as_bytes).collect();
        assert_eq!(sorted, [&b"a"[..], b"a/b", b"a/b/c", b"a-b", b"a.c"]);
    }

    #[test]
    fn bytes_sort_as_components_do() {
        let mut paths = vec![String::new()];
        for _ in 0..4 {
            let longer = paths.iter().flat_map(|path| {
                ["/", "\u{1}", "-", "a", "ab"].map(|more| format!("{path}{more}"))
            });
            paths = longer.collect();
        }
        paths.retain(|path| RelPath::new(path.as_str()).is_ok());
        for one in &paths {
            for other in &paths {
                let by_components = one.split('/').cmp(other.split('/'));
                let by_bytes = compare(one.as_bytes(), other.as_bytes());
                assert_eq!(by_bytes, by_components, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn parts_of_a_path() {
        let path = RelPath::new("a/b/c").unwrap();
        assert_eq!(path.name(), b"c");
        assert_eq!(path.parent(), Some(RelPath::new("a/b").unwrap()));
        assert_eq!(RelPath::new("a").unwrap().parent(), None);
        assert!(path.starts_with(&RelPath::new("a/b").unwrap()));
        assert!(!path.starts_with(&RelPath::new("a/b/c/d").unwrap()));
        assert!(
            !RelPath::new("ab")
                .unwrap()
                .starts_with(&RelPath::new("a").unwrap())
        );
    }

    #[test]
    fn dots_are_taken_by_their_text() {
        for (path, want) in [
            ("/a/../b/./c", "/b/c"),
            ("/../..", "/"),
            ("/workspace/../workspace/x", "/workspace/x"),
        ] {
            assert_eq!(normalize_path(Path::new(path)), Path::new(want), "{path}");
        }
    }
}
