//! Disk usage of a directory tree that a sandbox wrote.
//!
//! The tree is hostile. The walk goes by descriptor, never follows links, uses an explicit stack
//! and bounds depth and entries. A directory that the caller may not list fails the walk; it is
//! never counted as empty. An ordinary user may then have a process walk the tree that first enters
//! the sandbox's user namespace ([`measure_inside`]), where it may read all files that the sandbox
//! wrote.

use crate::channel;
use crate::launch::{Init, LaunchError, receive_answer};
use crate::program;
use crate::stage0::ProcessExit;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::path::Path;
use std::time::{Duration, Instant};

/// First argument of the guest program that makes it walk a tree.
pub const MODE: &str = "usage";

/// Maximum number of entries that are visited.
pub const MAX_ENTRIES: u64 = glovebox_spec::MOST_FILES;
/// Maximum depth. Each level costs the walk two descriptors while it is open.
pub const MAX_DEPTH: usize = 200;

/// Result of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeUsage {
    /// The whole tree was walked.
    Whole {
        /// Size in bytes.
        bytes: u64,
        /// Number of names. A file with two names is counted twice.
        entries: u64,
    },
    /// The tree has more bytes than the bound.
    Over,
    /// The tree has more entries than the bound.
    TooManyEntries,
    /// The tree is deeper than [`MAX_DEPTH`].
    TooDeep,
    /// A part of the tree could not be read. Holds the errno.
    Unseen(i32),
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Bounds of a walk.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct TreeBounds {
    /// Maximum size in bytes.
    pub bytes: u64,
    /// Maximum number of names.
    pub entries: u64,
}

impl TreeBounds {
    /// Returns bounds with this size and the maximum number of entries.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self {
            bytes,
            entries: MAX_ENTRIES,
        }
    }
}

/// Usage of an empty tree.
const NOTHING: TreeUsage = TreeUsage::Whole {
    bytes: 0,
    entries: 0,
};

/// Adds up the blocks below the directory `root` until `max_bytes` is exceeded. A missing directory
/// has no usage.
pub fn measure(root: &Path, max_bytes: u64) -> TreeUsage {
    measure_within(root, TreeBounds::of_bytes(max_bytes))
}

/// Does the same as [`measure`], until one of two bounds is exceeded.
pub fn measure_within(root: &Path, bounds: TreeBounds) -> TreeUsage {
    match rustix::fs::open(root, DIRECTORY, Mode::empty()) {
        Ok(top) => measure_below(top, bounds, UnlistedDirectory::Unseen),
        Err(Errno::NOENT) => NOTHING,
        Err(errno) => TreeUsage::Unseen(errno.raw_os_error()),
    }
}

/// Does the same for display. Directories that the caller may not list count as empty, such as
/// those that the kernel keeps in an overlay's work directory.
pub fn measure_visible(root: &Path) -> TreeUsage {
    match rustix::fs::open(root, DIRECTORY, Mode::empty()) {
        Ok(top) => measure_below(
            top,
            TreeBounds::of_bytes(u64::MAX),
            UnlistedDirectory::Empty,
        ),
        Err(Errno::NOENT | Errno::ACCESS) => NOTHING,
        Err(errno) => TreeUsage::Unseen(errno.raw_os_error()),
    }
}

/// Treatment of a directory that the caller may not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnlistedDirectory {
    /// The walk fails.
    Unseen,
    /// The directory counts as empty.
    Empty,
}

