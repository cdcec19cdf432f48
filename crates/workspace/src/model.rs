//! What a change set is made of: data only, the same whichever way it was collected.

use crate::RelPath;
use serde::{Deserialize, Serialize};
use std::fmt;

/// BLAKE3 digest of a file's content.
pub type Digest = [u8; 32];

/// One file-system object that may travel: a regular file, a symbolic link, a directory. Owners,
/// times, setuid bits and extended attributes do not travel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Node {
    /// A regular file.
    File {
        /// Length in bytes.
        size: u64,
        /// Whether its owner may execute it: the only permission that travels.
        is_executable: bool,
        /// Digest of its content. What a sandbox holds always has one; a version on the host has one
        /// only where it was needed to tell the two apart.
        digest: Option<Digest>,
    },
    /// A symbolic link.
    Link {
        /// What it points to, as stored.
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
    },
    /// A directory.
    Dir,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Where it is now, or where it was if it is gone.
    pub path: RelPath,
    /// What happened to it.
    pub kind: ChangeKind,
    /// What a reviewer should look at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
}

impl Change {
    /// What is there now in the sandbox; `None` if it is gone.
    pub fn to(&self) -> Option<&Node> {
        match &self.kind {
            ChangeKind::Added { to }
            | ChangeKind::Modified { to, .. }
            | ChangeKind::Renamed { to, .. } => Some(to),
            ChangeKind::Deleted { .. } => None,
        }
    }

    /// What was there, or at its source if it was renamed; `None` if it is new.
    pub fn from(&self) -> Option<&Node> {
        match &self.kind {
            ChangeKind::Added { .. } => None,
            ChangeKind::Modified { from, .. }
            | ChangeKind::Renamed { from, .. }
            | ChangeKind::Deleted { from } => Some(from),
        }
    }
}

/// What happened to a path between push and collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It is new.
    Added {
        /// What it is.
        to: Node,
    },
    /// It has other content, another mode, or is something else.
    Modified {
        /// What it was.
        from: Node,
        /// What it is.
        to: Node,
    },
    /// It is gone.
    Deleted {
        /// What it was.
        from: Node,
    },
    /// It is new, and something that is gone had the same or similar content.
    Renamed {
        /// Where it was.
        source: RelPath,
        /// What it was.
        from: Node,
        /// What it is.
        to: Node,
    },
}

/// What a sandbox changed, checked and sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSet {
    /// What can be taken.
    pub changes: Vec<Change>,
    /// What cannot, and why.
    pub refused: Vec<RefusedPath>,
}

/// A path that stays in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedPath {
    /// The path as found; not checked, only for showing (escaped).
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Why it stays.
    pub reason: RefusalReason,
}

/// Why a path stays in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalReason {
    /// A symbolic link that leads out of the workspace.
    LinkLeadsOut,
    /// A device, FIFO or socket.
    Special,
    /// It lies in `.git`.
    Git,
    /// Excluded by a pattern, or hidden at push.
    Excluded,
    /// Its name is not a path within the workspace.
    BadName,
    /// Two names that differ only in case, on a file system that does not tell them apart.
    CaseCollision,
    /// Neither we nor the sandbox user may read it.
    Unreadable,
    /// It lies deeper than [`Quota::max_depth`].
    TooDeep,
    /// Its name is one that Glovebox uses itself while it applies changes.
    Reserved,
    /// It changed whenever it was read.
    Moving,
    /// A symbolic link into the host's repository.
    LinkIntoGit,
    /// A symbolic link, on a file system that has none.
    NoLinks,
    /// Permissions, on a file system that keeps none.
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

/// Something about a change that a reviewer should look at before it is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// The host executes or obeys such files: CI, editor, shell and agent settings, build scripts.
    Executes,
    /// It became executable.
    MadeExecutable,
    /// It had a setuid, setgid or sticky bit, which was dropped.
    SpecialMode,
    /// It has several names; they become files of their own.
    HardLink,
    /// It says how git works in a directory that it takes for a repository.
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

/// Bounds of one change set. What exceeds them fails the collection: a sandbox that makes a
/// million files does not make the host list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Most changed paths.
    pub max_changes: usize,
    /// Most bytes of content together; a sparse file counts with its apparent length.
    pub max_bytes: u64,
    /// Deepest path, in components.
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
