//! Which repositories of a sandbox have references that its seed does not have.
//!
//! The layers were written from inside: of them only names are looked at. The seed was written by Glovebox.

use crate::beneath::Anchor;
use crate::collect::is_covered_by;
use crate::git::read_seed_record;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Parts of a git directory that change with each commit, branch, tag or stash.
const REFERENCE_PARTS: [&str; 5] = ["HEAD", "packed-refs", "refs", "reftable", "logs/refs"];

/// Returns the working trees whose references the layers hold, relative to the workspace: empty for the project's own.
/// The seed lies in the directory `seed`. A working tree whose references were written back to what they were counts.
pub fn changed_repositories(seed: &Path, layers: &[PathBuf]) -> Vec<PathBuf> {
    let Some(record) = read_seed_record(seed) else {
        return Vec::new();
    };
    let layers: Vec<Anchor> = layers
        .iter()
        .filter_map(|layer| Anchor::open(layer).ok())
        .collect();
    let usable = record
        .repositories
        .iter()
        .filter(|repository| repository.problem.is_none());
    let changed = usable.filter(|repository| {
        REFERENCE_PARTS.iter().any(|part| {
            let path = repository.inside.join(part);
            let path = path.as_os_str().as_bytes();
            layers.iter().any(|layer| is_covered_by(layer, path))
        })
    });
    changed
        .map(|repository| working_tree(&repository.inside))
        .collect()
}

/// Returns the working tree of a git directory, by the places that git gives to those of submodules.
fn working_tree(inside: &Path) -> PathBuf {
    let parts = inside.iter();
    parts
        .filter(|part| {
            ![".git", "modules"]
                .iter()
                .any(|own| *part == OsStr::new(own))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_trees_are_named_by_their_git_directories() {
        for (inside, tree) in [
            (".git", ""),
            ("a/b/.git", "a/b"),
            (".git/modules/lib/x", "lib/x"),
            ("a/.git/modules/b/modules/c", "a/b/c"),
        ] {
            assert_eq!(working_tree(Path::new(inside)), Path::new(tree));
        }
    }
}
