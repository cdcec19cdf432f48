//! Credentials in the configuration of a project's repositories.
//!
//! In: the project and where in it repositories are. Out: the configuration files that hold credentials,
//! with their text without them; and those that are too long to be looked at, which are hidden.

use crate::git::{self, config};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Longest configuration that is looked at, in bytes.
const MAX_CONFIG_BYTES: u64 = 256 << 10;
/// Most git directories of submodules and working trees that are looked at.
const MAX_GIT_DIRS: usize = 1000;
/// Names of configuration files in a git directory.
const CONFIGS: [&str; 2] = ["config", "config.worktree"];
/// Files in a git directory that hold nothing but credentials, where somebody put them there.
const CREDENTIALS: [&str; 2] = [".git-credentials", "credentials"];

pub(crate) type ReplacedTexts = Vec<(Vec<u8>, Vec<u8>)>;

/// Replaced texts, and paths that are to be hidden, all relative to the project.
pub(crate) fn without_credentials(
    project: &Path,
    repositories: &[Vec<u8>],
) -> (ReplacedTexts, Vec<Vec<u8>>) {
    in_git_dirs(
        project,
        repositories.iter().map(|dir| join(dir, b".git")).collect(),
    )
}

/// The same of git directories at paths below `top`, and of those of submodules and working trees in them.
pub(crate) fn in_git_dirs(top: &Path, mut waiting: Vec<Vec<u8>>) -> (ReplacedTexts, Vec<Vec<u8>>) {
    let mut replaced = ReplacedTexts::new();
    let mut hidden = Vec::new();
    let mut seen = 0;
    while let Some(git_dir) = waiting.pop() {
        let dir = top.join(OsStr::from_bytes(&git_dir));
        seen += 1;
        // A file `.git` names a directory that has a place of its own.
        if seen > MAX_GIT_DIRS || !dir.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        for name in CONFIGS {
            let Ok(meta) = dir.join(name).symlink_metadata() else {
                continue;
            };
            match git::small_file(&dir, name, MAX_CONFIG_BYTES) {
                Some(text) => {
                    if let Some(text) = config::without_credentials(&text) {
                        replaced.push((join(&git_dir, name.as_bytes()), text));
                    }
                }
                // What cannot be looked at is not shown. A link shows what it leads to, if anything.
                None if meta.is_file() => hidden.push(join(&git_dir, name.as_bytes())),
                None => {}
            }
        }
        for name in CREDENTIALS {
            if dir.join(name).symlink_metadata().is_ok() {
                hidden.push(join(&git_dir, name.as_bytes()));
            }
        }
        for below in ["modules", "worktrees"] {
            let names = names_in(&dir.join(below));
            waiting.extend(names.into_iter().map(|name| {
                let below = join(&git_dir, below.as_bytes());
                join(&below, &name)
            }));
        }
        // A submodule's name may have slashes in it: then its directory is not one of the first level.
        if dir.join("HEAD").symlink_metadata().is_err() {
            let names = names_in(&dir);
            waiting.extend(names.into_iter().map(|name| join(&git_dir, &name)));
        }
    }
    (replaced, hidden)
}

fn names_in(dir: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .take(MAX_GIT_DIRS)
        .map(|entry| entry.file_name().as_bytes().to_vec())
        .collect()
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, b"/", name].concat()
    }
}
