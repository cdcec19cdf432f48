//! The host's repository, read as data: its location, its tracked files and its ignore rules.
//!
//! Input: a directory of the project. Output: paths and names. No git command runs here, because a
//! repository's configuration can name programs. Files are opened as regular files and read up to a
//! limit, because the project may come from a stranger.

pub(crate) mod config;
mod facts;
pub(crate) mod ignored;
pub(crate) mod index;
mod outside;
mod repositories;
pub(crate) mod seed;
mod tracked;

pub use facts::{RepositoryFacts, repository_facts};
pub use outside::{OutsideRepository, ShownGitDir, find_outside};
pub use repositories::{FoundRepositories, find_repositories};
pub use seed::{
    RepositoryRecord, SEED_MAKER, SeedRecord, SeedReferences, build_seed, complete_held,
    read_seed_record,
};
pub(crate) use tracked::TrackedFiles;

use crate::beneath::Anchor;
use rustix::fs::Stat;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Part of a repository's history that a copy on another machine gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GitHistory {
    /// The commit of `HEAD` alone.
    #[default]
    Head,
    /// All local branches and tags.
    Full,
}

impl GitHistory {
    /// Returns the value for flags and configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Full => "full",
        }
    }
}

/// Maximum size of a `HEAD`, `commondir` or `.git` file, in bytes.
const MAX_POINTER_BYTES: u64 = 8 << 10;

/// A working tree and its git directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingTree {
    /// Top directory.
    pub top: PathBuf,
    /// Directory with `HEAD` and the index.
    pub git_dir: PathBuf,
}

/// Finds the working tree that contains a directory, on the same file system. `dir` must be
/// absolute and without links. `None` if there is none.
pub fn find_working_tree(dir: &Path) -> Option<WorkingTree> {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    let own = device(dir);
    dir.ancestors()
        .take_while(|above| device(above) == own)
        .find_map(|top| {
            Some(WorkingTree {
                git_dir: git_dir(top)?,
                top: top.to_owned(),
            })
        })
}

/// Returns the working tree that contains a project, and the project's path in it, which is empty
/// or ends in a slash. A working tree whose top lies above the project must have the same owner as
/// the project: otherwise a user who can write to `/tmp` could control projects in it.
pub(crate) fn owned_working_tree(project: &Path) -> Option<(WorkingTree, Vec<u8>)> {
    let project = project.canonicalize().ok()?;
    let tree = find_working_tree(&project)?;
    let owner = |path: &Path| fs::metadata(path).map(|meta| meta.uid()).ok();
    if tree.top != project && owner(&tree.top) != owner(&project) {
        return None;
    }
    let prefix = with_slash(project.strip_prefix(&tree.top).ok()?);
    Some((tree, prefix))
}

/// Returns a directory as a prefix of the names in it: empty, or ending in a slash.
pub(crate) fn with_slash(dir: &Path) -> Vec<u8> {
    let mut bytes = dir.as_os_str().as_bytes().to_vec();
    if !bytes.is_empty() {
        bytes.push(b'/');
    }
    bytes
}

/// Returns the git directory of the working tree whose top is `dir`; `None` if it has none.
pub(crate) fn git_dir(dir: &Path) -> Option<PathBuf> {
    let path = dir.join(".git");
    let meta = fs::metadata(&path).ok()?;
    let found = if meta.is_dir() {
        path
    } else {
        dir.join(named_by_file(&path)?)
    };
    // Git also ignores a directory without a HEAD.
    let found = found.canonicalize().ok()?;
    found.join("HEAD").symlink_metadata().ok()?;
    Some(found)
}

/// Returns the path that a `.git` file names, as written.
pub(crate) fn named_by_file(file: &Path) -> Option<PathBuf> {
    let content = pointer(file).ok()?;
    Some(path_of(content.strip_prefix(b"gitdir: ")?))
}

/// Returns the directory with objects and branches: `git_dir` itself, except in a linked working
/// tree.
pub(crate) fn common_dir(git_dir: &Path) -> Result<PathBuf, String> {
    let path = git_dir.join("commondir");
    match pointer(&path) {
        Ok(target) => git_dir
            .join(path_of(&target))
            .canonicalize()
            .map_err(|error| format!("{} leads nowhere: {error}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(git_dir.to_owned()),
        Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
    }
}

/// Reads a small regular file, without white space at its end.
pub(crate) fn pointer(path: &Path) -> std::io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    File::open(path)?
        .take(MAX_POINTER_BYTES)
        .read_to_end(&mut content)?;
    while content.last().is_some_and(u8::is_ascii_whitespace) {
        content.pop();
    }
    Ok(content)
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()))
}

/// Reads a regular file in a directory; `None` if it does not exist, is longer than `max_bytes`, or
/// cannot be read.
pub(crate) fn small_file(dir: &Path, name: &str, max_bytes: u64) -> Option<Vec<u8>> {
    let (content, _) = small_file_in(&Anchor::open(dir).ok()?, name.as_bytes(), max_bytes)?;
    Some(content)
}

/// Reads a file like [`small_file`], beneath an anchor. Returns its attributes as well.
pub(crate) fn small_file_in(
    anchor: &Anchor,
    path: &[u8],
    max_bytes: u64,
) -> Option<(Vec<u8>, Stat)> {
    let (file, stat) = anchor.file(path).ok()?;
    let size = u64::try_from(stat.st_size).ok()?;
    if size > max_bytes {
        return None;
    }
    let mut content = Vec::with_capacity(size as usize);
    file.take(max_bytes + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= max_bytes).then_some((content, stat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{SkipReason, is_root, skip_because};

    #[test]
    fn a_working_tree_above_counts_when_its_owner_is_the_same() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let project = top.join("a/b");
        fs::create_dir_all(&project).unwrap();
        fs::create_dir(top.join(".git")).unwrap();
        fs::write(top.join(".git/HEAD"), "").unwrap();
        let prefix = |dir: &Path| owned_working_tree(dir).map(|(_, prefix)| prefix);
        assert_eq!(prefix(&top), Some(Vec::new()));
        assert_eq!(prefix(&project), Some(b"a/b/".to_vec()));
        if !is_root() {
            skip_because!(SkipReason::needs_root("to give a directory away"));
        }
        std::os::unix::fs::chown(&project, Some(65534), None).unwrap();
        assert_eq!(prefix(&project), None);
        std::os::unix::fs::chown(&top, Some(65534), None).unwrap();
        assert_eq!(prefix(&top), Some(Vec::new()));
        assert_eq!(prefix(&project), Some(b"a/b/".to_vec()));
    }
}
