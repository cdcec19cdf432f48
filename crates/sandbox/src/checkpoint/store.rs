//! Storage of frozen layers, shared by all sandboxes of the state directory.
//!
//! A layer is in use while a file of any sandbox names it, and garbage afterwards. Garbage is
//! collected under an exclusive lock. A process that creates a layer before a file names it holds
//! the same lock, shared. If the files of any sandbox cannot be read, nothing is removed.

use super::stack;
use crate::fault;
use crate::spec::name::random_hex;
use crate::state::layout::Layout;
use crate::state::trash;
use glovebox_proto::Fault;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Name of the part of a layer that belongs to `/`.
pub(crate) const ROOT: &str = "root";
/// Name of the part of a layer that belongs to the workspace.
pub(crate) const WORKSPACE: &str = "workspace";
/// Names of both parts.
pub(crate) const PARTS: [&str; 2] = [ROOT, WORKSPACE];

/// Lock on the storage, released when dropped.
#[derive(Debug)]
pub(crate) struct LayersLock {
    _lock: OwnedFd,
}

fn open_lock(layout: &Layout) -> Result<OwnedFd, Fault> {
    let path = layout.layers().join(".lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| fault::io("open", &path, errno))
}

/// Protects layers that no file names yet from the collection of garbage.
pub(crate) fn share(layout: &Layout) -> Result<LayersLock, Fault> {
    let lock = open_lock(layout)?;
    loop {
        match flock(&lock, FlockOperation::LockShared) {
            Ok(()) => return Ok(LayersLock { _lock: lock }),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(fault::io("lock", &layout.layers(), errno)),
        }
    }
}

/// Returns a random id for a new layer.
pub(crate) fn new_id() -> String {
    random_hex()
}

/// Returns the directory of a layer.
pub(crate) fn layer(layout: &Layout, id: &str) -> PathBuf {
    layout.layers().join(id)
}

/// Returns the directory of one part of a layer.
pub(crate) fn part(layout: &Layout, id: &str, part: &str) -> PathBuf {
    layer(layout, id).join(part)
}

/// Creates a directory that only this user can enter. Succeeds if it exists.
pub(crate) fn make_dir(path: &Path) -> Result<(), Fault> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(fault::io("make", path, error))
        }
        _ => Ok(()),
    }
}

fn ids(layout: &Layout) -> Result<Vec<String>, Fault> {
    let room = layout.layers();
    let entries = fs::read_dir(&room).map_err(|error| fault::io("list", &room, error))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect())
}

/// Removes the layers that no sandbox uses. Does nothing if the storage is locked. The next call
/// finds layers that cannot be removed now.
pub(crate) fn collect_garbage(layout: &Layout) -> Result<(), Fault> {
    if ids(layout)?.is_empty() {
        return Ok(());
    }
    let lock = open_lock(layout)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    // Listed before the files are read, so a layer that is created meanwhile is not a candidate.
    let candidates = ids(layout)?;
    let mut used = HashSet::new();
    let rooms = layout.sandboxes();
    let sandboxes = fs::read_dir(&rooms).map_err(|error| fault::io("list", &rooms, error))?;
    for sandbox in sandboxes {
        let sandbox = sandbox.map_err(|error| fault::io("list", &rooms, error))?;
        stack::add_references(&sandbox.path(), &mut used)?;
    }
    let mut places = Vec::new();
    for id in candidates.iter().filter(|id| !used.contains(*id)) {
        places.extend(trash::discard(layout, &layer(layout, id))?);
    }
    // In the trash they cannot be mistaken for layers, so the lock is not needed for removing them.
    drop(lock);
    for place in places {
        trash::remove(layout, &place)?;
    }
    Ok(())
}
