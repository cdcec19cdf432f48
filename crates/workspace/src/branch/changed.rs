//! Detects references in a sandbox's layers that its seed does not have.
//!
//! The layers were written from inside and are untrusted: only names are read from them. The seed
//! was written by Glovebox.

use super::is_object_name;
use crate::beneath::{Anchor, read_names};
use crate::cover::cover;
use crate::git::read_seed_record;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of references that are read in layers.
const MAX_TIPS: usize = 10_000;
/// Maximum size of one file of references, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Parts of a git directory that change with every commit, branch, tag or stash.
const REFERENCE_PARTS: [&str; 5] = ["HEAD", "packed-refs", "refs", "reftable", "logs/refs"];

/// Returns the working trees whose references the layers contain, relative to the workspace: empty
/// for the project's own. `seed` is the directory of the seed. A working tree whose references were
/// changed back to the same values is included.
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
            layers.iter().any(|layer| cover(layer, path).is_some())
        })
    });
    changed
        .map(|repository| working_tree(&repository.inside))
        .collect()
}

/// Returns the names of the objects to which references, `HEAD` and the log of stashes in the
/// layers point, for the project's own repository. `None` if they cannot be determined: references
/// of another format, links, or too many of them.
pub fn find_layer_tips(layers: &[PathBuf]) -> Option<BTreeSet<String>> {
    let mut tips = BTreeSet::new();
    for layer in layers {
        let layer = Anchor::open(layer).ok()?;
        if layer.stat(b".git/reftable").is_ok() {
            return None;
        }
        for part in ["HEAD", "packed-refs", "logs/refs/stash"] {
            read_tips(&layer, format!(".git/{part}").as_bytes(), &mut tips)?;
        }
        let mut open = vec![b".git/refs".to_vec()];
        while let Some(path) = open.pop() {
            let dir = match layer.dir(&path) {
                Ok(dir) => dir,
                // A directory that a whiteout removed must not be searched in lower layers.
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(_) => return None,
            };
            let mut names = Vec::new();
            read_names::<Errno>(&dir, |name, _| {
                names.push(name.to_vec());
                Ok(())
            })
            .ok()?;
            for name in names {
                let path = [path.as_slice(), b"/", &name].concat();
                if open.len() + tips.len() > MAX_TIPS {
                    return None;
                }
                match FileType::from_raw_mode(layer.stat(&path).ok()?.st_mode) {
                    FileType::Directory => open.push(path),
                    FileType::RegularFile => read_tips(&layer, &path, &mut tips)?,
                    FileType::CharacterDevice => {}
                    _ => return None,
                }
            }
        }
    }
    Some(tips)
}

/// Adds every object name in a file of references or a log of them. Adds none if the file does not
/// exist.
// TRUST: written from inside; only names of objects are read.
fn read_tips(layer: &Anchor, path: &[u8], tips: &mut BTreeSet<String>) -> Option<()> {
    let file = match layer.file(path) {
        Ok((file, _)) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Some(()),
        // A whiteout.
        Err(_) => {
            let stat = layer.stat(path).ok()?;
            let is_whiteout = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
            return is_whiteout.then_some(());
        }
    };
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut text).ok()?;
    if text.len() as u64 > MAX_BYTES {
        return None;
    }
    let is_log = path.starts_with(b".git/logs/");
    for line in String::from_utf8_lossy(&text).lines() {
        // A log has the object before the change and the one after. A peeled tag belongs to the
        // line before.
        let word = line.split(' ').nth(usize::from(is_log)).unwrap_or_default();
        if is_object_name(word) {
            tips.insert(word.to_owned());
        }
    }
    Some(())
}

/// Returns the working tree of a git directory, assuming git's layout for submodules.
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
