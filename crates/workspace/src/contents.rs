//! Collected changes: a change set, and access to the contents of both sides.
//!
//! The change set is data. The contents stay in the layers of a native sandbox, or behind the
//! boundary of any other, until they are read. A caller that copies them must compare them with the
//! digest in the change set, because the sandbox may have changed them meanwhile.

use crate::{ChangeSet, IgnoredChanges, RelPath};
use glovebox_proto::{Code, Fault};
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

/// Access to the contents of both sides.
pub trait Contents: Send + Sync {
    /// Opens the sandbox's version of a regular file.
    ///
    /// # Errors
    /// When it does not exist, is not a regular file, or cannot be read.
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault>;

    /// Opens the host's version of a regular file from which the sandbox started.
    ///
    /// # Errors
    /// When it does not exist, is not a regular file, or cannot be read.
    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault>;
}

/// A change set whose contents can be read.
pub struct CollectedChanges {
    /// Changes, sorted by path.
    pub set: ChangeSet,
    /// Reason for which the sandbox could not be frozen during the collection although it should
    /// have been: the versions of related files may then be inconsistent. `None` otherwise.
    pub unheld: Option<Fault>,
    /// Changes that were left out because the project ignores them.
    pub ignored: IgnoredChanges,
    contents: Arc<dyn Contents>,
}

impl CollectedChanges {
    /// Combines a change set with access to its contents.
    pub fn new(set: ChangeSet, contents: Box<dyn Contents>) -> Self {
        Self {
            set,
            unheld: None,
            ignored: IgnoredChanges::default(),
            contents: Arc::from(contents),
        }
    }

    /// Returns the access to the contents.
    pub(crate) fn contents(&self) -> &Arc<dyn Contents> {
        &self.contents
    }

    /// Returns a copy of the changes that shares the access to the contents.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            set: self.set.clone(),
            unheld: self.unheld.clone(),
            ignored: self.ignored.clone(),
            contents: Arc::clone(&self.contents),
        }
    }

    /// Opens the sandbox's version of a regular file. The data is untrusted: compare it with the
    /// digest of the change before using it for anything but display.
    ///
    /// # Errors
    /// When it does not exist, is not a regular file, or cannot be read.
    pub fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        self.contents.open(path)
    }

    /// Opens the host's version of a regular file from which the sandbox started.
    ///
    /// # Errors
    /// When it does not exist, is not a regular file, or cannot be read.
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

/// Returns the fault of a content that differs from what was collected.
pub(crate) fn changed(path: &RelPath) -> Fault {
    Fault::failed(
        Code::DigestMismatch,
        format!("`{path}` changed while it was read"),
    )
    .remedy("try again when nothing writes to it")
}

/// Returns the fault of a content that cannot be read.
pub(crate) fn unreadable(path: &RelPath, error: &io::Error) -> Fault {
    Fault::failed(Code::Io, format!("cannot read `{path}`: {error}"))
}
