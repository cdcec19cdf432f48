//! Refresh of a running sandbox's view of files that the host has replaced below its overlays.
//!
//! An overlay caches the names that it has looked up: if the host replaces a file by rename, such a
//! name still leads to the old one. Reconfiguring the file system without any option drops all
//! names that no process holds open. A separate process does it, the guest program started as
//! `refresh`, in the sandbox's user and mount namespaces, so that the guest needs no capability. It
//! looks up mount points and the requested paths only, and follows no link.

use crate::channel;
use crate::launch::{Init, LaunchError, receive_answer};
use crate::mount;
use crate::program;
use crate::stage0::{Context as _, FailedStep, ProcessExit};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::fsconfig_reconfigure;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// First argument of the guest program that makes it refresh overlays.
pub const MODE: &str = "refresh";

/// State of a path, detailed enough to distinguish an old version from a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathState {
    /// The path does not exist.
    Absent,
    /// A regular file or a link.
    File {
        /// Length in bytes.
        size: u64,
        /// Time of the last change of its content: seconds since the epoch.
        mtime_s: i64,
        /// Time of the last change of its content: nanoseconds within the second.
        mtime_ns: u64,
    },
    /// Another kind of file. Holds the type bits of its mode.
    Other(u32),
    /// The path cannot be examined.
    Unknown,
}

impl PathState {
    /// Returns the state of `path` below a directory, following no link.
    pub fn look(dir: impl AsFd, path: &Path) -> Self {
        let found = rustix::fs::openat2(
            dir,
            path,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        );
        let stat = match found.and_then(rustix::fs::fstat) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => return Self::Absent,
            Err(_) => return Self::Unknown,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => Self::File {
                size: stat.st_size as u64,
                mtime_s: stat.st_mtime,
                mtime_ns: stat.st_mtime_nsec as u64,
            },
            kind => Self::Other(kind.as_raw_mode()),
        }
    }
}

/// Request for a refresh. Carries the sandbox's user and mount namespaces.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    overlays: Vec<Vec<u8>>,
    paths: Vec<Vec<u8>>,
}

/// Drops the cached names of a sandbox's overlays at these mount points, and returns the states of
/// `paths` below the first of them. Mounts that are no overlay are left alone. `program` is the
/// guest program.
///
/// # Errors
/// [`LaunchError`]; some of the overlays may have been refreshed.
pub fn refresh(
    program: &Path,
    init: &Init,
    overlays: &[PathBuf],
    paths: &[&Path],
    deadline: Duration,
) -> Result<Vec<PathState>, LaunchError> {
    let started = Instant::now();
    let (process, link) = program::start(program, &[MODE]).map_err(LaunchError::Spawn)?;
    {
        let spaces = init.spaces();
        let spaces = spaces.as_ref().ok_or(LaunchError::Vanished)?;
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let order = Order {
            overlays: overlays.iter().map(|path| bytes(path)).collect(),
            paths: paths.iter().map(|path| bytes(path)).collect(),
        };
        let fds = [spaces.user.as_fd(), spaces.mount.as_fd()];
        channel::send(&link, &order, &fds).map_err(LaunchError::Spawn)?;
    }
    let answer: Result<Vec<PathState>, FailedStep> =
        receive_answer(&process, &link, started, deadline)?;
    answer.map_err(LaunchError::Step)
}

/// Carries out the refresh that is requested on descriptor 0, and replies there.
///
/// Preconditions: the process has one thread, was started for this, and has opened no descriptor.
pub fn run() -> ProcessExit {
    let Some((control, order, [user, mounts])) = channel::take_order::<Order, 2>() else {
        return ProcessExit(1);
    };
    let answer = refresh_inside(&order, &user, &mounts);
    ProcessExit(i32::from(channel::send(&control, &answer, &[]).is_err()))
}

fn refresh_inside(
    order: &Order,
    user: &OwnedFd,
    mounts: &OwnedFd,
) -> Result<Vec<PathState>, FailedStep> {
    // The user namespace comes first: only in it does this process have the right to enter the
    // other.
    move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))
        .cannot("enter the sandbox's user namespace")?;
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))
        .cannot("enter the sandbox's mount namespace")?;
    let root = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", root, Mode::empty()).cannot("open the sandbox's root")?;
    let mut top = None;
    for path in &order.overlays {
        let at = mount::open_target(&root, Path::new(OsStr::from_bytes(path)))
            .cannot("open a mount point of the sandbox")?;
        if is_overlay(&at).cannot("look at an overlay")? {
            let context = mount::pick(&at).cannot("open an overlay to reconfigure it")?;
            fsconfig_reconfigure(context.as_fd()).cannot("reconfigure an overlay")?;
        }
        top.get_or_insert(at);
    }
    let Some(top) = top else {
        return Ok(Vec::new());
    };
    let paths = order.paths.iter();
    Ok(paths
        .map(|path| PathState::look(&top, Path::new(OsStr::from_bytes(path))))
        .collect())
}

fn is_overlay(at: &OwnedFd) -> Result<bool, Errno> {
    const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;
    Ok(rustix::fs::fstatfs(at)?.f_type as u64 == OVERLAYFS_SUPER_MAGIC)
}
