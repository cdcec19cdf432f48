//! Collects the changes of a sandbox without trusting it.
//!
//! [`from_layers`] reads the layers of a native sandbox on this machine, whether it runs or not.
//! Callers that obtain the changes in another way pass them to [`complete`], which does the common
//! part: it detects renames, refuses links that lead out, and flags files that the host executes.

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
pub(crate) use too_many::too_many_changes;

use crate::{ChangeSet, Contents, RelPath};

/// Access to the host's side of a change set.
pub trait BaseTree {
    /// Returns the target of a link of the host; `None` if there is no link at the path.
    fn link(&self, path: &RelPath) -> Option<Vec<u8>>;

    /// Returns true if the host has an object at the path.
    fn holds(&self, path: &RelPath) -> bool;

    /// Returns the directory in the project that its file `.git` names; `None` if there is none.
    fn git_dir(&self) -> Option<&RelPath>;
}

/// Completes a change set that has only additions, modifications and deletions, sorted by path:
/// refuses links that lead out or into the host's repository, detects renames, and flags changes
/// that a reviewer should check.
pub fn complete(set: &mut ChangeSet, contents: &dyn Contents, base: &dyn BaseTree) {
    git_dirs::refuse(set, base);
    links::refuse(set, base);
    // A refused path must not become part of a rename, so renames are detected after the refusals.
    renames::detect(set, contents);
    // Flags come after renames: moving an executable file does not make it executable.
    for change in &mut set.changes {
        flags::add(change);
    }
    git_dirs::flag(set, base);
}
