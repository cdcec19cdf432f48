//! What was found at a path, on either side, and going through several sorted lists at once.

use super::difference::{Step, Steps};
use super::manifest::{Line, Lines};
use super::spool::Reader;
use crate::RelPath;
use glovebox_proto::tree::Signature;
use glovebox_proto::{Code, Fault};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Something with a place in a sorted list.
pub(super) trait Located {
    fn path(&self) -> &RelPath;
}

/// What was found at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
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

impl Located for Seen {
    fn path(&self) -> &RelPath {
        &self.path
    }
}

impl Seen {
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
    pub(super) host: Option<Seen>,
    pub(super) inside: Option<Seen>,
}

/// The lists side by side.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) base: Lines,
    pub(super) host: Reader<Seen>,
    pub(super) inside: Reader<Seen>,
}

impl Rows {
    /// The next path that any of them has.
    pub(super) fn next(&mut self) -> Result<Option<Row>, Fault> {
        let paths = [
            self.base.peek()?.map(Located::path),
            self.host.peek()?.map(Located::path),
            self.inside.peek()?.map(Located::path),
        ];
        let Some(first) = paths.into_iter().flatten().min() else {
            return Ok(None);
        };
        let [in_base, in_host, is_inside] = paths.map(|path| path == Some(first));
        let path = first.clone();
        let base = if in_base { self.base.next()? } else { None };
        let host = if in_host { self.host.next()? } else { None };
        let mut inside = None;
        if is_inside {
            inside = self.inside.next()?;
            // A directory that cannot be entered is named twice: as found and as missed.
            while self.inside.peek()?.map(Located::path) == Some(&path) {
                inside = self.inside.next()?;
            }
        }
        Ok(Some(Row {
            path,
            base,
            host,
            inside,
        }))
    }
}

impl Steps for Rows {
    fn next_step(&mut self) -> Result<Option<Step>, Fault> {
        Ok(self.next()?.map(|row| Step::Row(Box::new(row))))
    }
}
