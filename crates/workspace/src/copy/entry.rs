//! Entries of both sides, and iteration over several sorted lists at once.

use super::difference::{Step, Steps};
use super::manifest::{Line, Lines};
use super::spool::Reader;
use crate::RelPath;
use glovebox_proto::tree::Signature;
use glovebox_proto::{Code, Fault};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// An item of a list that is sorted by path.
pub(super) trait ListedPath {
    fn path(&self) -> &RelPath;
}

/// Entry that was found at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenEntry {
    pub(super) path: RelPath,
    /// Attributes. All zero for an entry inside that is not a regular file.
    pub(super) signature: Signature,
    pub(super) kind: SeenKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SeenKind {
    File {
        /// True if the file has further names.
        is_linked: bool,
    },
    Dir,
    Link {
        target: ByteBuf,
    },
    /// A device, FIFO or socket.
    Special,
    /// An entry that cannot be inspected or listed.
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

/// Entries of all lists at one path.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) path: RelPath,
    pub(super) base: Option<Line>,
    pub(super) host: Option<SeenEntry>,
    pub(super) inside: Option<SeenEntry>,
}

/// Manifest, and a list of each side, for iteration in step.
#[derive(Debug)]
pub(super) struct Rows<T> {
    pub(super) base: Lines,
    pub(super) host: Reader<T>,
    pub(super) inside: Reader<T>,
}

/// Items of each list at one path.
#[derive(Debug)]
pub(super) struct PathVersions<T> {
    pub(super) base: Option<Line>,
    pub(super) host: Option<T>,
    pub(super) inside: Option<T>,
}

impl<T: ListedPath> PathVersions<T> {
    /// Returns the path; `None` if no list has an item.
    pub(super) fn path(&self) -> Option<&RelPath> {
        let of_side = || self.host.as_ref().or(self.inside.as_ref());
        let of_base = self.base.as_ref().map(ListedPath::path);
        of_base.or_else(|| of_side().map(ListedPath::path))
    }
}

impl<T: ListedPath + DeserializeOwned> Rows<T> {
    /// Returns the items at the next path of any list. Without any item at the end.
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
        // The guest lists a directory that it cannot enter twice: as found and as missed.
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
    /// Returns the entries at the next path of any list; `None` at the end.
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
