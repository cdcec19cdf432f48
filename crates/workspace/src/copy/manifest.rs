//! Manifest of a push: the state of every path that it brought into a sandbox. It is the base of
//! the next push, and of every collection in copy mode. A sorted list in a file, read and written
//! as a stream.

use super::entry::{ListedPath, SeenEntry, SeenKind};
use super::scan::NO_SIGNATURE;
use super::spool::{Reader, Spool, SpooledList};
use crate::beneath::io;
use crate::{Digest, Node, RelPath};
use glovebox_proto::tree::Signature;
use glovebox_proto::{Code, Fault};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Must change whenever the meaning of the file does.
const VERSION: u32 = 1;

/// State of one path when both sides were last the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) path: RelPath,
    pub(super) kind: LineKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LineKind {
    Dir,
    Link {
        target: ByteBuf,
    },
    File {
        size: u64,
        is_executable: bool,
        digest: Digest,
        /// Signature of the host's file; `None` if an equal signature later would not prove the
        /// same content.
        host: Option<Signature>,
        /// Signature of the sandbox's file; `None` as for the host's.
        inside: Option<Signature>,
    },
}

impl ListedPath for Line {
    fn path(&self) -> &RelPath {
        &self.path
    }
}

impl Line {
    /// Returns the node that both sides had.
    pub(super) fn node(&self) -> Node {
        match &self.kind {
            LineKind::Dir => Node::Dir,
            LineKind::Link { target } => Node::Link {
                target: target.to_vec(),
            },
            LineKind::File {
                size,
                is_executable,
                digest,
                ..
            } => Node::File {
                size: *size,
                is_executable: *is_executable,
                digest: Some(*digest),
            },
        }
    }

    /// Compares an entry with this line, as far as possible without reading its content.
    pub(super) fn compare(&self, seen: &SeenEntry, side: FileSide) -> Sameness {
        match (&self.kind, &seen.kind) {
            (LineKind::Dir, SeenKind::Dir) => Sameness::Yes,
            (LineKind::Link { target }, SeenKind::Link { target: now }) => (target == now).into(),
            (LineKind::File { .. }, SeenKind::File { .. }) => {
                self.compare_file(&seen.signature, side)
            }
            _ => Sameness::No,
        }
    }

    /// Compares the signature of a file with this line.
    pub(super) fn compare_file(&self, signature: &Signature, side: FileSide) -> Sameness {
        let LineKind::File {
            size,
            is_executable,
            ..
        } = &self.kind
        else {
            return Sameness::No;
        };
        if *size != signature.size || *is_executable != signature.is_executable() {
            Sameness::No
        } else if self.signature(side) == Some(signature) {
            Sameness::Yes
        } else {
            Sameness::Perhaps
        }
    }

    /// Returns the signature that proves a file of one side to be unchanged; `None` if there is
    /// none.
    pub(super) fn signature(&self, side: FileSide) -> Option<&Signature> {
        match (&self.kind, side) {
            (LineKind::File { host, .. }, FileSide::Host) => host.as_ref(),
            (LineKind::File { inside, .. }, FileSide::Inside) => inside.as_ref(),
            _ => None,
        }
    }

    /// Returns the entry of a side that is unchanged.
    pub(super) fn as_seen(&self, side: FileSide) -> SeenEntry {
        SeenEntry {
            path: self.path.clone(),
            signature: self.signature(side).copied().unwrap_or(NO_SIGNATURE),
            kind: match &self.kind {
                LineKind::Dir => SeenKind::Dir,
                LineKind::Link { target } => SeenKind::Link {
                    target: target.clone(),
                },
                LineKind::File { .. } => SeenKind::File { is_linked: false },
            },
        }
    }

    /// Returns length and digest if the line is that of a file.
    pub(super) fn digest(&self) -> Option<(u64, Digest)> {
        match &self.kind {
            LineKind::File { size, digest, .. } => Some((*size, *digest)),
            _ => None,
        }
    }
}

/// Side on which a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSide {
    Host,
    Inside,
}

/// Result of comparing two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sameness {
    Yes,
    No,
    /// Only their contents can decide.
    Perhaps,
}