// TRUST: the tree is written by the sandbox, which may change it meanwhile.
fn measure_below(top: OwnedFd, bounds: TreeBounds, closed: UnlistedDirectory) -> TreeUsage {
    let unseen = |errno: Errno| TreeUsage::Unseen(errno.raw_os_error());
    let mut total = 0_u64;
    let mut entries = 0_u64;
    let mut stack = match Dir::read_from(&top) {
        Ok(reader) => vec![(top, reader)],
        Err(errno) => return unseen(errno),
    };
    loop {
        let depth = stack.len();
        let Some((dir, reader)) = stack.last_mut() else {
            return TreeUsage::Whole {
                bytes: total,
                entries,
            };
        };
        let entry = match reader.read() {
            Some(Ok(entry)) => entry,
            // A directory that was removed after it was opened has no entries.
            Some(Err(Errno::NOENT)) | None => {
                stack.pop();
                continue;
            }
            Some(Err(errno)) => return unseen(errno),
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        entries += 1;
        if entries > bounds.entries {
            return TreeUsage::TooManyEntries;
        }
        let stat = match rustix::fs::statat(&*dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(errno) => return unseen(errno),
        };
        // Count blocks, not lengths: a sparse file uses only its blocks. A hard link counts once
        // per name, so the result may be too large but never too small.
        total = total.saturating_add((stat.st_blocks as u64).saturating_mul(512));
        if total > bounds.bytes {
            return TreeUsage::Over;
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if depth >= MAX_DEPTH {
                return TreeUsage::TooDeep;
            }
            match open_below(dir, name) {
                Ok(Some(child)) => stack.push(child),
                Ok(None) => {}
                Err(Errno::ACCESS) if closed == UnlistedDirectory::Empty => {}
                Err(errno) => return unseen(errno),
            }
        }
    }
}

/// Opens a directory for reading. `None` if it is gone or is no longer a directory.
fn open_below(dir: &OwnedFd, name: &CStr) -> Result<Option<(OwnedFd, Dir)>, Errno> {
    match rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()) {
        Ok(child) => {
            let reader = Dir::read_from(&child)?;
            Ok(Some((child, reader)))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Request to walk a tree. Carries the sandbox's user namespace and the directory.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Order {
    bounds: TreeBounds,
}

/// Does the same as [`measure_within`], by a process in the user namespace of the sandbox of
/// `init`. That process may list directories that the sandbox's user has closed to itself.
/// `program` is the guest program.
///
/// # Errors
/// [`LaunchError`] if the process cannot be started or does not reply in time.
pub fn measure_inside(
    program: &Path,
    init: &Init,
    root: &Path,
    bounds: TreeBounds,
    deadline: Duration,
) -> Result<TreeUsage, LaunchError> {
    let started = Instant::now();
    let top = match rustix::fs::open(root, DIRECTORY, Mode::empty()) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(NOTHING),
        Err(errno) => return Ok(TreeUsage::Unseen(errno.raw_os_error())),
    };
    let (process, link) = program::start(program, &[MODE]).map_err(LaunchError::Spawn)?;
    {
        // The lock is held only while sending, because `Init::end` needs it.
        let spaces = init.spaces();
        let Some(spaces) = spaces.as_ref() else {
            return Ok(TreeUsage::Unseen(Errno::SRCH.raw_os_error()));
        };
        let fds = [spaces.user.as_fd(), top.as_fd()];
        channel::send(&link, &Order { bounds }, &fds).map_err(LaunchError::Spawn)?;
    }
    receive_answer(&process, &link, started, deadline)
}

/// Walks the tree that is received on descriptor 0, and replies there.
///
/// Preconditions: the process has one thread, was started for this, and has opened no descriptor.
pub fn run() -> ProcessExit {
    let Some((control, order, [user, top])) = channel::take_order::<Order, 2>() else {
        return ProcessExit(1);
    };
    let usage = match move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User)) {
        Ok(()) => measure_below(top, order.bounds, UnlistedDirectory::Unseen),
        Err(errno) => TreeUsage::Unseen(errno.raw_os_error()),
    };
    ProcessExit(i32::from(channel::send(&control, &usage, &[]).is_err()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn blocks_are_counted_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/f"), vec![1_u8; 100_000]).unwrap();
        symlink("/", dir.path().join("out")).unwrap();
        let sparse = fs::File::create(dir.path().join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let TreeUsage::Whole { bytes, entries } = measure(dir.path(), 1 << 30) else {
            panic!("over")
        };
        assert_eq!(entries, 4);
        let few = TreeBounds {
            bytes: 1 << 30,
            entries: 3,
        };
        assert_eq!(measure_within(dir.path(), few), TreeUsage::TooManyEntries);
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert_eq!(measure(dir.path(), 50_000), TreeUsage::Over);
        assert_eq!(measure(&dir.path().join("no-such"), 0), NOTHING);
        let file = dir.path().join("a/f");
        assert_eq!(measure(&file, 0), TreeUsage::Unseen(libc::ENOTDIR));
    }

    #[test]
    fn what_cannot_be_listed_is_not_empty() {
        if rustix::process::geteuid().is_root() {
            // Root can list every directory; tests/escape covers an ordinary user.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(
            measure(dir.path(), 1 << 30),
            TreeUsage::Unseen(libc::EACCES)
        );
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    }
}
