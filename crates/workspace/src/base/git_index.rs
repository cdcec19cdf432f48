//! Finds files of a project that are unchanged since git last saw them, from the index of its
//! repository.
//!
//! Git's index has the object name and the attributes of every tracked file. If the attributes
//! match those of the file, the object database has its content, and no copy is needed.

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

/// Tracked files by path from the top of the working tree.
#[derive(Debug, Default)]
pub(super) struct GitIndex {
    entries: HashMap<Box<[u8]>, Entry>,
    /// Time at which the index was written, in seconds and nanoseconds.
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

/// Record of one file in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexEntry<'a> {
    /// Object name of the content that git has recorded.
    pub(super) id: &'a [u8],
    /// True if the file has that content.
    pub(super) is_clean: bool,
}

impl GitIndex {
    /// Reads the index in a git directory. An index that cannot be read tracks no files.
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

    /// Returns the record for the file at `path` with this signature; `None` if it is not tracked.
    pub(super) fn tracked(&self, path: &[u8], signature: &Signature) -> Option<IndexEntry<'_>> {
        let entry = self.entries.get(path)?;
        Some(IndexEntry {
            id: &entry.id,
            is_clean: !entry.is_assumed && self.is_clean(entry, signature),
        })
    }

    fn is_clean(&self, entry: &Entry, signature: &Signature) -> bool {
        // A file written at the same time as the index may have changed after git read it.
        let is_older = if entry.mtime.1 == 0 || self.written.1 == 0 {
            entry.mtime.0 < self.written.0
        } else {
            entry.mtime < self.written
        };
        is_older && entry.has(signature)
    }
}

impl Entry {
    /// Returns true if the signature matches the attributes that git recorded.
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
            // Some implementations of git record no fractions of a second.
            seconds == parts.0 && (rest == 0 || rest == parts.1)
        };
        self.size == *size as u32
            && self.ino == *ino as u32
            && same(self.mtime, *mtime_ns)
            && same(self.ctime, *ctime_ns)
    }
}

/// A working tree with its index, to tell edited files from committed or staged ones.
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

    /// Returns true if the file at `path` is as in the index, or does not exist and is not in the
    /// index. A file written at the same time as the index counts as clean, because a checkout
    /// writes both within one clock tick.
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

    /// Returns true if git certainly has the content of the regular file at `path` with this
    /// signature. A file written at the same time as the index does not count, because it may have
    /// changed since.
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
