//! Which files of a project are as git last saw them, read from the index of its repository.
//!
//! Git's index holds the name of the content and the attributes of every tracked file. Where the
//! attributes are those of the file, the object database holds its content, and no copy is needed.

use super::{Kind, Signature};
use crate::beneath::Anchor;
use crate::git::index::{self, MAX_BYTES};
use crate::git::small_file_in;
use glovebox_proto::Fault;
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;

const REGULAR: u32 = 0o100_000;
const TYPE: u32 = 0o170_000;

/// Tracked files by their path from the top of the working tree.
#[derive(Debug, Default)]
pub(super) struct GitIndex {
    entries: HashMap<Box<[u8]>, Entry>,
    /// When the index was written.
    written: (u32, u32),
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    ctime: (u32, u32),
    mtime: (u32, u32),
    ino: u32,
    size: u32,
    is_assumed: bool,
    /// True if a sparse checkout leaves the file out of the working tree.
    is_sparse: bool,
    id: Box<[u8]>,
}

/// What the index says about one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexEntry<'a> {
    /// Name of the content it has for git.
    pub(super) id: &'a [u8],
    /// Whether the file has that content.
    pub(super) is_clean: bool,
}

impl GitIndex {
    /// Reads the index in a git directory; one that cannot be read tracks nothing.
    pub(super) fn read(git_dir: &Path) -> Self {
        Self::try_read(git_dir).unwrap_or_default()
    }

    fn try_read(git_dir: &Path) -> Option<Self> {
        let anchor = Anchor::open(git_dir).ok()?;
        let (bytes, stat) = small_file_in(&anchor, b"index", MAX_BYTES)?;
        let mut found: Self = index::read(&bytes, Self::add)?;
        found.written = (stat.st_mtime as u32, stat.st_mtime_nsec as u32);
        Some(found)
    }

    fn add(&mut self, entry: &index::Entry<'_>) {
        if entry.mode & TYPE == REGULAR && entry.stage() == 0 {
            let file = Entry {
                ctime: entry.ctime,
                mtime: entry.mtime,
                ino: entry.ino,
                size: entry.size,
                is_assumed: entry.is_assumed(),
                is_sparse: entry.is_sparse(),
                id: entry.id.into(),
            };
            self.entries.insert(entry.name.into(), file);
        }
    }

    /// What it says about the file at `path` that has this signature.
    pub(super) fn tracked(&self, path: &[u8], signature: &Signature) -> Option<IndexEntry<'_>> {
        let entry = self.entries.get(path)?;
        Some(IndexEntry {
            id: &entry.id,
            is_clean: !entry.is_assumed && self.is_clean(entry, signature),
        })
    }

    fn is_clean(&self, entry: &Entry, signature: &Signature) -> bool {
        // What was written in the same moment as the index may have changed after git looked at it.
        let is_older = if entry.mtime.1 == 0 || self.written.1 == 0 {
            entry.mtime.0 < self.written.0
        } else {
            entry.mtime < self.written
        };
        is_older && entry.has(signature)
    }
}

impl Entry {
    /// Returns true if the file with this signature has the attributes that git noted.
    fn has(&self, signature: &Signature) -> bool {
        let Signature::Present {
            kind: Kind::File,
            size,
            mtime_ns,
            ctime_ns,
            ino,
            ..
        } = signature
        else {
            return false;
        };
        let same = |(seconds, rest): (u32, u32), ns: i64| {
            let parts = (
                ns.div_euclid(1_000_000_000) as u32,
                ns.rem_euclid(1_000_000_000) as u32,
            );
            // Some write no fractions.
            seconds == parts.0 && (rest == 0 || rest == parts.1)
        };
        self.size == *size as u32
            && self.ino == *ino as u32
            && same(self.mtime, *mtime_ns)
            && same(self.ctime, *ctime_ns)
    }
}

/// A working tree beside its index, to tell edited files from those that are as committed or staged.
#[derive(Debug)]
pub(crate) struct CleanFiles {
    index: GitIndex,
    project: Anchor,
}

impl CleanFiles {
    /// Reads the index in `git_dir` for the working tree at `project`.
    ///
    /// # Errors
    /// When the project cannot be opened.
    pub(crate) fn read(git_dir: &Path, project: &Path) -> Result<Self, Fault> {
        Ok(Self {
            index: GitIndex::read(git_dir),
            project: Anchor::open(project)?,
        })
    }

    /// Returns true if the file at `path` is as the index has it, or is in neither. One that was written in the same
    /// moment as the index counts as clean: a checkout writes both within one tick of the clock.
    pub(crate) fn is_clean(&self, path: &[u8]) -> bool {
        let entry = self.index.entries.get(path);
        match self.project.stat(path) {
            Ok(stat) => {
                entry.is_some_and(|entry| !entry.is_assumed && entry.has(&Signature::from(&stat)))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => entry.is_none(),
            Err(_) => false,
        }
    }

    /// Returns true if git has the content of the regular file at `path` with this signature. What may have changed
    /// in the moment in which the index was written does not count.
    pub(crate) fn is_surely_clean(&self, path: &[u8], signature: &Signature) -> bool {
        let tracked = self.index.tracked(path, signature);
        tracked.is_some_and(|tracked| tracked.is_clean)
    }

    /// Returns true if a sparse checkout leaves `path` out.
    pub(crate) fn is_sparse(&self, path: &[u8]) -> bool {
        let entry = self.index.entries.get(path);
        entry.is_some_and(|entry| entry.is_sparse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use testkit::{has_program, skip};

    fn git(dir: &Path, args: &[&str]) {
        let done = Command::new("git")
            .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
            .args(args)
            .current_dir(dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .status()
            .unwrap();
        assert!(done.success(), "git {args:?}");
    }

    fn look(dir: &Path, index: &GitIndex, name: &str) -> Option<bool> {
        let stat = rustix::fs::lstat(dir.join(name)).unwrap();
        let tracked = index.tracked(name.as_bytes(), &Signature::from(&stat));
        tracked.map(|tracked| tracked.is_clean)
    }

    #[test]
    fn every_version_that_git_writes_is_read() {
        if !has_program("git") {
            skip!("needs git");
        }
        let tick = || std::thread::sleep(std::time::Duration::from_millis(20));
        for version in ["2", "3", "4"] {
            for format in ["sha1", "sha256"] {
                let temp = tempfile::tempdir().unwrap();
                let dir = temp.path();
                git(dir, &["init", "-q", "--object-format", format]);
                let names = ["a", "a-long-name-of-a-file", "dir/one", "dir/two", "x"];
                std::fs::create_dir(dir.join("dir")).unwrap();
                for name in names {
                    std::fs::write(dir.join(name), name).unwrap();
                }
                tick();
                git(dir, &["add", "-A"]);
                git(dir, &["update-index", "--index-version", version]);
                tick();
                std::fs::write(dir.join("x"), "y").unwrap();
                std::fs::write(dir.join("untracked"), "").unwrap();
                let index = GitIndex::read(&dir.join(".git"));
                for name in &names[..4] {
                    assert_eq!(look(dir, &index, name), Some(true), "{version} {name}");
                }
                assert_eq!(look(dir, &index, "x"), Some(false), "{version}");
                assert_eq!(look(dir, &index, "untracked"), None, "{version}");
            }
        }
    }
}
