//! What applying a change set comes to, for people and programs: data only, the same shape before
//! (what would be done) and after (what was done).

use crate::{Flag, RefusedPath, RelPath};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What was done, or will be done, to one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedChange {
    /// The path.
    pub path: RelPath,
    /// What happens to it.
    pub effect: Effect,
    /// Where the host's version is kept, if both had changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<RelPath>,
    /// Whether it has both sides' changes.
    #[serde(default)]
    pub is_merged: bool,
    /// Part of the sandbox's changes that is taken, when it is not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<TakenPart>,
}

/// Number of hunks of a file that are taken; the others stay in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenPart {
    /// Hunks that are taken.
    pub taken: usize,
    /// All hunks of the file.
    pub total: usize,
}

/// Earlier versions that one apply kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierVersions {
    /// Name by which they are put back; empty if nothing is kept.
    pub id: String,
    /// Number of files and links.
    pub files: usize,
    /// When they are removed, in seconds since the epoch.
    pub until_unix_s: u64,
    /// Files that are not kept: too large, or not readable for the user.
    pub unkept: Vec<RelPath>,
}

/// What happens to a path of the destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// It is made.
    Added,
    /// It is changed.
    Modified,
    /// It is removed.
    Deleted,
    /// It is made, and its source is removed.
    Renamed {
        /// Where it was.
        source: RelPath,
    },
}

/// A path that both sides changed: the host's version stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The path.
    pub path: RelPath,
    /// How the two disagree.
    pub reason: ConflictReason,
    /// Where the sandbox's version is put, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<RelPath>,
    /// Whether both versions are in the file, between markers.
    #[serde(default)]
    pub is_marked: bool,
    /// Why the sandbox's version is nowhere on the host, although there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplaced: Option<UnplacedReason>,
}

/// Reason why the sandbox's version of a path in conflict has no place beside the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnplacedReason {
    /// The name would be longer than a file system takes.
    NameTooLong,
    /// Every name that is tried belongs to something else.
    NamesTaken,
    /// The path lies on a file system that is mounted below the destination.
    BelowMount,
    /// A directory above the path is not one on the host.
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

/// How host and sandbox disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictReason {
    /// Both changed it.
    ChangedOnHost,
    /// Both made it, differently.
    AddedOnHost,
    /// The sandbox changed what the host removed.
    DeletedOnHost,
    /// The sandbox removed what the host changed.
    DeletedInSandbox,
    /// The sandbox renamed what the host changed; [`Conflict::theirs`] is its new name.
    RenamedInSandbox,
    /// The host's directory has content that the sandbox did not remove.
    DirectoryNotEmpty,
    /// The host has a device, FIFO, socket or mount point there.
    SpecialOnHost,
    /// What should be a directory above it is not one on the host.
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

/// A change that a reviewer should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlaggedChange {
    /// The path.
    pub path: RelPath,
    /// Why.
    pub flags: Vec<Flag>,
}

/// What applying a change set comes to: the same shape before (what would be done) and after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What is applied.
    pub applied: Vec<AppliedChange>,
    /// What the host has already.
    pub already_there: Vec<RelPath>,
    /// What both sides changed; the host's version stays.
    pub conflicts: Vec<Conflict>,
    /// What both sides changed, where the host's version is to stay.
    #[serde(default)]
    pub declined: Vec<RelPath>,
    /// What earlier pulls had put beside a path whose conflict is no more: it is removed.
    #[serde(default)]
    pub resolved: Vec<RelPath>,
    /// Applied files that have another group than those that they replace, because the user is not in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_groups: Vec<RelPath>,
    /// The user's files that the apply replaced or removed and that git does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierVersions>,
    /// What stays in the sandbox, and why.
    pub refused: Vec<RefusedPath>,
    /// What of the applied a reviewer should look at.
    pub flagged: Vec<FlaggedChange>,
}

impl Outcome {
    /// Conflicts whose sandbox's version is nowhere on the host.
    pub fn unplaced(&self) -> impl Iterator<Item = (&Conflict, UnplacedReason)> {
        let conflicts = self.conflicts.iter();
        conflicts.filter_map(|conflict| Some((conflict, conflict.unplaced?)))
    }
}
