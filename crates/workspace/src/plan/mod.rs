//! Three-way comparison of the sandbox's changes with the host's changes since the push.
//!
//! Input: a change set and the state of the destination ([`Host`], queried path by path). Output:
//! steps that are safe to take, conflicts, and paths that need no step. Planning writes nothing and
//! knows the host only through [`Host`].
//!
//! Per path: if the host did not change it, the sandbox's version is taken. If both have the same,
//! nothing is done. If both changed a text in different places, both changes are taken
//! ([`Host::merge`]). Otherwise it is a conflict, which ends as [`Resolution`] says; by default the
//! host's version stays and the sandbox's is put beside it as `PATH.theirs`. A directory is never
//! removed while it has content that the sandbox did not remove.

mod conflicts;
mod planner;
mod renames;

use crate::outcome::Outcome;
use crate::{ChangeSet, Node, RelPath};
use glovebox_proto::Fault;
use std::collections::BTreeMap;

/// Object at a path of the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostNode {
    /// The path does not exist.
    Absent,
    /// A file, link or directory.
    Present(Node),
    /// A device, FIFO, socket or mount point.
    Special,
    /// This path above it exists and is not a directory.
    Blocked(RelPath),
}

/// State of a path of the destination, compared with the push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostState {
    /// Object at the path.
    pub node: HostNode,
    /// Change by the host since the push.
    pub since: HostChange,
}

/// Change by the host to a path since the sandbox started from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostChange {
    /// The host did not change the path.
    Same,
    /// The host changed or removed the path.
    Changed,
    /// The host created the path after the push.
    Added,
}

/// The destination, as the planner queries it.
pub trait Host {
    /// Returns the state of `path`; `from` is the base and `to` the sandbox's version. The node
    /// needs a digest only if it is a file of the same length as `to`.
    ///
    /// # Errors
    /// When the path cannot be inspected.
    fn state(
        &mut self,
        path: &RelPath,
        from: Option<&Node>,
        to: Option<&Node>,
    ) -> Result<HostState, Fault>;

    /// Merges both sides' versions of the regular file at `path`; `to` is the sandbox's. `None` if
    /// one of them is not a regular file or is too large.
    ///
    /// # Errors
    /// When a version cannot be read.
    fn merge(&mut self, path: &RelPath, to: &Node) -> Result<Option<MergedFile>, Fault>;

    /// Merges the host's file at `source`, which the sandbox renamed to `path`, with the sandbox's
    /// file there. `None` as in [`Self::merge`], and if this host does not follow renames.
    ///
    /// # Errors
    /// When a version cannot be read.
    fn merge_renamed(
        &mut self,
        _source: &RelPath,
        _path: &RelPath,
        _to: &Node,
    ) -> Result<Option<MergedFile>, Fault> {
        Ok(None)
    }

    /// Returns true if the last pull brought `to` for `path`.
    fn is_pulled(&self, _path: &RelPath, _to: &Node) -> bool {
        false
    }

    /// Returns versions of the sandbox that earlier pulls put beside paths and that are unchanged
    /// since.
    fn leftovers(&mut self) -> Vec<Leftover>;

    /// Returns the names in a directory.
    ///
    /// # Errors
    /// When the directory cannot be read.
    fn names(&mut self, dir: &RelPath) -> Result<Vec<Vec<u8>>, Fault>;

    /// Returns true if the destination treats names that differ only in case as one.
    fn folds_case(&self) -> bool;
}

/// Result of merging both sides' versions of a regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedFile {
    /// Merged content. Empty if the versions could not be merged.
    pub content: Vec<u8>,
    /// Number of conflicts between markers in the content. `None` if a version is not text and
    /// nothing was merged.
    pub conflicts: Option<usize>,
    /// True if the owner may execute the merged file.
    pub is_executable: bool,
    /// Content of the sandbox's version.
    pub theirs: Vec<u8>,
    /// True if the merged content equals the host's version.
    pub is_ours: bool,
    /// True if the sandbox's version equals the base: the sandbox changed no content.
    pub is_base: bool,
}

/// Version of the sandbox that an earlier pull put beside a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Path of the conflict.
    pub path: RelPath,
    /// Path of the sandbox's version.
    pub theirs: RelPath,
    /// True if the host now has the same content at the path.
    pub is_taken: bool,
}

/// Decision about a path that both sides changed and that cannot be merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resolution {
    /// The host's version stays, and the sandbox's is put beside it.
    #[default]
    Beside,
    /// The sandbox's version is taken, and the host's kept as `PATH.orig`.
    Theirs,
    /// The host's version stays, and the sandbox's is not offered again until it changes.
    Ours,
    /// Both versions are written into the file, between markers. As [`Self::Beside`] if one of them
    /// is not text.
    Markers,
}

/// Decisions about conflicts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Decision for paths without one of their own.
    pub conflicts: Resolution,
    /// Decisions for single paths.
    pub choices: BTreeMap<RelPath, Resolution>,
}

impl Options {
    /// Returns options that resolve all conflicts in the same way.
    pub const fn all(conflicts: Resolution) -> Self {
        Self {
            conflicts,
            choices: BTreeMap::new(),
        }
    }

    /// Returns the decision for a conflict at `path`.
    fn resolution(&self, path: &RelPath) -> Resolution {
        self.choices.get(path).copied().unwrap_or(self.conflicts)
    }
}

/// One step of applying a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Rename the host's version.
    Keep {
        /// Current path.
        path: RelPath,
        /// New path.
        kept: RelPath,
    },
    /// Remove a file or link.
    Remove {
        /// Path of the file or link.
        path: RelPath,
    },
    /// Remove a directory. Earlier steps have emptied it.
    RemoveDir {
        /// Path of the directory.
        path: RelPath,
    },
    /// Create a directory.
    MakeDir {
        /// Path of the directory.
        path: RelPath,
    },
    /// Write a file or link.
    Write {
        /// Path to write.
        path: RelPath,
        /// Path of the change set that provides the content.
        source: RelPath,
        /// Type, mode and content of the result.
        node: Node,
        /// True if the step replaces an existing object.
        replaces: bool,
    },
    /// Set or clear the owner's execute permission of a file.
    SetExecutable {
        /// Path of the file.
        path: RelPath,
        /// True if the owner may execute the file afterwards.
        is_executable: bool,
    },
}

/// Steps of an apply, with their effects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Steps, in the order in which they are taken.
    pub steps: Vec<Step>,
    /// Contents of writes whose content is merged and not the sandbox's.
    pub merged: BTreeMap<RelPath, Vec<u8>>,
    /// New base contents of paths where the base must differ from what the host has afterwards.
    pub bases: BTreeMap<RelPath, Vec<u8>>,
    /// Paths where the host already has exactly the sandbox's version.
    pub settled: Vec<RelPath>,
    /// Effects of the plan for users and programs.
    pub outcome: Outcome,
}

impl Plan {
    /// Returns true if the plan changes neither the destination nor the base.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.bases.is_empty()
    }
}

/// Compares a change set with the destination and returns the steps to apply it.
///
/// # Errors
/// Only those of `host`.
pub fn plan(set: &ChangeSet, host: &mut dyn Host, options: Options) -> Result<Plan, Fault> {
    planner::plan(set, host, options)
}
