//! Mounts by descriptor. Nothing here names a mount point by a path that another process could
//! replace in the meantime.

use crate::sys::mount_attr::{self, Attributes};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick, move_mount,
    open_tree,
};
use std::path::{Component, Path};

/// Option of a new file system.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FsOption<'a> {
    /// A bare word.
    Flag(&'a str),
    /// A key with a value.
    Value(&'a str, &'a str),
}

/// Creates a new file system, detached. The mount is always `nosuid`.
pub(crate) fn create(
    kind: &str,
    options: &[FsOption<'_>],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", "glovebox")?;
    for option in options {
        match option {
            FsOption::Flag(key) => fsconfig_set_flag(&context, *key)?,
            FsOption::Value(key, value) => fsconfig_set_string(&context, *key, *value)?,
        }
    }
    fsconfig_create(&context)?;
    fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes | MountAttrFlags::MOUNT_ATTR_NOSUID,
    )
}

/// Opens the file system of `at` for reconfiguration.
pub(crate) fn pick(at: impl AsFd) -> Result<OwnedFd, Errno> {
    fspick(
        at,
        "",
        FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH,
    )
}

/// Returns a detached copy of the mount at `path`, an absolute path without symbolic links.
pub(crate) fn copy_path(path: &Path, is_recursive: bool) -> Result<OwnedFd, Errno> {
    let found = rustix::fs::openat2(
        CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )?;
    copy(&found, "", is_recursive)
}

/// Returns a detached copy of the mount at `path` below `at` (of `at` itself if `path` is empty).
pub(crate) fn copy(at: impl AsFd, path: &str, is_recursive: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW
        | OpenTreeFlags::AT_EMPTY_PATH;
    flags.set(OpenTreeFlags::AT_RECURSIVE, is_recursive);
    open_tree(at, path, flags)
}

/// Attaches a detached mount to the directory or file that `target` refers to.
pub(crate) fn attach(mount: impl AsFd, target: impl AsFd) -> Result<(), Errno> {
    move_mount(
        mount,
        "",
        target,
        "",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
}

/// Attaches a detached mount over the current root, where absolute paths do not reach it.
pub(crate) fn attach_over_root(mount: impl AsFd) -> Result<(), Errno> {
    move_mount(mount, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Restricts a mount: without devices, and optionally read-only and with translated owners.
pub(crate) fn narrow(
    mount: impl AsFd,
    is_read_only: bool,
    idmap: Option<BorrowedFd<'_>>,
    is_recursive: bool,
) -> Result<(), Errno> {
    mount_attr::set(
        mount,
        Attributes {
            is_read_only,
            is_without_devices: true,
            idmap,
        },
        is_recursive,
    )
}

/// Makes a bound device node `nosuid`. It must stay usable as a device, so no other attribute is
/// set.
pub(crate) fn keep_device(mount: impl AsFd) -> Result<(), Errno> {
    mount_attr::set(mount, Attributes::default(), false)
}

/// Opens `target` below `root` for attaching. Symbolic links in it are refused, not followed.
pub(crate) fn open_target(root: impl AsFd, target: &Path) -> Result<OwnedFd, Errno> {
    let relative = target.strip_prefix("/").unwrap_or(target);
    if relative.as_os_str().is_empty() {
        return rustix::fs::openat(root, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    }
    rustix::fs::openat2(
        root,
        relative,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

/// Opens `target` below `root` and makes missing parts: directories, and a file at the end if the
/// source is one.
pub(crate) fn make_target(
    root: impl AsFd,
    target: &Path,
    source: impl AsFd,
) -> Result<OwnedFd, Errno> {
    match open_target(&root, target) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    let is_dir = FileType::from_raw_mode(rustix::fs::fstat(source)?.st_mode) == FileType::Directory;
    let relative = target.strip_prefix("/").unwrap_or(target);
    let mut at = rustix::fs::openat(root, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let mut parts = relative.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else {
            return Err(Errno::INVAL);
        };
        if parts.peek().is_none() && !is_dir {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            return rustix::fs::openat(&at, name, flags, Mode::from_raw_mode(0o644));
        }
        match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = rustix::fs::openat(&at, name, flags, Mode::empty())?;
    }
    Ok(at)
}

/// Returns true if `fd` refers to a directory.
pub(crate) fn is_directory(fd: impl AsFd) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(fd, "", AtFlags::EMPTY_PATH)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