impl From<bool> for Sameness {
    fn from(is_same: bool) -> Self {
        if is_same { Self::Yes } else { Self::No }
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Item {
    Head { version: u32 },
    Line(Line),
    End { count: u64 },
}

/// A manifest that is being written. Its file is renamed into place by [`Self::finish`], and
/// removed if this is dropped before.
#[derive(Debug)]
pub(super) struct Writer {
    spool: Spool<Item>,
    new: PathBuf,
    path: PathBuf,
    count: u64,
    last: Option<RelPath>,
    is_finished: bool,
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = std::fs::remove_file(&self.new);
        }
    }
}

impl Writer {
    pub(super) fn create(path: &Path) -> Result<Self, Fault> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = path.with_file_name(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .map_err(|error| io("make", &new, error))?;
        let mut spool = Spool::over(file, new.clone())?;
        spool.push(&Item::Head { version: VERSION })?;
        Ok(Self {
            spool,
            new,
            path: path.to_owned(),
            count: 0,
            last: None,
            is_finished: false,
        })
    }

    /// Adds a line. Fails with [`Code::Internal`] if it is out of order.
    pub(super) fn push(&mut self, line: Line) -> Result<(), Fault> {
        if self.last.as_ref().is_some_and(|last| *last >= line.path) {
            let message = format!("`{}` comes out of order", line.path);
            return Err(Fault::failed(Code::Internal, message));
        }
        self.count += 1;
        let item = Item::Line(line);
        self.spool.push(&item)?;
        if let Item::Line(line) = item {
            self.last = Some(line.path);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(), Fault> {
        self.spool.push(&Item::End { count: self.count })?;
        let Self { new, path, .. } = &self;
        let (new, path) = (new.clone(), path.clone());
        self.is_finished = true;
        let empty = Spool::over(
            std::fs::File::open(&new).map_err(|error| io("open", &new, error))?,
            new.clone(),
        )?;
        std::mem::replace(&mut self.spool, empty).finish()?;
        std::fs::rename(&new, &path).map_err(|error| io("put in place", &path, error))
    }
}

/// Reader of the lines of a manifest.
#[derive(Debug)]
pub(super) struct Lines {
    items: Reader<Item>,
    path: PathBuf,
    next: Option<Line>,
    count: u64,
    has_ended: bool,
}

impl Lines {
    /// Returns a manifest without lines.
    pub(super) fn none() -> Self {
        Self {
            items: Reader::empty(),
            path: PathBuf::new(),
            next: None,
            count: 0,
            has_ended: true,
        }
    }

    /// Opens a manifest. One that does not exist has no lines.
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        let mut lines = Self {
            path: path.to_owned(),
            ..Self::none()
        };
        let items = match SpooledList::<Item>::open(path) {
            Ok(spooled) => spooled.read(),
            Err(fault) if fault.code == Code::NotFound => return Ok(lines),
            Err(fault) => return Err(fault),
        };
        lines.items = items;
        lines.has_ended = false;
        match lines.items.next()? {
            Some(Item::Head { version: VERSION }) => Ok(lines),
            _ => Err(lines.damaged()),
        }
    }

    fn damaged(&self) -> Fault {
        Fault::failed(
            Code::Io,
            format!("{} is no manifest of this version", self.path.display()),
        )
        .remedy("start the sandbox anew")
    }

    pub(super) fn peek(&mut self) -> Result<Option<&Line>, Fault> {
        if self.next.is_none() && !self.has_ended {
            match self.items.next()? {
                Some(Item::Line(line)) => {
                    self.count += 1;
                    self.next = Some(line);
                }
                Some(Item::End { count }) if count == self.count => self.has_ended = true,
                _ => return Err(self.damaged()),
            }
        }
        Ok(self.next.as_ref())
    }

    pub(super) fn next(&mut self) -> Result<Option<Line>, Fault> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        let line = self.next.take();
        if let (Some(line), Some(next)) = (&line, self.peek()?)
            && next.path <= line.path
        {
            return Err(self.damaged());
        }
        Ok(line)
    }
}
