//! Three-way comparison: what the sandbox changed, against what the host did meanwhile.
//!
//! In: a change set, and what is at the destination ([`Host`], asked path by path). Out: steps that
//! are safe to take, conflicts, and what is there already. Pure: nothing is written, and everything
//! the function knows about the host it was told.
//!
//! Per path: the host did not touch it -> the sandbox's version is taken. Both have the same -> nothing
//! to do. Both changed it -> a conflict: the host's version stays and the sandbox's is put beside it as
//! `PATH.theirs`; with [`Options::force`] the sandbox's is taken and the host's kept as `PATH.orig`. A
//! directory with anything in it that the sandbox did not remove is never removed.

mod planner;

use crate::outcome::Outcome;
use crate::{ChangeSet, Node, RelPath};
use glovebox_proto::Fault;

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
    pub since: Since,
}

/// What the host did to a path since the sandbox started from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
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

    /// Names in a directory.
    ///
    /// # Errors
    /// When they cannot be read.
    fn names(&mut self, dir: &RelPath) -> Result<Vec<Vec<u8>>, Fault>;

    /// Whether two names that differ only in case are one.
    fn folds_case(&self) -> bool;
}

/// How conflicts are solved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Take the sandbox's version and keep the host's as `PATH.orig`.
    pub force: bool,
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
    /// What they come to.
    pub outcome: Outcome,
}

/// Compares a change set with the destination.
///
/// # Errors
/// Only those of `host`.
pub fn plan(set: &ChangeSet, host: &mut dyn Host, options: Options) -> Result<Plan, Fault> {
    planner::plan(set, host, options)
}
