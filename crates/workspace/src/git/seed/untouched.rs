//! Detects a sandbox that has not changed its workspace, so that a start may give it a newer git
//! directory.

use super::GIT_DIR;
use super::source::{entries, read};
use crate::beneath::Anchor;
use crate::git::index;
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// Path of the index, which git rewrites even if it only refreshes attributes.
const INDEX: &[u8] = b".git/index";

/// Returns true if the layers of a workspace are empty, apart from an index in the writable one
/// that stages the same content as that of the seed in the directory `seed`. Otherwise a newer
/// `HEAD` would lie below older files of the sandbox, and a commit inside would revert commits of
/// the host.
// TRUST: a sandbox wrote the layers. A layer that cannot be read counts as changed.
pub(super) fn is_workspace_untouched(upper: &Path, frozen: &[PathBuf], seed: &Path) -> bool {
    let Ok(seed) = Anchor::open(&seed.join(GIT_DIR)) else {
        return false;
    };
    let is_upper_untouched = match Anchor::open(upper) {
        Ok(upper) => is_layer_untouched(&upper, &seed),
        Err(_) => !upper.exists(),
    };
    is_upper_untouched
        && frozen
            .iter()
            .all(|layer| std::fs::read_dir(layer).is_ok_and(|mut entries| entries.next().is_none()))
}

fn is_layer_untouched(layer: &Anchor, seed: &Anchor) -> bool {
    let is_only = |path: &[u8], wanted: &[u8], kind: FileType| {
        let found = entries(layer, path);
        found
            .iter()
            .all(|(name, found)| name == wanted && *found == kind)
    };
    if !is_only(b".", b".git", FileType::Directory)
        || !is_only(b".git", b"index", FileType::RegularFile)
    {
        return false;
    }
    match read(layer, INDEX, index::MAX_BYTES) {
        Ok(None) => true,
        Ok(Some((written, _))) => {
            let began = read(seed, INDEX, index::MAX_BYTES).ok().flatten();
            let began = began.and_then(|(began, _)| staged(&began));
            began.is_some() && began == staged(&written)
        }
        Err(_) => false,
    }
}

/// Content of an index entry, without the attributes of the file.
#[derive(PartialEq, Eq)]
struct StagedContent {
    path: Vec<u8>,
    mode: u32,
    object: Vec<u8>,
    stage: u16,
}

/// Returns the content that an index stages; `None` if it cannot be read.
fn staged(bytes: &[u8]) -> Option<Vec<StagedContent>> {
    index::read(bytes, |all: &mut Vec<_>, entry| {
        all.push(StagedContent {
            path: entry.name.to_vec(),
            mode: entry.mode,
            object: entry.id.to_vec(),
            stage: entry.stage(),
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;
    use testkit::{has_program, skip};

    #[test]
    fn only_a_refreshed_index_leaves_a_workspace_untouched() {
        if !has_program("git") {
            skip!("needs git");
        }
        let temp = tempfile::tempdir().unwrap();
        let (seed, layer) = (temp.path().join("seed"), temp.path().join("layer"));
        let work = seed.join(GIT_DIR);
        fs::create_dir_all(&work).unwrap();
        fs::create_dir(&layer).unwrap();
        let git = |args: &[&str]| {
            let status = Command::new("git").args(args).current_dir(&work).status();
            assert!(status.unwrap().success(), "{args:?}");
        };
        git(&["init", "-q", "."]);
        fs::write(work.join("a"), "a").unwrap();
        git(&["add", "a"]);
        let check = || is_workspace_untouched(&layer, &[], &seed);
        assert!(check());
        fs::create_dir(layer.join(".git")).unwrap();
        assert!(check());
        let began = fs::read(work.join(".git/index")).unwrap();
        let refreshed = std::time::SystemTime::now() - std::time::Duration::from_hours(1);
        fs::File::open(work.join("a"))
            .unwrap()
            .set_modified(refreshed)
            .unwrap();
        git(&["update-index", "-q", "--refresh"]);
        fs::copy(work.join(".git/index"), layer.join(".git/index")).unwrap();
        fs::write(work.join(".git/index"), &began).unwrap();
        assert_ne!(fs::read(layer.join(".git/index")).unwrap(), began);
        assert!(check());
        fs::write(work.join("b"), "b").unwrap();
        git(&["add", "b"]);
        fs::copy(work.join(".git/index"), layer.join(".git/index")).unwrap();
        fs::write(work.join(".git/index"), &began).unwrap();
        assert!(!check());
        fs::remove_file(layer.join(".git/index")).unwrap();
        for other in [".git/HEAD", "file", ".git/refs"] {
            fs::write(layer.join(other), "x").unwrap();
            assert!(!check(), "{other}");
            fs::remove_file(layer.join(other)).unwrap();
        }
        assert!(check());
        std::os::unix::fs::symlink("x", layer.join(".git/index")).unwrap();
        assert!(!check());
    }
}
