//! Rule for the part of the host's `/etc` that a sandbox sees: settings of programs, but nothing
//! that concerns the machine alone.
//!
//! It lists the shown entries of `/etc`, and gives a reason for each path that is not shown. Shown
//! are regular files of root that everybody may read and only root may write, directories of root
//! that everybody may list, and links unchanged. Never shown are names of accounts, keys, mounts
//! and services (`names::NEVER`), and files with a line that looks like a secret ([`secrets`]). In
//! doubt a file is held back.

mod names;
mod secrets;

use names::is_never_shown;
pub use secrets::SecretKind;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Path of the host's directory.
pub(crate) const ETC: &str = "/etc";
/// Maximum size of a file, number of entries and total bytes that are shown, so that an unusual
/// `/etc` cannot fill the state directory.
const MAX_FILE_BYTES: u64 = 4 << 20;
const MAX_ENTRIES: usize = 20_000;
const MAX_BYTES: u64 = 64 << 20;

/// Mode bits: set-user-id and set-group-id; writable by group or others.
const SPECIAL_BITS: u32 = 0o6000;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Reason why a path below `/etc` is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldBackReason {
    /// Name of accounts, keys, mounts or services of the machine.
    Name,
    /// Owned by another user than root, not readable by all, writable by others, or not a file,
    /// directory or link.
    Permissions,
    /// Larger than the limit for copies.
    Size,
    /// Contains a line that looks like a secret.
    Secret(SecretKind),
}

/// Kind of an entry that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EtcEntryKind {
    Directory,
    /// `is_executable` is true if its owner, its group or others may execute it.
    File {
        is_executable: bool,
    },
    Link(PathBuf),
}

/// One entry below a directory like `/etc`.
#[derive(Debug, Clone)]
pub(crate) struct EtcEntry {
    /// Path relative to that directory.
    pub(crate) name: PathBuf,
    pub(crate) kind: EtcEntryKind,
}

/// Lists the shown entries of `etc` by names, owners and permissions: parents before their
/// children, sorted by name. Contents are examined later, by [`read_file`].
pub(crate) fn list(etc: &Path) -> Vec<EtcEntry> {
    let mut entries = Vec::new();
    let Ok(top) = fs::symlink_metadata(etc) else {
        return entries;
    };
    let mut bytes = 0;
    list_below(etc, Path::new(""), top.dev(), &mut entries, &mut bytes);
    entries
}

fn list_below(etc: &Path, dir: &Path, device: u64, entries: &mut Vec<EtcEntry>, bytes: &mut u64) {
    let Ok(found) = fs::read_dir(etc.join(dir)) else {
        return;
    };
    let mut names: Vec<_> = found.flatten().map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    for name in names {
        let name = dir.join(name);
        let path = etc.join(&name);
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        if entries.len() >= MAX_ENTRIES
            || meta.dev() != device
            || is_never_shown(&name)
            || judge_metadata(&meta).is_err()
        {
            continue;
        }
        let kind = if meta.is_symlink() {
            let Ok(target) = fs::read_link(&path) else {
                continue;
            };
            EtcEntryKind::Link(target)
        } else if meta.is_dir() {
            EtcEntryKind::Directory
        } else {
            *bytes += meta.len();
            if *bytes > MAX_BYTES {
                continue;
            }
            EtcEntryKind::File {
                is_executable: meta.mode() & 0o111 != 0,
            }
        };
        let is_dir = meta.is_dir();
        entries.push(EtcEntry {
            name: name.clone(),
            kind,
        });
        if is_dir {
            list_below(etc, &name, device, entries, bytes);
        }
    }
}

/// Checks owner, permissions, kind and size.
fn judge_metadata(meta: &Metadata) -> Result<(), HeldBackReason> {
    let mode = meta.mode();
    if meta.is_symlink() {
        return Ok(());
    }
    let is_plain = meta.uid() == 0 && mode & WRITABLE_BY_OTHERS == 0;
    let is_shown = if meta.is_dir() {
        is_plain && mode & 0o005 == 0o005
    } else {
        is_plain && meta.is_file() && mode & 0o004 != 0 && mode & SPECIAL_BITS == 0
    };
    if !is_shown {
        return Err(HeldBackReason::Permissions);
    }
    if meta.is_file() && meta.len() > MAX_FILE_BYTES {
        return Err(HeldBackReason::Size);
    }
    Ok(())
}

