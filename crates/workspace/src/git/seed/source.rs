//! A repository of the host as the source of a seed. Its directories and files are opened without
//! following links.

use super::Anchor;
use crate::beneath::read_names;
use glovebox_spec::SeedRepository;
use rustix::fd::AsFd as _;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Reason for a file that exceeds its limit.
const TOO_LONG: &str = "is too long";

/// Reason for which a repository cannot be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Offending entry of the git directory.
    path: Vec<u8>,
    what: &'static str,
}

impl Problem {
    pub(super) fn new(path: &[u8], what: &'static str) -> Self {
        Self {
            path: path.to_vec(),
            what,
        }
    }

    /// Returns true if a file exceeds its limit.
    pub(super) fn is_too_long(&self) -> bool {
        self.what == TOO_LONG
    }

    /// Returns the problem with an entry that should be a directory. A link is told from a file
    /// here, because the kernel reports the same error for both.
    fn of_dir(dir: &Anchor, path: &[u8], errno: Errno) -> Self {
        let is_link = dir
            .stat(path)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
        Self::of(path, if is_link { Errno::LOOP } else { errno })
    }

    /// Returns the problem for a failed call at `path`.
    fn of(path: &[u8], errno: Errno) -> Self {
        let what = match errno {
            Errno::LOOP => "is a symbolic link",
            Errno::ISDIR => "is a directory",
            Errno::NXIO => "is no regular file",
            Errno::NOTDIR => "is no directory",
            Errno::ACCESS | Errno::PERM => "cannot be read by this user",
            Errno::NOENT => "is missing",
            _ => "cannot be read",
        };
        Self::new(path, what)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        write!(f, "`{}` {}", path.escape_debug(), self.what)
    }
}

/// An open repository.
#[derive(Debug)]
pub(super) struct Source {
    /// Directory with `HEAD` and the index.
    pub(super) git_dir: Anchor,
    /// Directory with references and objects: the same as `git_dir`, except for a linked working
    /// tree.
    pub(super) common: Anchor,
    /// Device and inode of `git_dir`.
    pub(super) identity: (u64, u64),
    pub(super) is_linked: bool,
}

impl Source {
    pub(super) fn open(project: &Anchor, repository: &SeedRepository) -> Result<Self, Problem> {
        let name = repository.path.join(".git");
        let name = name.as_os_str().as_bytes();
        let failed = |errno| Problem::of_dir(project, name, errno);
        let broken = |_| Problem::new(name, "leads to no directory");
        let (git_dir, common) = match &repository.outside {
            None => {
                let beneath = || project.beneath(name).map_err(failed);
                (beneath()?, beneath()?)
            }
            Some(dirs) => (
                Anchor::open(&dirs.git_dir).map_err(broken)?,
                Anchor::open(&dirs.common_dir).map_err(broken)?,
            ),
        };
        Self::new(git_dir, common)
    }

    /// Opens the git directory of a submodule at `path` in this one; `None` if it has no `HEAD`.
    fn module(&self, path: &[u8]) -> Option<Result<Self, Problem>> {
        let open = || self.git_dir.beneath(path);
        open().ok()?.stat(b"HEAD").ok()?;
        let failed = |errno| Problem::of(path, errno);
        Some(open().map_err(failed).and_then(|git_dir| {
            let common = open().map_err(failed)?;
            Self::new(git_dir, common)
        }))
    }

    /// Opens the git directories of submodules below this one, nested ones included, and calls
    /// `visit` with the path of each, relative to this one. Below one that cannot be opened nothing
    /// is searched. Stops when `visit` returns false.
    ///
    /// # Errors
    /// The first error of `visit`.
    pub(super) fn each_module(
        &self,
        mut visit: impl FnMut(&Path, Result<&Self, &Problem>) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut waiting = vec![PathBuf::from("modules")];
        while let Some(below) = waiting.pop() {
            for name in child_dirs(&self.git_dir, below.as_os_str().as_bytes()) {
                let path = below.join(OsStr::from_bytes(&name));
                let Some(module) = self.module(path.as_os_str().as_bytes()) else {
                    // A submodule's name may contain slashes.
                    waiting.push(path);
                    continue;
                };
                if !visit(&path, module.as_ref())? {
                    return Ok(());
                }
                if module.is_ok() {
                    waiting.push(path.join("modules"));
                }
            }
        }
        Ok(())
    }

