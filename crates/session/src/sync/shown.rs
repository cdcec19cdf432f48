//! State that a reviewer has seen, so that nothing else is applied: digests of both sides, and the
//! versions of a path in conflict.

use super::apply::{ApplyTarget, Review, preview};
use super::{SandboxChanges, apply};
use crate::Error;
use glovebox_proto::{Code, Fault};
use glovebox_workspace::apply::{Destination, DestinationDigests};
use glovebox_workspace::{
    Change, ChangeKind, ChangeSet, Conflict, Node, RelPath, Stage, SyncError,
};
use std::io::Read;
use std::path::Path;

/// Bytes at the start of a file in which a NUL byte marks it as binary, as in git.
const TEXT_PROBE_BYTES: u64 = 8000;
/// Maximum size of a version that is read, in bytes.
const MAX_VERSION_BYTES: u64 = 64 << 20;

/// State of the sandbox's changes, and of the project at their paths.
#[derive(Debug, Clone)]
pub struct ShownState {
    sandbox: blake3::Hash,
    destination: DestinationDigests,
}

impl ShownState {
    /// Reads the state of both sides. Must be called before the changes are shown: a change in
    /// between then invalidates the digest, not what was shown.
    ///
    /// # Errors
    /// The destination cannot be read.
    pub fn read(taken: &SandboxChanges, to: Option<&Path>) -> Result<Self, Error> {
        let set = &taken.collected.set;
        let failed = |error: serde_json::Error| {
            let message = format!("the changes cannot be written down: {error}");
            Error::from(Fault::failed(Code::Io, message))
        };
        let changes = serde_json::to_vec(&set.changes).map_err(failed)?;
        let destination = match to {
            Some(to) => Destination::look(to, None)?.digest_paths(set)?,
            None => DestinationDigests::default(),
        };
        Ok(Self {
            sandbox: blake3::hash(&changes),
            destination,
        })
    }

    /// Returns the digest of both sides in hexadecimal digits.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.sandbox.as_bytes());
        self.destination.add_to(&mut hasher);
        hasher.finalize().to_hex().to_string()
    }

    /// Returns true if the destination of a plan is unchanged. A plan made before this call is
    /// bound to that state: the commit compares every path once more.
    ///
    /// # Errors
    /// The destination cannot be read.
    pub fn is_destination_of(&self, review: &Review<'_>) -> Result<bool, SyncError> {
        Ok(self.destination.holds(&review.digest_destination()?))
    }
}

/// Version of a path in conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictSide {
    /// The common version that both sides have changed.
    Base,
    /// The project's version.
    Project,
    /// The sandbox's version.
    Sandbox,
}

/// Kind and sizes of both versions of a path in conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConflictVersions {
    /// True if no version is binary.
    pub is_text: bool,
    /// Size of the project's version; `None` without a regular file or link.
    pub project_bytes: Option<u64>,
    /// Size of the sandbox's version in bytes; `None` without a regular file or link.
    pub sandbox_bytes: Option<u64>,
}

/// Determines kind and sizes of the versions of a path in conflict.
///
/// # Errors
/// A version cannot be read.
pub fn look_at_conflict(
    taken: &SandboxChanges,
    to: &Path,
    path: &RelPath,
) -> Result<ConflictVersions, Error> {
    let destination = Destination::look(to, None)?;
    let mut is_text = true;
    let mut probe = |from: &mut dyn Read| -> std::io::Result<()> {
        let mut head = Vec::new();
        from.take(TEXT_PROBE_BYTES).read_to_end(&mut head)?;
        is_text &= !head.contains(&0);
        Ok(())
    };
    let project = destination.open_version(path)?;
    let project_bytes = match project {
        Some(mut version) => {
            probe(&mut version.content).map_err(|error| read_failed(path, &error))?;
            Some(version.bytes)
        }
        None => None,
    };
    let sandbox_bytes = match sandbox_version(&taken.collected.set, path) {
        Some((path, Node::File { size, .. })) => {
            let mut content = taken.collected.open(path)?;
            probe(&mut content).map_err(|error| read_failed(path, &error))?;
            Some(*size)
        }
        Some((_, Node::Link { target })) => Some(target.len() as u64),
        Some((_, Node::Dir)) | None => None,
    };
    Ok(ConflictVersions {
        is_text,
        project_bytes,
        sandbox_bytes,
    })
}

/// Reads one version of a path in conflict. `None` if that side has none.
///
/// # Errors
/// `not-found` for a path that is not in conflict, `too-large` above 64 MiB, and if the version
/// cannot be read.
pub fn read_conflict(
    taken: &SandboxChanges,
    to: &Path,
    path: &RelPath,
    side: ConflictSide,
) -> Result<Option<Vec<u8>>, Error> {
    // Only conflicting paths: this must not reveal other files of the project.
    let outcome = preview(taken, ApplyTarget::new(to))?;
    let is_open = |conflict: &Conflict| conflict.path == *path;
    if !outcome.conflicts.iter().any(is_open) {
        let message = format!("{} is not in conflict", path.as_path().display());
        return Err(Fault::failed(Code::NotFound, message).into());
    }
    let bounded = |from: &mut dyn Read| {
        let mut content = Vec::new();
        let read = from.take(MAX_VERSION_BYTES + 1).read_to_end(&mut content);
        read.map_err(|error| read_failed(path, &error))?;
        if content.len() as u64 > MAX_VERSION_BYTES {
            let message = format!("this version has more than {} MiB", MAX_VERSION_BYTES >> 20);
            return Err(Error::from(Fault::failed(Code::TooLarge, message)));
        }
        Ok(content)
    };
    Ok(match side {
        ConflictSide::Base => Destination::look(to, apply::base(taken, to))?.base_text(path),
        ConflictSide::Project => {
            let version = Destination::look(to, None)?.open_version(path)?;
            let content = version.map(|mut version| bounded(&mut version.content));
            content.transpose()?
        }
        ConflictSide::Sandbox => match sandbox_version(&taken.collected.set, path) {
            Some((path, Node::File { .. })) => Some(bounded(&mut *taken.collected.open(path)?)?),
            Some((_, Node::Link { target })) => Some(target.clone()),
            Some((_, Node::Dir)) | None => None,
        },
    })
}

/// Finds the sandbox's version of a path: at that path, or at the one to which it was renamed.
fn sandbox_version<'a>(set: &'a ChangeSet, path: &RelPath) -> Option<(&'a RelPath, &'a Node)> {
    let is_at = |change: &&Change| change.path == *path && change.to().is_some();
    let is_renamed = |change: &&Change| match &change.kind {
        ChangeKind::Renamed { source, .. } => source == path,
        _ => false,
    };
    let mut changes = set.changes.iter();
    let found = changes.find(is_at);
    let found = found.or_else(|| set.changes.iter().find(is_renamed))?;
    Some((&found.path, found.to()?))
}

fn read_failed(path: &RelPath, error: &std::io::Error) -> Error {
    let message = format!("{} cannot be read: {error}", path.as_path().display());
    SyncError::pull(Stage::Validate, Fault::failed(Code::Io, message)).into()
}
