//! Removes files and whole trees, without recursion and with two descriptors at any depth.

use super::shown;
use crate::fault;
use glovebox_proto::{Fault, Reply};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Subdirectories remembered per pass over a directory. Few, so that depth costs little memory;
/// more than one, because another pass is slow on overlayfs.
const NOTED: usize = 64;

/// Flags for opening a directory that is to be emptied.
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Directory that is being emptied.
struct Level {
    /// Name of the directory in its parent.
    name: Vec<u8>,
    /// Identity of the parent, to recognise it on the way back.
    parent: Identity,
    /// Subdirectories found and not yet entered.
    pending: Vec<Vec<u8>>,
}

type Identity = (u64, u64);

fn identity(dir: &OwnedFd) -> Result<Identity, Errno> {
    let stat = rustix::fs::fstat(dir)?;
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}

/// Removes a file, link or directory; with `recursive`, a directory with everything in it. Stops at
/// the first entry that cannot be removed, or when `cancel` is set.
pub(crate) fn remove(path: &[u8], recursive: bool, cancel: &AtomicBool) -> Result<Reply, Fault> {
    let failed = |errno| fault::file(errno, &format!("cannot remove {}", shown(path)));
    match rustix::fs::unlinkat(CWD, path, AtFlags::empty()) {
        Ok(()) => return Ok(Reply::Done),
        // POSIX says EPERM for a directory, Linux says EISDIR.
        Err(errno @ (Errno::ISDIR | Errno::PERM)) => {
            let stat = rustix::fs::lstat(path).map_err(failed)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                return Err(failed(errno));
            }
        }
        Err(errno) => return Err(failed(errno)),
    }
    match rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) => return Ok(Reply::Done),
        Err(Errno::NOTEMPTY | Errno::EXIST) if recursive => {}
        Err(errno) => return Err(failed(errno)),
    }
    let dir = rustix::fs::open(path, DIRECTORY, Mode::empty()).map_err(failed)?;
    match empty(dir, cancel) {
        Ok(true) => {}
        Ok(false) => return Err(fault::cancelled()),
        Err((name, errno)) => {
            let what = format!(
                "cannot remove `{}` below {}",
                String::from_utf8_lossy(&name),
                shown(path)
            );
            return Err(fault::file(errno, &what));
        }
    }
    rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)
        .map(|()| Reply::Done)
        .map_err(failed)
}

/// Removes the directory `name` in `parent` with everything in it.
pub(crate) fn remove_all(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let dir = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?;
    empty(dir, &AtomicBool::new(false)).map_err(|(_, errno)| errno)?;
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Empties a directory that is open for reading. Returns false if cancelled. An error carries the
/// name of the entry that failed.
fn empty(mut dir: OwnedFd, cancel: &AtomicBool) -> Result<bool, (Vec<u8>, Errno)> {
    let mut levels: Vec<Level> = Vec::new();
    let mut root_pending = Vec::new();
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let pending = levels
            .last_mut()
            .map_or(&mut root_pending, |level| &mut level.pending);
        if pending.is_empty() {
            *pending = sweep(&dir)?;
        }
        if let Some(name) = pending.pop() {
            // Most directories are empty at this point, or were removed by another process.
            match rustix::fs::unlinkat(&dir, name.as_slice(), AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(errno) => return Err((name, errno)),
            }
            let enter = || {
                let parent = identity(&dir)?;
                Ok((
                    parent,
                    rustix::fs::openat(&dir, name.as_slice(), DIRECTORY, Mode::empty())?,
                ))
            };
            match enter() {
                Ok((parent, child)) => {
                    dir = child;
                    levels.push(Level {
                        name,
                        parent,
                        pending: Vec::new(),
                    });
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err((name, errno)),
            }
            continue;
        }
        let Some(level) = levels.pop() else {
            return Ok(true);
        };
        // The parent is compared: another process may have moved this directory elsewhere, and
        // nothing may be removed there.
        let back = rustix::fs::openat(&dir, c"..", DIRECTORY, Mode::empty()).and_then(|up| {
            if identity(&up)? == level.parent {
                Ok(up)
            } else {
                Err(Errno::BUSY)
            }
        });
        dir = back.map_err(|errno| (level.name.clone(), errno))?;
        match rustix::fs::unlinkat(&dir, level.name.as_slice(), AtFlags::REMOVEDIR) {
            // NOTEMPTY: an entry was added again. The next pass over the parent finds the
            // directory.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err((level.name, errno)),
        }
    }
}

/// Removes everything in `dir` that is not a directory. Returns up to `NOTED` of the directories.
fn sweep(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, (Vec<u8>, Errno)> {
    let mut found = Vec::new();
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))
        .map_err(|errno| (b".".to_vec(), errno))?;
    let mut room = [MaybeUninit::uninit(); 16 << 10];
    let mut entries = RawDir::new(dir, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(|errno| (b".".to_vec(), errno))?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if entry.file_type() != FileType::Directory {
            match rustix::fs::unlinkat(dir, entry.file_name(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                // A file system that reports no kinds, or an entry that was replaced.
                Err(Errno::ISDIR | Errno::PERM) if is_directory(dir, name) => {}
                Err(errno) => return Err((name.to_vec(), errno)),
            }
        }
        found.push(name.to_vec());
        if found.len() == NOTED {
            break;
        }
    }
    Ok(found)
}

fn is_directory(dir: &OwnedFd, name: &[u8]) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