/// Reads a file if it may be shown. The open file is judged, because another file may take its name
/// meanwhile.
pub(crate) fn read_file(etc: &Path, name: &Path) -> Result<Vec<u8>, HeldBackReason> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = rustix::fs::openat(CWD, etc.join(name), flags, Mode::empty());
    let unreadable = HeldBackReason::Permissions;
    let file = File::from(opened.map_err(|_| unreadable)?);
    judge_metadata(&file.metadata().map_err(|_| unreadable)?)?;
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut content)
        .map_err(|_| unreadable)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(HeldBackReason::Size);
    }
    match secrets::find_secret(name, &content) {
        Some(kind) => Err(HeldBackReason::Secret(kind)),
        None => Ok(content),
    }
}

/// Returns a text that changes whenever the shown part of `etc` changes. It may change without
/// that: only names at the top are judged, because every start performs this walk.
pub(crate) fn stamp(etc: &Path) -> String {
    let (mut sum, mut left) = (0, MAX_ENTRIES);
    if let Ok(dir) = open_dir(CWD, etc) {
        add_directory(&dir, true, &mut sum, &mut left);
    }
    format!("{sum:x}")
}

/// Adds the identity of a directory and of all entries below it to `sum`. The order does not
/// matter.
fn add_directory(dir: &OwnedFd, is_top: bool, sum: &mut u64, left: &mut usize) {
    let Ok(entries) = rustix::fs::Dir::read_from(dir) else {
        return;
    };
    if let Ok(stat) = rustix::fs::fstat(dir) {
        *sum = sum.wrapping_add(identify(&stat));
    }
    for entry in entries.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let is_dot = name == "." || name == "..";
        if is_dot || *left == 0 || (is_top && is_never_shown(Path::new(name))) {
            continue;
        }
        *left -= 1;
        match entry.file_type() {
            // A link cannot be changed: replacing it changes the directory.
            FileType::Symlink => {}
            FileType::Directory => {
                if let Ok(below) = open_dir(dir.as_fd(), Path::new(name)) {
                    add_directory(&below, false, sum, left);
                }
            }
            _ => {
                let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
                if let Ok(stat) = found {
                    *sum = sum.wrapping_add(identify(&stat));
                }
            }
        }
    }
}

fn open_dir(at: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

/// Returns a number that identifies a file and its present content, mode and owner.
fn identify(stat: &Stat) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_size).hash(&mut hasher);
    (stat.st_ctime, stat.st_ctime_nsec).hash(&mut hasher);
    hasher.finish()
}

/// Paths of `/etc` that are shown in place, in a sandbox that cannot have copies.
#[derive(Debug, Default)]
pub(crate) struct ShownPaths {
    /// Directories that may be listed.
    pub(crate) dirs: Vec<PathBuf>,
    /// Files that may be read.
    pub(crate) files: Vec<PathBuf>,
}

/// Finds the paths of `/etc` that are shown in place. A link is left out: a process can follow it
/// if its target is shown.
pub(crate) fn list_paths() -> ShownPaths {
    let etc = Path::new(ETC);
    let mut shown = ShownPaths::default();
    for entry in list(etc) {
        match entry.kind {
            EtcEntryKind::Directory => shown.dirs.push(etc.join(entry.name)),
            EtcEntryKind::File { .. } if read_file(etc, &entry.name).is_ok() => {
                shown.files.push(etc.join(entry.name));
            }
            EtcEntryKind::File { .. } | EtcEntryKind::Link(_) => {}
        }
    }
    shown
}

/// Returns the reason why a host path below `/etc` is not shown. `None` if it is shown or does not
/// exist.
pub fn why_held_back(path: &Path) -> Option<HeldBackReason> {
    judge_path(Path::new(ETC), path.strip_prefix(ETC).ok()?).err()
}

fn judge_path(etc: &Path, name: &Path) -> Result<(), HeldBackReason> {
    let mut parents: Vec<&Path> = name.ancestors().skip(1).collect();
    parents.reverse();
    for part in parents.into_iter().chain([name]) {
        if is_never_shown(part) {
            return Err(HeldBackReason::Name);
        }
        let Ok(meta) = fs::symlink_metadata(etc.join(part)) else {
            return Ok(());
        };
        judge_metadata(&meta)?;
        if meta.is_file() {
            return read_file(etc, part).map(|_| ());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
