//! Data types of a change set. They hold data only, and are the same however the changes were
//! collected.

use crate::RelPath;
use serde::{Deserialize, Serialize};
use std::fmt;

/// BLAKE3 digest of a file's content.
pub type Digest = [u8; 32];

/// A file-system object that can be transferred: a regular file, a symbolic link or a directory.
/// Owners, times, setuid bits and extended attributes are not transferred.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Node {
    /// A regular file.
    File {
        /// Length in bytes.
        size: u64,
        /// True if the owner may execute the file: the only permission that is transferred.
        is_executable: bool,
        /// Digest of the content. Always present for a file of the sandbox. For a version on the
        /// host, `None` unless the two versions had to be compared.
        digest: Option<Digest>,
    },
    /// A symbolic link.
    Link {
        /// Target of the symbolic link, unresolved.
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
    },
    /// A directory.
    Dir,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Current path, or the former path if it was deleted.
    pub path: RelPath,
    /// Kind of the change, with the states before and after it.
    pub kind: ChangeKind,
    /// Properties that a reviewer should check before the change is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
}

impl Change {
    /// Returns the state in the sandbox; `None` if the path was deleted.
    pub fn to(&self) -> Option<&Node> {
        match &self.kind {
            ChangeKind::Added { to }
            | ChangeKind::Modified { to, .. }
            | ChangeKind::Renamed { to, .. } => Some(to),
            ChangeKind::Deleted { .. } => None,
        }
    }

    /// Returns the state before the change, at the source if it is a rename; `None` if the path is
    /// new.
    pub fn from(&self) -> Option<&Node> {
        match &self.kind {
            ChangeKind::Added { .. } => None,
            ChangeKind::Modified { from, .. }
            | ChangeKind::Renamed { from, .. }
            | ChangeKind::Deleted { from } => Some(from),
        }
    }
}

/// Kind of a change between push and collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// The path is new.
    Added {
        /// State in the sandbox.
        to: Node,
    },
    /// The content, the mode or the type of the path differs.
    Modified {
        /// State before the change.
        from: Node,
        /// State in the sandbox.
        to: Node,
    },
    /// The path was deleted.
    Deleted {
        /// State before the change.
        from: Node,
    },
    /// The path is new, and a deleted path had the same or similar content.
    Renamed {
        /// Path of the deleted source.
        source: RelPath,
        /// State of the source before the change.
        from: Node,
        /// State in the sandbox at the new path.
        to: Node,
    },
}

/// Changes of a sandbox, checked and sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSet {
    /// Changes that can be applied.
    pub changes: Vec<Change>,
    /// Paths that cannot be transferred, with reasons.
    pub refused: Vec<RefusedPath>,
}

/// A path that stays in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedPath {
    /// Path as found, unchecked. For display only, escaped.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Reason for which the path stays in the sandbox.
    pub reason: RefusalReason,
}

/// Reason for which a path stays in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalReason {
    /// A symbolic link that leads out of the workspace.
    LinkLeadsOut,
    /// A device, FIFO or socket.
    Special,
    /// A path in `.git`, or in the repository that a `.git` file names.
    Git,
    /// A path that a pattern excludes, or that was hidden at the push.
    Excluded,
    /// A name that is not a valid path within the workspace.
    BadName,
    /// A name that differs from another only in case, on a file system that folds case.
    CaseCollision,
    /// A path that neither this process nor the sandbox user may read.
    Unreadable,
    /// A path deeper than [`Quota::max_depth`].
    TooDeep,
    /// A name that Glovebox itself uses while it applies changes.
    Reserved,
    /// A path that changed during every attempt to read it.
    Moving,
    /// A symbolic link into the host's repository.
    LinkIntoGit,
    /// A symbolic link, on a file system without symbolic links.
    NoLinks,
    /// A change of permissions, on a file system that does not store them.
    NoModes,
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkLeadsOut => "a link that leads out of the workspace",
            Self::Special => "a device, FIFO or socket",
            Self::Git => {
                "part of `.git` or of the repository that it names, which never comes back"
            }
            Self::LinkIntoGit => "a link that leads into a git repository",
            Self::NoLinks => "a symbolic link, which the file system of the project cannot hold",
            Self::NoModes => "its mode, which the file system of the project does not keep",
            Self::Excluded => "excluded",
            Self::BadName => "not a name a path may have",
            Self::CaseCollision => "differs from another name only in case",
            Self::Unreadable => "not readable",
            Self::TooDeep => "too deep",
            Self::Reserved => "a name Glovebox uses itself",
            Self::Moving => "changed while it was collected; pull again when nothing writes to it",
        })
    }
}

/// Property of a change that a reviewer should check before it is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// The host executes or evaluates files of this name: CI, editor, shell and agent settings,
    /// build scripts.
    Executes,
    /// The file became executable.
    MadeExecutable,
    /// The file had a setuid, setgid or sticky bit, which was dropped.
    SpecialMode,
    /// The file has several names, each of which becomes a separate file.
    HardLink,
    /// The file configures git in a directory that git takes for a repository.
    Repository,
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Executes => "runs on the host or steers what does",
            Self::MadeExecutable => "became executable",
            Self::SpecialMode => "had a setuid, setgid or sticky bit, which is dropped",
            Self::HardLink => "has several names, which become files of their own",
            Self::Repository => "part of a git repository, whose settings can run programs",
        })
    }
}

/// Limits of one change set. The collection fails when one is exceeded, so that a sandbox with a
/// million files does not make the host list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Maximum number of changed paths.
    pub max_changes: usize,
    /// Maximum total size of the contents, in bytes. A sparse file counts with its apparent length.
    pub max_bytes: u64,
    /// Maximum depth of a path, in components.
    pub max_depth: usize,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            max_changes: 200_000,
            max_bytes: 16 << 30,
            max_depth: 128,
        }
    }
}
