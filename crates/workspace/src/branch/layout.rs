//! Checks that a git directory consists of plain directories and regular files, before git works in
//! it.
//!
//! A repository may come from a stranger. A link among its references, logs or objects would lead a
//! git that writes out of the project (a line of the reflog in a file of the user's), and a FIFO
//! would block a git that reads forever. Both are found here by a walk that follows no links.
//! Sandboxes cannot write to the project's git directory, so the result holds for the duration of
//! the call.

use crate::beneath::{Anchor, read_names, stat_at};
use glovebox_proto::{Code, Fault, Setting};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Directories that git walks, each with the maximum depth below it. Names of branches are
/// directories, at most as deep as a path is long.
const TREES: [(&str, usize); 4] = [
    ("objects", 3),
    ("refs", 128),
    ("reftable", 1),
    ("worktrees", 128),
];
/// Files that git reads.
const FILES: [&str; 6] = [
    "HEAD",
    "config",
    "config.worktree",
    "packed-refs",
    "shallow",
    "commondir",
];
/// Maximum number of entries of all directories together.
const MAX_ENTRIES: u64 = 4_000_000;
/// Maximum depth of alternates of alternates that git follows (`ALTERNATES` in git's
/// `object-file.c`).
const MAX_ALTERNATE_DEPTH: usize = 5;
/// Maximum size of a list of alternates, in bytes.
const MAX_ALTERNATES_BYTES: u64 = 64 << 10;

/// Examines the git directory of a working tree and the one with its objects and references, which
/// are the same except for a linked working tree.
///
/// # Errors
/// [`Code::PermissionDenied`] (refused) names the first entry that is neither a directory nor a
/// regular file, an object store of another user, or the limit that was exceeded.
pub(super) fn examine(git_dir: &Path, common_dir: &Path) -> Result<(), Fault> {
    let mut walk = Walk::default();
    walk.git_dir(common_dir)?;
    if git_dir != common_dir {
        walk.git_dir(git_dir)?;
    }
    walk.alternates(&common_dir.join("objects"), 0)
}

/// Returns true if the logs of references are plain directories and files. Git may write to them
/// only then; otherwise a branch is made without a log.
pub(super) fn has_plain_logs(common_dir: &Path) -> bool {
    let mut walk = Walk::default();
    walk.entry(common_dir, "logs", 128).is_ok() && common_dir.join("logs").is_dir()
}

#[derive(Default)]
struct Walk {
    entries: u64,
}

impl Walk {
    fn git_dir(&mut self, dir: &Path) -> Result<(), Fault> {
        for file in FILES {
            self.entry(dir, file, 0)?;
        }
        for (tree, depth) in TREES {
            self.entry(dir, tree, depth)?;
        }
        Ok(())
    }

    /// Examines an entry of a git directory, which may be absent, and everything below it.
    fn entry(&mut self, dir: &Path, name: &str, depth: usize) -> Result<(), Fault> {
        let path = dir.join(name);
        let anchor = Anchor::open(dir)?;
        let kind = match anchor.stat(name.as_bytes()) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(refused(&path, &format!("cannot be examined: {errno}"))),
        };
        match kind {
            FileType::RegularFile if depth == 0 => Ok(()),
            FileType::Directory if depth > 0 => match anchor.dir(name.as_bytes()) {
                Ok(opened) => self.below(&opened, &path, depth),
                Err(errno) => Err(refused(&path, &format!("cannot be examined: {errno}"))),
            },
            kind => Err(refused(&path, word(kind))),
        }
    }

    fn below(&mut self, dir: &OwnedFd, path: &Path, depth: usize) -> Result<(), Fault> {
        let mut inner: Vec<Vec<u8>> = Vec::new();
        let mut odd: Option<(Vec<u8>, FileType)> = None;
        let read = read_names(dir, |name, kind| {
            self.entries += 1;
            let kind = match kind {
                FileType::Unknown => FileType::from_raw_mode(stat_at(dir.as_fd(), name)?.st_mode),
                kind => kind,
            };
            match kind {
                FileType::RegularFile => {}
                FileType::Directory => inner.push(name.to_vec()),
                kind => odd = Some((name.to_vec(), kind)),
            }
            Ok::<(), Errno>(())
        });
        if let Err(errno) = read {
            return Err(refused(path, &format!("cannot be examined: {errno}")));
        }
        if let Some((name, kind)) = odd {
            return Err(refused(&path.join(OsStr::from_bytes(&name)), word(kind)));
        }
        if self.entries > MAX_ENTRIES {
            return Err(refused(path, "has too many entries"));
        }
        for name in inner {
            let path = path.join(OsStr::from_bytes(&name));
            if depth == 1 {
                return Err(refused(&path, "lies deeper than git puts anything"));
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(dir, name.as_slice(), flags, Mode::empty())
                .map_err(|errno| refused(&path, &format!("cannot be examined: {errno}")))?;
            self.below(&opened, &path, depth - 1)?;
        }
        Ok(())
    }

    /// Examines the object stores that `objects/info/alternates` names, recursively as git does.
    fn alternates(&mut self, objects: &Path, depth: usize) -> Result<(), Fault> {
        let mut text = Vec::new();
        match Anchor::open(objects)?.file(b"info/alternates") {
            Ok((file, _)) => {
                let read = file.take(MAX_ALTERNATES_BYTES + 1).read_to_end(&mut text);
                read.map_err(|error| refused(objects, &error.to_string()))?;
            }
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(refused(objects, &errno.to_string())),
        }
        if text.len() as u64 > MAX_ALTERNATES_BYTES || depth == MAX_ALTERNATE_DEPTH {
            return Err(refused(objects, "has too many alternates"));
        }
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty() && line[0] != b'#') {
            let store: PathBuf = objects.join(OsStr::from_bytes(line));
            // Git skips a missing store with a warning.
            let Ok(real) = store.canonicalize() else {
                continue;
            };
            super::repository::require_own(&real)?;
            let (Some(above), Some(name)) = (real.parent(), real.file_name()) else {
                return Err(refused(&store, "is no object store"));
            };
            let Some(name) = name.to_str() else {
                return Err(refused(&store, "has a name that is not text"));
            };
            self.entry(above, name, 3)?;
            self.alternates(&real, depth + 1)?;
        }
        Ok(())
    }
}

const fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "is a symbolic link",
        FileType::Fifo => "is a FIFO",
        FileType::Socket => "is a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "is a device",
        FileType::Directory => "is a directory",
        FileType::RegularFile => "is a regular file",
        FileType::Unknown => "is neither a directory nor a file",
    }
}

fn refused(path: &Path, what: &str) -> Fault {
    Fault::refused(
        Code::PermissionDenied,
        format!(
            "git is not used in this repository: {} {what}",
            path.display()
        ),
    )
    .remedy([
        "put a plain file or directory there, or pull without ".into(),
        Setting::Branch.into(),
        " and ".into(),
        Setting::Commits.into(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn git_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in ["objects/ab", "objects/info", "refs/heads/a/b", "logs/refs"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        for path in ["HEAD", "config", "refs/heads/a/b/c", "logs/HEAD"] {
            fs::write(dir.path().join(path), "x").unwrap();
        }
        dir
    }

    fn fifo(path: &Path) {
        let kind = FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, Mode::from(0o600), 0).unwrap();
    }

    #[test]
    fn plain_git_directory_passes() {
        let dir = git_dir();
        examine(dir.path(), dir.path()).unwrap();
        assert!(has_plain_logs(dir.path()));
    }

    #[test]
    fn links_and_fifos_are_refused_by_name() {
        for place in [
            "config.worktree",
            "packed-refs",
            "shallow",
            "refs/tags",
            "refs/heads/a/x",
            "objects/ab/0123",
            "objects/pack",
            "worktrees",
            "reftable",
        ] {
            for make in [
                (|path: &Path| symlink("/etc", path).unwrap()) as fn(&Path),
                fifo,
            ] {
                let dir = git_dir();
                make(&dir.path().join(place));
                let fault = examine(dir.path(), dir.path()).unwrap_err();
                assert!(fault.message.contains(place), "{place}: {}", fault.message);
            }
        }
    }

    #[test]
    fn logs_with_a_link_are_not_written() {
        let dir = git_dir();
        symlink("/tmp/elsewhere", dir.path().join("logs/refs/heads")).unwrap();
        examine(dir.path(), dir.path()).unwrap();
        assert!(!has_plain_logs(dir.path()));
    }

    #[test]
    fn alternates_are_examined_to_their_end() {
        let (dir, other, third) = (git_dir(), git_dir(), git_dir());
        let names = |from: &Path, to: &Path| {
            let line = format!("{}\n", to.join("objects").display());
            fs::write(from.join("objects/info/alternates"), line).unwrap();
        };
        names(dir.path(), other.path());
        names(other.path(), third.path());
        examine(dir.path(), dir.path()).unwrap();
        fifo(&third.path().join("objects/ab/0123"));
        let fault = examine(dir.path(), dir.path()).unwrap_err();
        assert!(fault.message.contains("is a FIFO"), "{}", fault.message);
        // Alternates that form a cycle end as well.
        names(other.path(), dir.path());
        let fault = examine(dir.path(), dir.path()).unwrap_err();
        assert!(fault.message.contains("too many"), "{}", fault.message);
    }
}
