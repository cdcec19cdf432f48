//! What was collected, and how to read it: a change set and where the bytes are.
//!
//! The change set is data. The bytes stay where they are (in the layers of a native sandbox, behind
//! the wall of any other) until somebody asks for them; whoever copies them checks them against the
//! digest in the change set, since a sandbox may have changed them meanwhile.

use crate::{ChangeSet, IgnoredChanges, RelPath};
use glovebox_proto::{Code, Fault};
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

/// Where the bytes of two sides are read.
pub trait Contents: Send + Sync {
    /// The sandbox's version of a regular file.
    ///
    /// # Errors
    /// When it is gone, is no regular file, or cannot be read.
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault>;

    /// The version of a regular file on the host from which the sandbox started.
    ///
    /// # Errors
    /// When it is gone, is no regular file, or cannot be read.
    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault>;
}

/// A change set whose contents can be read.
pub struct CollectedChanges {
    /// What changed, sorted by path.
    pub set: ChangeSet,
    /// Why the sandbox could not be held still meanwhile, if it was to be and was not: then what belongs
    /// together may be of different moments.
    pub unheld: Option<Fault>,
    /// What changed and is left out because the project ignores it.
    pub ignored: IgnoredChanges,
    contents: Arc<dyn Contents>,
}

impl CollectedChanges {
    /// Puts a change set and its contents together.
    pub fn new(set: ChangeSet, contents: Box<dyn Contents>) -> Self {
        Self {
            set,
            unheld: None,
            ignored: IgnoredChanges::default(),
            contents: Arc::from(contents),
        }
    }

    /// Where the bytes are.
    pub(crate) fn contents(&self) -> &Arc<dyn Contents> {
        &self.contents
    }

    /// The same changes again, over the same contents.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            set: self.set.clone(),
            unheld: self.unheld.clone(),
            ignored: self.ignored.clone(),
            contents: Arc::clone(&self.contents),
        }
    }

    /// Reads the sandbox's version of a regular file. What arrives is untrusted; compare it with the
    /// digest of the change before using it for anything but showing.
    ///
    /// # Errors
    /// When it is gone, is no regular file, or cannot be read.
    pub fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        self.contents.open(path)
    }

    /// Reads the host's version of a regular file from which the sandbox started.
    ///
    /// # Errors
    /// When it is gone, is no regular file, or cannot be read.
    pub fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        self.contents.open_base(path)
    }
}

impl fmt::Debug for CollectedChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collected")
            .field("set", &self.set)
            .finish_non_exhaustive()
    }
}

/// What is read is not what was collected.
pub(crate) fn changed(path: &RelPath) -> Fault {
    Fault::failed(
        Code::DigestMismatch,
        format!("`{path}` changed while it was read"),
    )
    .remedy("try again when nothing writes to it")
}

/// What was collected cannot be read.
pub(crate) fn unreadable(path: &RelPath, error: &io::Error) -> Fault {
    Fault::failed(Code::Io, format!("cannot read `{path}`: {error}"))
}
