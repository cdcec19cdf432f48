//! Results of applying a change set, for users and programs. They hold data only, and have the same
//! shape before an apply (planned effects) and after it.

use crate::{Flag, RefusedPath, RelPath};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Effect of an apply on one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedChange {
    /// Path in the destination.
    pub path: RelPath,
    /// Kind of the effect.
    pub effect: Effect,
    /// Path to which the host's version was moved; `None` if it was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<RelPath>,
    /// True if the file contains both sides' changes.
    #[serde(default)]
    pub is_merged: bool,
    /// Numbers of the hunks taken; `None` if the whole change is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<TakenPart>,
}

/// Number of hunks of a file that are taken; the others stay in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenPart {
    /// Number of hunks that are taken.
    pub taken: usize,
    /// Total number of hunks of the file.
    pub total: usize,
}

/// Earlier versions of files that one apply kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierVersions {
    /// Identifier by which they are restored; empty if nothing is kept.
    pub id: String,
    /// Number of files and links.
    pub files: usize,
    /// Time of their removal, in seconds since the epoch.
    pub until_unix_s: u64,
    /// Files that were not kept because they are too large or the user may not read them.
    pub unkept: Vec<RelPath>,
}

/// Kind of effect on a path of the destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// The path is created.
    Added,
    /// The path is changed.
    Modified,
    /// The path is removed.
    Deleted,
    /// The path is created, and its source is removed.
    Renamed {
        /// Former path.
        source: RelPath,
    },
}

/// A path that both sides changed. The host's version stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Path in the destination.
    pub path: RelPath,
    /// Disagreement between the two sides.
    pub reason: ConflictReason,
    /// Path at which the sandbox's version was put; `None` if it has none on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<RelPath>,
    /// True if the file contains both versions, between markers.
    #[serde(default)]
    pub is_marked: bool,
    /// Reason for which the sandbox's version is not on the host; `None` if it is, or if there is
    /// no such version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplaced: Option<UnplacedReason>,
}

/// Reason for which the sandbox's version of a path in conflict cannot be put beside the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnplacedReason {
    /// The name would be longer than a file system allows.
    NameTooLong,
    /// Every candidate name is in use.
    NamesTaken,
    /// The path lies on a file system that is mounted below the destination.
    BelowMount,
    /// A parent of the path is not a directory on the host.
    NotADirectory,
}

impl fmt::Display for UnplacedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NameTooLong => "name too long",
            Self::NamesTaken => "all names taken",
            Self::BelowMount => "below a mount",
            Self::NotADirectory => "not a directory here",
        })
    }
}

/// Disagreement between host and sandbox about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictReason {
    /// Both sides changed it.
    ChangedOnHost,
    /// Both sides created it with different content.
    AddedOnHost,
    /// The sandbox changed it, and the host removed it.
    DeletedOnHost,
    /// The sandbox removed it, and the host changed it.
    DeletedInSandbox,
    /// The sandbox renamed it, and the host changed it; [`Conflict::theirs`] is the new path.
    RenamedInSandbox,
    /// The host's directory has content that the sandbox did not remove.
    DirectoryNotEmpty,
    /// The host has a device, FIFO, socket or mount point at the path.
    SpecialOnHost,
    /// A parent of the path is not a directory on the host.
    NotADirectoryOnHost,
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ChangedOnHost => "changed on both sides",
            Self::AddedOnHost => "added on both sides",
            Self::DeletedOnHost => "changed in the sandbox, deleted on the host",
            Self::DeletedInSandbox => "deleted in the sandbox, changed on the host",
            Self::RenamedInSandbox => "renamed in the sandbox, changed on the host",
            Self::DirectoryNotEmpty => "the host's directory has other content",
            Self::SpecialOnHost => "the host has a device, FIFO, socket or mount point there",
            Self::NotADirectoryOnHost => "a directory above it is none on the host",
        })
    }
}

/// A change that a reviewer should check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlaggedChange {
    /// Path of the change.
    pub path: RelPath,
    /// Properties to check.
    pub flags: Vec<Flag>,
}

/// Result of applying a change set. It has the same shape before the apply (planned effects) and
/// after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Effects that are applied.
    pub applied: Vec<AppliedChange>,
    /// Paths where the host already has the sandbox's version.
    pub already_there: Vec<RelPath>,
    /// Paths that both sides changed; the host's version stays.
    pub conflicts: Vec<Conflict>,
    /// Paths that both sides changed and for which the user chose the host's version.
    #[serde(default)]
    pub declined: Vec<RelPath>,
    /// Versions that earlier pulls put beside paths and that are removed, because their conflict is
    /// resolved.
    #[serde(default)]
    pub resolved: Vec<RelPath>,
    /// Applied files whose group differs from that of the files they replace, because the user is
    /// not a member of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_groups: Vec<RelPath>,
    /// The user's files that the apply replaced or removed and that git does not have; `None` if
    /// there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierVersions>,
    /// Paths that stay in the sandbox, with reasons.
    pub refused: Vec<RefusedPath>,
    /// Applied changes that a reviewer should check.
    pub flagged: Vec<FlaggedChange>,
}

impl Outcome {
    /// Returns the conflicts whose sandbox's version is not on the host, with the reasons.
    pub fn unplaced(&self) -> impl Iterator<Item = (&Conflict, UnplacedReason)> {
        let conflicts = self.conflicts.iter();
        conflicts.filter_map(|conflict| Some((conflict, conflict.unplaced?)))
    }
}
