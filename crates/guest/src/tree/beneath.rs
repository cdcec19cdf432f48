//! Resolves paths below one directory: follows no link and never leads upwards.

use crate::fault;
use crate::files::{make_all, shown};
use glovebox_proto::{Code, Fault, limits};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::sync::Arc;

/// Maximum number of attempts if the kernel cannot resolve a path because of a concurrent rename.
const ATTEMPTS: usize = 16;

/// Directory of a tree request.
#[derive(Debug)]
pub(super) struct Root {
    fd: Arc<OwnedFd>,
    /// Directory opened last, by path: successive entries usually share it.
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
}

const DIRECTORY: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Root {
    /// Opens the directory. With `make`, creates it if it is missing.
    pub(super) fn open(path: &[u8], make: bool) -> Result<Self, Fault> {
        let failed = |errno| fault::file(errno, &format!("cannot open {}", shown(path)));
        if make {
            make_all(path).map_err(failed)?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        Ok(Self::of(fd))
    }

    /// Wraps an open directory.
    pub(super) fn of(fd: OwnedFd) -> Self {
        Self {
            fd: Arc::new(fd),
            last: None,
        }
    }

    /// Returns the directory at `path`; an empty path is the root itself.
    pub(super) fn dir(&mut self, path: &[u8]) -> Result<Arc<OwnedFd>, Errno> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.fd));
        }
        if let Some((last, fd)) = &self.last
            && last == path
        {
            return Ok(Arc::clone(fd));
        }
        let fd = Arc::new(open_beneath(self.fd.as_fd(), path, DIRECTORY)?);
        self.last = Some((path.to_vec(), Arc::clone(&fd)));
        Ok(fd)
    }

    /// Returns the parent directory of a path, and its last name.
    pub(super) fn parent<'p>(&mut self, path: &'p [u8]) -> Result<(Arc<OwnedFd>, &'p [u8]), Errno> {
        match path.iter().rposition(|&byte| byte == b'/') {
            None => Ok((Arc::clone(&self.fd), path)),
            Some(slash) => Ok((self.dir(&path[..slash])?, &path[slash + 1..])),
        }
    }

    /// Drops the cached directory, which may have been replaced.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

/// Returns a fault unless a path leads only downwards.
pub(super) fn check(path: &[u8]) -> Result<(), Fault> {
    let is_good = path.len() < limits::MAX_PATH_BYTES
        && !path.contains(&0)
        && path
            .split(|&byte| byte == b'/')
            .all(|name| !matches!(name, b"" | b"." | b".."));
    if is_good {
        return Ok(());
    }
    let message = format!("{} is not a path below a directory", shown(path));
    Err(Fault::failed(Code::InvalidArgument, message))
}

/// Opens a checked relative path without following any link.
pub(super) fn open_beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            // Kernels before 5.6 lack openat2(2), and the seccomp profile of an old container
            // runtime may refuse it.
            Err(Errno::NOSYS | Errno::PERM) => return walk(root, path, flags),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a path as [`open_beneath`] does, one component after another.
fn walk(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut at: Option<OwnedFd> = None;
    let mut names = path.split(|&byte| byte == b'/').peekable();
    while let Some(name) = names.next() {
        let dir = at.as_ref().map_or(root, AsFd::as_fd);
        let flags = if names.peek().is_some() {
            DIRECTORY
        } else {
            flags | OFlags::NOFOLLOW
        };
        at = Some(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    }
    at.ok_or(Errno::INVAL)
}

/// Opens a directory by its name in another one, without read access.
pub(super) fn open_dir(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())
}

/// Opens a directory for listing.
pub(super) fn open_names(dir: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(dir, c".", flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;

    fn code(dir: &std::path::Path, path: &str) -> Option<Errno> {
        let root = rustix::fs::openat(CWD, dir, DIRECTORY, Mode::empty()).unwrap();
        let [first, second] = [open_beneath, walk].map(|open| {
            let opened = open(root.as_fd(), path.as_bytes(), DIRECTORY);
            opened.err()
        });
        // A link in the middle is a loop to one, and no directory to the other.
        assert_eq!(first.is_some(), second.is_some(), "{path}");
        first
    }

    #[test]
    fn links_lead_nowhere() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("in/deep")).unwrap();
        std::fs::create_dir(temp.path().join("out")).unwrap();
        let inside = temp.path().join("in");
        std::os::unix::fs::symlink("../out", inside.join("up")).unwrap();
        std::os::unix::fs::symlink("deep", inside.join("across")).unwrap();
        assert_eq!(code(&inside, "deep"), None);
        for link in ["up", "across", "across/x", "up/x"] {
            assert!(code(&inside, link).is_some_and(|errno| errno != Errno::NOENT));
        }
        assert_eq!(code(&inside, "none"), Some(Errno::NOENT));
    }

    #[test]
    fn only_ways_down_are_paths() {
        for good in ["a", "a/b", "...", "a\n"] {
            assert!(check(good.as_bytes()).is_ok());
        }
        for bad in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a\0"] {
            assert!(check(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(check("x/".repeat(3000).as_bytes()).is_err());
    }
}
