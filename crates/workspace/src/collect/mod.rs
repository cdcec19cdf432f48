//! What a sandbox changed, found out without trusting it.
//!
//! [`from_layers`] reads the layers of a native sandbox on this machine, whether it runs or not.
//! Whoever gets at the changes in another way hands them to [`complete`], which does what is the same
//! for all: renames are detected, links that lead out are refused, and what runs on the host is
//! flagged.

mod flags;
mod layers;
mod links;
mod merge;
mod renames;

pub(crate) use layers::RESERVED_PREFIX;
pub use layers::{Layered, from_layers};

use crate::{ChangeSet, Contents, RelPath};

/// Looks at the host's side of a change set.
pub trait BaseTree {
    /// Where a link of the host points; `None` when there is none at the path.
    fn link(&self, path: &RelPath) -> Option<Vec<u8>>;
}

/// Completes a change set that has only additions, modifications and deletions, sorted by path:
/// refuses links that lead out, detects renames, flags what a reviewer should look at.
pub fn complete(set: &mut ChangeSet, contents: &dyn Contents, base: &dyn BaseTree) {
    links::refuse(set, base);
    renames::detect(set, contents);
    for change in &mut set.changes {
        flags::add(change);
    }
}
