//! Three-way comparison: what the sandbox changed, against what the host did meanwhile.
//!
//! In: a change set, and what is at the destination ([`Host`], asked path by path). Out: steps that
//! are safe to take, conflicts, and what is there already. Pure: nothing is written, and everything
//! the function knows about the host it was told.
//!
//! Per path: the host did not touch it -> the sandbox's version is taken. Both have the same -> nothing
//! to do. Both changed a text, in different places -> both changes are taken ([`Host::merge`]). Otherwise a
//! conflict, which ends as [`Resolution`] says; unless somebody wants it otherwise, the host's version stays
//! and the sandbox's is put beside it as `PATH.theirs`. A directory with anything in it that the sandbox did
//! not remove is never removed.

mod conflicts;
mod planner;
mod renames;

use crate::outcome::Outcome;
use crate::{ChangeSet, Node, RelPath};
use glovebox_proto::Fault;
use std::collections::BTreeMap;

/// What is at a path of the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostNode {
    /// Nothing.
    Absent,
    /// A file, link or directory.
    Present(Node),
    /// A device, FIFO, socket, or a place where another file system begins.
    Special,
    /// A directory above it is not one: this is.
    Blocked(RelPath),
}

/// What is at a path of the destination, and what the host did to it since the push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostState {
    /// What is there.
    pub node: HostNode,
    /// What the host did.
    pub since: HostChange,
}

/// What the host did to a path since the sandbox started from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostChange {
    /// Nothing.
    Same,
    /// It changed or removed it.
    Changed,
    /// It made it: the sandbox did not start with it.
    Added,
}

/// The destination, as a plan sees it.
pub trait Host {
    /// What is at `path`. A digest is needed only when it is a file as long as `to` is.
    ///
    /// # Errors
    /// When it cannot be found out.
    fn state(
        &mut self,
        path: &RelPath,
        from: Option<&Node>,
        to: Option<&Node>,
    ) -> Result<HostState, Fault>;

    /// Merges what both sides made of the regular file at `path`; `to` is the sandbox's. `None` when one of
    /// them is no regular file, or is too large.
    ///
    /// # Errors
    /// When a version cannot be read.
    fn merge(&mut self, path: &RelPath, to: &Node) -> Result<Option<MergedFile>, Fault>;

    /// Merges the host's file at `source`, which the sandbox renamed to `path`, with what the sandbox has there. `None`
    /// as in [`Self::merge`], and where renames are not followed.
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

    /// True if `to` is what the last pull brought for `path`.
    fn is_pulled(&self, _path: &RelPath, _to: &Node) -> bool {
        false
    }

    /// The sandbox's versions that earlier pulls have put beside paths, as long as nobody touched them.
    fn leftovers(&mut self) -> Vec<Leftover>;

    /// Names in a directory.
    ///
    /// # Errors
    /// When they cannot be read.
    fn names(&mut self, dir: &RelPath) -> Result<Vec<Vec<u8>>, Fault>;

    /// Whether two names that differ only in case are one.
    fn folds_case(&self) -> bool;
}

/// Both sides' versions of a regular file, merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedFile {
    /// What comes out.
    pub content: Vec<u8>,
    /// How many conflicts are in it, between markers; `None` when it is no text, and not merged.
    pub conflicts: Option<usize>,
    /// Whether the owner may execute what comes out.
    pub is_executable: bool,
    /// The sandbox's version.
    pub theirs: Vec<u8>,
    /// Whether that is the host's version.
    pub is_ours: bool,
    /// Whether the sandbox's version is the base: then it has changed nothing.
    pub is_base: bool,
}

/// The sandbox's version that an earlier pull has put beside a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The path.
    pub path: RelPath,
    /// Where the sandbox's version is.
    pub theirs: RelPath,
    /// Whether the host has the same at the path by now.
    pub is_taken: bool,
}

/// What becomes of a path that both sides changed in a way that cannot be merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resolution {
    /// The host's version stays, and the sandbox's is put beside it.
    #[default]
    Beside,
    /// The sandbox's version is taken, and the host's kept as `PATH.orig`.
    Theirs,
    /// The host's version stays, and the sandbox's is not offered again until it changes.
    Ours,
    /// Both versions come into the file, between markers; as [`Self::Beside`] when it is no text.
    Markers,
}

/// How conflicts are solved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Each of them.
    pub conflicts: Resolution,
    /// Those of these paths.
    pub choices: BTreeMap<RelPath, Resolution>,
}

impl Options {
    /// All conflicts are solved the same way.
    pub const fn all(conflicts: Resolution) -> Self {
        Self {
            conflicts,
            choices: BTreeMap::new(),
        }
    }

    /// What becomes of a conflict at `path`.
    fn resolution(&self, path: &RelPath) -> Resolution {
        self.choices.get(path).copied().unwrap_or(self.conflicts)
    }
}

/// One step of applying, in the order in which it is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Give what the host has another name.
    Keep {
        /// Where it is.
        path: RelPath,
        /// Its new name.
        kept: RelPath,
    },
    /// Remove a file or link.
    Remove {
        /// Where it is.
        path: RelPath,
    },
    /// Remove a directory, which is empty by then.
    RemoveDir {
        /// Where it is.
        path: RelPath,
    },
    /// Make a directory.
    MakeDir {
        /// Where it will be.
        path: RelPath,
    },
    /// Write a file or link.
    Write {
        /// Where it will be.
        path: RelPath,
        /// Whose content it gets: a path of the change set.
        source: RelPath,
        /// What it will be.
        node: Node,
        /// Whether there is something it replaces.
        replaces: bool,
    },
    /// Make a file executable, or not.
    SetExecutable {
        /// Where it is.
        path: RelPath,
        /// Whether its owner may execute it.
        is_executable: bool,
    },
}

/// Steps, and what they come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they are taken.
    pub steps: Vec<Step>,
    /// Contents of writes that are not those of the sandbox.
    pub merged: BTreeMap<RelPath, Vec<u8>>,
    /// What the base of these paths becomes, where it is not what the host has then.
    pub bases: BTreeMap<RelPath, Vec<u8>>,
    /// Paths where the host has exactly what the sandbox has.
    pub settled: Vec<RelPath>,
    /// What they come to.
    pub outcome: Outcome,
}

impl Plan {
    /// Whether there is nothing to write, not even to the base.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.bases.is_empty()
    }
}

/// Compares a change set with the destination.
///
/// # Errors
/// Only those of `host`.
pub fn plan(set: &ChangeSet, host: &mut dyn Host, options: Options) -> Result<Plan, Fault> {
    planner::plan(set, host, options)
}
