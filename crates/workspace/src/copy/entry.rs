//! What was found at a path, on either side, and going through several sorted lists at once.

use super::difference::{Step, Steps};
use super::manifest::{Line, Lines};
use super::spool::Reader;
use crate::RelPath;
use glovebox_proto::tree::Signature;
use glovebox_proto::{Code, Fault};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Something with a place in a sorted list.
pub(super) trait ListedPath {
    fn path(&self) -> &RelPath;
}

/// What was found at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenEntry {
    pub(super) path: RelPath,
    /// All zero where it was not looked at: what is not a regular file, on the inside.
    pub(super) signature: Signature,
    pub(super) kind: SeenKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SeenKind {
    File {
        /// It has other names too.
        is_linked: bool,
    },
    Dir,
    Link {
        target: ByteBuf,
    },
    /// A device, FIFO or socket.
    Special,
    /// It cannot be looked at or into.
    Missed(Code),
}

impl ListedPath for SeenEntry {
    fn path(&self) -> &RelPath {
        &self.path
    }
}

impl SeenEntry {
    pub(super) fn is_dir(&self) -> bool {
        self.kind == SeenKind::Dir
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.kind, SeenKind::File { .. })
    }
}

/// What all lists have at one path.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) path: RelPath,
    pub(super) base: Option<Line>,
    pub(super) host: Option<SeenEntry>,
    pub(super) inside: Option<SeenEntry>,
}

/// The manifest and a list of each side, next to each other.
#[derive(Debug)]
pub(super) struct Rows<T> {
    pub(super) base: Lines,
    pub(super) host: Reader<T>,
    pub(super) inside: Reader<T>,
}

/// What each list has at one path.
#[derive(Debug)]
pub(super) struct PathVersions<T> {
    pub(super) base: Option<Line>,
    pub(super) host: Option<T>,
    pub(super) inside: Option<T>,
}

impl<T: ListedPath> PathVersions<T> {
    /// The path, unless no list has anything.
    pub(super) fn path(&self) -> Option<&RelPath> {
        let of_side = || self.host.as_ref().or(self.inside.as_ref());
        let of_base = self.base.as_ref().map(ListedPath::path);
        of_base.or_else(|| of_side().map(ListedPath::path))
    }
}

impl<T: ListedPath + DeserializeOwned> Rows<T> {
    /// What there is at the next path that any list has; nothing in any at the end.
    pub(super) fn found(&mut self) -> Result<PathVersions<T>, Fault> {
        let paths = [
            self.base.peek()?.map(ListedPath::path),
            self.host.peek()?.map(ListedPath::path),
            self.inside.peek()?.map(ListedPath::path),
        ];
        let first = paths.into_iter().flatten().min();
        let [in_base, in_host, is_inside] = paths.map(|path| path.is_some() && path == first);
        let base = if in_base { self.base.next()? } else { None };
        let host = if in_host { self.host.next()? } else { None };
        let mut inside = if is_inside { self.inside.next()? } else { None };
        // A directory that cannot be entered is named twice: as found and as missed.
        while let Some(found) = &inside
            && let Some(next) = self.inside.peek()?
            && next.path() == found.path()
        {
            inside = self.inside.next()?;
        }
        Ok(PathVersions { base, host, inside })
    }
}

impl Rows<SeenEntry> {
    /// The next path that any of them has.
    pub(super) fn next(&mut self) -> Result<Option<Row>, Fault> {
        let found = self.found()?;
        Ok(found.path().cloned().map(|path| Row {
            path,
            base: found.base,
            host: found.host,
            inside: found.inside,
        }))
    }
}

impl Steps for Rows<SeenEntry> {
    fn next_step(&mut self) -> Result<Option<Step>, Fault> {
        Ok(self.next()?.map(|row| Step::Row(Box::new(row))))
    }
}
