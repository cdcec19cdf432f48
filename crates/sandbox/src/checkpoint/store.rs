//! The room of frozen layers, shared by every sandbox of the state directory.
//!
//! A layer is used while a file of any sandbox names it, and garbage afterwards. Garbage is looked
//! for with the room locked; whoever puts a layer there before a file names it holds the same lock,
//! shared. When any sandbox's files cannot be read, nothing is removed.

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

/// The part of a layer that belongs to `/`.
pub(crate) const ROOT: &str = "root";
/// The part that belongs to the workspace.
pub(crate) const WORKSPACE: &str = "workspace";
/// Both.
pub(crate) const PARTS: [&str; 2] = [ROOT, WORKSPACE];

/// A lock on the room; free when dropped.
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

/// Keeps layers that no file names yet from being taken for garbage.
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

/// A name that no layer has.
pub(crate) fn new_id() -> String {
    random_hex()
}

/// Where a layer is.
pub(crate) fn layer(layout: &Layout, id: &str) -> PathBuf {
    layout.layers().join(id)
}

/// Where one part of a layer is.
pub(crate) fn part(layout: &Layout, id: &str, part: &str) -> PathBuf {
    layer(layout, id).join(part)
}

/// Makes a directory that only we can enter; one that is there is fine.
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

/// Removes the layers that no sandbox uses. What cannot be decided or removed now stays for the next
/// time.
pub(crate) fn collect_garbage(layout: &Layout) -> Result<(), Fault> {
    if ids(layout)?.is_empty() {
        return Ok(());
    }
    let lock = open_lock(layout)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    // Listed before the files are read: a layer that appears meanwhile is no candidate.
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
    // Out of the room they are out of everybody's way.
    drop(lock);
    for place in places {
        trash::remove(layout, &place)?;
    }
    Ok(())
}
