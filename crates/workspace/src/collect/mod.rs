//! What a sandbox changed, found out without trusting it.
//!
//! [`from_layers`] reads the layers of a native sandbox on this machine, whether it runs or not.
//! Whoever gets at the changes in another way hands them to [`complete`], which does what is the same
//! for all: renames are detected, links that lead out are refused, and what runs on the host is
//! flagged.

mod executes;
mod flags;
mod git_dirs;
mod layers;
mod links;
mod merge;
mod renames;
mod too_many;
mod walk;

pub use flags::why_executed;
pub(crate) use git_dirs::{is_git_name, named_by_file};
pub(crate) use layers::RESERVED_PREFIX;
pub use layers::{LayerPaths, from_layers};
pub(crate) use links::links_that_lead_out;
pub(crate) use merge::is_covered_by;
pub(crate) use too_many::too_many_changes;

use crate::{ChangeSet, Contents, RelPath};

/// Looks at the host's side of a change set.
pub trait BaseTree {
    /// Where a link of the host points; `None` when there is none at the path.
    fn link(&self, path: &RelPath) -> Option<Vec<u8>>;

    /// Whether the host has something at the path.
    fn holds(&self, path: &RelPath) -> bool;

    /// The directory in the project that its file `.git` names, if it has one.
    fn git_dir(&self) -> Option<&RelPath>;
}

/// Completes a change set that has only additions, modifications and deletions, sorted by path:
/// refuses links that lead out or into the host's repository, detects renames, flags what a reviewer should look at.
pub fn complete(set: &mut ChangeSet, contents: &dyn Contents, base: &dyn BaseTree) {
    git_dirs::refuse(set, base);
    links::refuse(set, base);
    renames::detect(set, contents);
    for change in &mut set.changes {
        flags::add(change);
    }
    git_dirs::flag(set, base);
}
