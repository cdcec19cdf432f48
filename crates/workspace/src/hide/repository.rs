//! Credentials in the configurations of a project's repositories.
//!
//! Input: the project and the directories of its repositories. Output: configuration files with
//! credentials, with their text without them; and configuration files that are too long to inspect,
//! which are hidden.

use crate::git::{self, config};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Maximum size of a configuration that is inspected, in bytes.
const MAX_CONFIG_BYTES: u64 = 256 << 10;
/// Maximum number of git directories, including those of submodules and working trees, that are
/// inspected.
const MAX_GIT_DIRS: usize = 1000;
/// Names of configuration files in a git directory.
const CONFIGS: [&str; 2] = ["config", "config.worktree"];
/// Files in a git directory that contain only credentials, if they exist.
const CREDENTIALS: [&str; 2] = [".git-credentials", "credentials"];

pub(crate) type ReplacedTexts = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns replaced texts and paths to hide, all relative to the project.
pub(crate) fn without_credentials(
    project: &Path,
    repositories: &[Vec<u8>],
) -> (ReplacedTexts, Vec<Vec<u8>>) {
    in_git_dirs(
        project,
        repositories.iter().map(|dir| join(dir, b".git")).collect(),
    )
}

/// Returns the same for git directories at paths below `top`, and for those of submodules and
/// working trees in them.
pub(crate) fn in_git_dirs(top: &Path, mut waiting: Vec<Vec<u8>>) -> (ReplacedTexts, Vec<Vec<u8>>) {
    let mut replaced = ReplacedTexts::new();
    let mut hidden = Vec::new();
    let mut seen = 0;
    while let Some(git_dir) = waiting.pop() {
        let dir = top.join(OsStr::from_bytes(&git_dir));
        seen += 1;
        // A `.git` file names a directory that is handled elsewhere.
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
                // A file that cannot be inspected is hidden. A link only shows its target, which is
                // judged by its own path.
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
        // A submodule's name may contain slashes, so that its directory is not on the first level.
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