    fn new(git_dir: Anchor, common: Anchor) -> Result<Self, Problem> {
        let stat =
            |dir: &Anchor| rustix::fs::fstat(dir).map_err(|errno| Problem::of(b".git", errno));
        let (own, shared) = (stat(&git_dir)?, stat(&common)?);
        for dir in [&b"refs"[..], b"objects"] {
            common
                .dir(dir)
                .map_err(|errno| Problem::of_dir(&common, dir, errno))?;
        }
        Ok(Self {
            git_dir,
            common,
            identity: (own.st_dev, own.st_ino),
            is_linked: (own.st_dev, own.st_ino) != (shared.st_dev, shared.st_ino),
        })
    }

    /// Checks that the files that git needs have the right type.
    pub(super) fn check(&self) -> Result<(), Problem> {
        for (dir, name) in [
            (&self.git_dir, &b"HEAD"[..]),
            (&self.git_dir, b"index"),
            (&self.common, b"config"),
            (&self.common, b"packed-refs"),
        ] {
            match dir.file(name) {
                Err(Errno::NOENT) if name != b"HEAD" => {}
                Err(errno) => return Err(Problem::of(name, errno)),
                Ok(_) => {}
            }
        }
        Ok(())
    }
}

/// Reads a regular file; `None` if it does not exist.
///
/// # Errors
/// If it is not a regular file, is too long, or cannot be read.
pub(super) fn read(
    dir: &Anchor,
    path: &[u8],
    max_bytes: u64,
) -> Result<Option<(Vec<u8>, Stat)>, Problem> {
    let (mut file, stat) = match dir.file(path) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(Problem::of(path, errno)),
    };
    let too_long = || Problem::new(path, TOO_LONG);
    let size = u64::try_from(stat.st_size).map_err(|_| too_long())?;
    if size > max_bytes {
        return Err(too_long());
    }
    let mut content = Vec::with_capacity(size as usize + 1);
    let read = file.by_ref().take(max_bytes + 1).read_to_end(&mut content);
    read.map_err(|_| Problem::new(path, "cannot be read"))?;
    if content.len() as u64 > max_bytes {
        return Err(too_long());
    }
    Ok(Some((content, stat)))
}

/// Reads an optional file; `None` if it does not exist or [`read`] fails.
pub(super) fn read_optional(dir: &Anchor, path: &[u8], max_bytes: u64) -> Option<(Vec<u8>, Stat)> {
    read(dir, path, max_bytes).ok().flatten()
}

/// Reads the end of a file, starting at the beginning of a line.
pub(super) fn read_tail(dir: &Anchor, path: &[u8], max_bytes: u64) -> Option<(Vec<u8>, Stat)> {
    let (mut file, stat) = dir.file(path).ok()?;
    let size = u64::try_from(stat.st_size).ok()?;
    let begin = size.saturating_sub(max_bytes);
    file.seek(SeekFrom::Start(begin)).ok()?;
    let mut content = Vec::new();
    file.take(max_bytes).read_to_end(&mut content).ok()?;
    if begin > 0 {
        let end = content.iter().position(|byte| *byte == b'\n')?;
        content.drain(..=end);
    }
    Some((content, stat))
}

/// Returns names and types of the entries of a directory, sorted; none if it cannot be read.
pub(super) fn entries(dir: &Anchor, path: &[u8]) -> Vec<(Vec<u8>, FileType)> {
    let mut found = Vec::new();
    let Ok(opened) = dir.dir(path) else {
        return found;
    };
    let _ = read_names::<Errno>(&opened, |name, kind| {
        let kind = match kind {
            FileType::Unknown => crate::beneath::stat_at(opened.as_fd(), name)
                .map_or(FileType::Unknown, |stat| {
                    FileType::from_raw_mode(stat.st_mode)
                }),
            kind => kind,
        };
        found.push((name.to_vec(), kind));
        Ok(())
    });
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Returns the names of the directories in a directory.
fn child_dirs(dir: &Anchor, path: &[u8]) -> Vec<Vec<u8>> {
    let found = entries(dir, path).into_iter();
    found
        .filter(|(_, kind)| *kind == FileType::Directory)
        .map(|(name, _)| name)
        .collect()
}

/// Returns the names of the regular files in a directory.
pub(super) fn child_files(dir: &Anchor, path: &[u8]) -> Vec<Vec<u8>> {
    let found = entries(dir, path).into_iter();
    found
        .filter(|(_, kind)| *kind == FileType::RegularFile)
        .map(|(name, _)| name)
        .collect()
}

pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, b"/", name].concat()
}

/// Converts a path of bytes to a [`std::path::Path`].
pub(super) fn as_path(path: &[u8]) -> &std::path::Path {
    std::path::Path::new(OsStr::from_bytes(path))
}
