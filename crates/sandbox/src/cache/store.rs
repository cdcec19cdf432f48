//! Files of kept caches: location, index and locks.

use super::sources::ChangedSource;
use crate::fault;
use crate::state::layout::{Layout, open_dir};
use crate::state::sandbox_dir::{read_json, write_json};
use crate::state::trash;
use glovebox_proto::{Code, Fault};
use glovebox_spec::json_path;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum total size of all kept caches, in bytes. The least recently used projects are removed
/// first.
pub(crate) const MAX_BYTES: u64 = 20 << 30;
/// Maximum size of the caches of one project, in bytes. A project that exceeds it begins with empty
/// caches.
pub(crate) const MAX_PROJECT_BYTES: u64 = 10 << 30;

/// Maximum size of the caches of one user of a server, in bytes, so that one user cannot evict the
/// caches of another.
pub(crate) const MAX_OWNER_BYTES: u64 = 5 << 30;

const VERSION: u32 = 1;
const FILE: &str = "cache.json";
/// Lock of the one sandbox that adds to the caches.
pub(crate) const WRITER: &str = "writer.lock";
/// Shared lock of every sandbox that has layers of the caches mounted.
pub(crate) const USERS: &str = "users.lock";

/// Content of `cache.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Index {
    pub(super) version: u32,
    /// Directory of the project.
    #[serde(with = "json_path")]
    pub(crate) project: PathBuf,
    /// User of a server that owns the caches. `None` for the user of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// Time at which a sandbox that adds to them last started or ended, in milliseconds since the
    /// Unix epoch.
    pub(crate) used_unix_ms: u64,
    /// Layers, newest first.
    pub(crate) layers: Vec<CacheLayer>,
}

/// Layer that one sandbox left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CacheLayer {
    /// Name of its directory.
    pub(crate) id: String,
    /// First host id of the range that owns its files. `None` if they were not written by a sandbox
    /// of root.
    pub(crate) first_id: Option<u32>,
    /// Disk usage, in bytes.
    pub(crate) bytes: u64,
    /// Names of the caches of which it has a directory.
    pub(crate) names: Vec<String>,
    /// Time at which it was kept, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub(crate) kept_unix_ms: u64,
    /// Sources that the sandbox had changed. Empty without build output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<ChangedSource>,
}

impl Index {
    pub(crate) fn new(project: &Path, owner: Option<&str>) -> Self {
        Self {
            version: VERSION,
            project: project.to_owned(),
            owner: owner.map(str::to_owned),
            used_unix_ms: now_ms(),
            layers: Vec::new(),
        }
    }

    /// Returns the maximum size of these caches.
    pub(crate) const fn max_bytes(&self) -> u64 {
        match self.owner {
            Some(_) => MAX_OWNER_BYTES,
            None => MAX_PROJECT_BYTES,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.layers
            .iter()
            .fold(0, |sum, layer| layer.bytes.saturating_add(sum))
    }
}

pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// Key derivation context of the digests that name directories of a server's users.
const OWNER_CONTEXT: &str = "glovebox 2026-11 package caches of a user and a project";

/// Returns the directory of a project's caches, for the user of this machine or one user of a
/// server.
pub(crate) fn project_dir(layout: &Layout, project: &Path, owner: Option<&str>) -> PathBuf {
    let project = project.as_os_str().as_bytes();
    let digest = match owner {
        None => blake3::hash(project),
        Some(owner) => {
            // The context and the length prefix make sure that no other pair and no project alone
            // has this digest.
            let mut hasher = blake3::Hasher::new_derive_key(OWNER_CONTEXT);
            hasher.update(&(owner.len() as u64).to_le_bytes());
            hasher.update(owner.as_bytes());
            hasher.update(project).finalize()
        }
    };
    layout.caches().join(&digest.to_hex()[..32])
}

/// Reads the index of the caches in `dir`. `None` if none was ever written.
pub(crate) fn read(dir: &Path) -> Result<Option<Index>, Fault> {
    let path = dir.join(FILE);
    let corrupt = |why: &str| {
        Fault::failed(Code::Io, format!("{} is corrupt: {why}", path.display()))
            .remedy("`glovebox cache prune` removes it; programs fetch again what they need")
    };
    match read_json::<Index>(&path) {
        Ok(index) if index.version != VERSION => Err(corrupt("another glovebox wrote it")),
        // TRUST: the names become directories, so they must not lead elsewhere.
        Ok(index) if !index.layers.iter().all(is_plain) => Err(corrupt("a name is none")),
        Ok(index) => Ok(Some(index)),
        Err(fault) if fault.code == Code::NotFound => Ok(None),
        Err(fault) => Err(corrupt(&fault.message)),
    }
}

fn is_plain(layer: &CacheLayer) -> bool {
    let is_word = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    is_word(&layer.id) && layer.names.iter().all(|name| is_word(name))
}

pub(crate) fn write(dir: &Path, index: &Index) -> Result<(), Fault> {
    write_json(&dir.join(FILE), index)
}

/// Opens a lock file of the caches in `dir`, without locking it. Creates it if it is missing.
pub(crate) fn open_lock(dir: &Path, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(open_dir(dir)?, name, flags, Mode::RUSR | Mode::WUSR)
}

/// Tries to take a lock. Returns false if another process holds it. A child process that another
/// thread is starting has a copy of every lock until it executes its program, so the attempt is
/// repeated a few times.
pub(crate) fn try_lock(lock: &OwnedFd, operation: FlockOperation) -> Result<bool, Errno> {
    const TURNS: usize = 5;
    const PAUSE: Duration = Duration::from_millis(2);
    for turn in 1..=TURNS {
        match flock(lock, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if turn < TURNS => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(false)
}

/// Returns true if the lock is still the file in `dir`, so no other process has removed the caches
/// since it was opened.
pub(crate) fn is_in_place(lock: &OwnedFd, dir: &Path, name: &str) -> bool {
    let (Ok(ours), Ok(there)) = (
        rustix::fs::fstat(lock),
        rustix::fs::statat(CWD, dir.join(name), AtFlags::SYMLINK_NOFOLLOW),
    ) else {
        return false;
    };
    (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
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

/// Takes both locks of the caches in `dir` exclusively. `None` if they are in use or gone.
pub(crate) fn lock_alone(dir: &Path) -> Result<Option<[OwnedFd; 2]>, Fault> {
    let broken = |errno| fault::io("lock", dir, errno);
    let mut held = Vec::with_capacity(2);
    for name in [WRITER, USERS] {
        let lock = match open_lock(dir, name) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(broken)?,
        };
        if !try_lock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(broken)?
            || !is_in_place(&lock, dir, name)
        {
            return Ok(None);
        }
        held.push(lock);
    }
    Ok(<[OwnedFd; 2]>::try_from(held).ok())
}

/// Returns the directories of all projects that have caches, sorted.
pub(crate) fn project_dirs(layout: &Layout) -> Result<Vec<PathBuf>, Fault> {
    let room = layout.caches();
    let entries = fs::read_dir(&room).map_err(|error| fault::io("list", &room, error))?;
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.sort();
    Ok(dirs)
}

/// Returns the directories that the index of the caches in `dir` does not name. Precondition: both
/// locks are held exclusively.
fn garbage(dir: &Path) -> Result<Vec<PathBuf>, Fault> {
    let layers = read(dir)?.map(|index| index.layers).unwrap_or_default();
    let ids = layers.iter().map(|layer| layer.id.as_str()).collect();
    let mut found = unnamed(dir, &ids)?;
    for layer in &layers {
        let names = layer.names.iter().map(String::as_str).collect();
        found.extend(unnamed(&dir.join(&layer.id), &names)?);
    }
    Ok(found)
}

/// Returns the directories in `dir` with other names than these.
fn unnamed(dir: &Path, named: &HashSet<&str>) -> Result<Vec<PathBuf>, Fault> {
    let entries = fs::read_dir(dir).map_err(|error| fault::io("list", dir, error))?;
    Ok(entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_none_or(|name| !named.contains(name))
        })
        .map(|entry| entry.path())
        .collect())
}

/// Removes the directories that the index of the caches in `dir` does not name. Precondition: both
/// locks are held exclusively. The next call finds those that cannot be removed now.
pub(crate) fn collect_garbage(layout: &Layout, dir: &Path) {
    for path in garbage(dir).unwrap_or_default() {
        discard(layout, &path);
    }
}

/// Removes a directory of the caches. A sweep finds the remains if that fails.
pub(crate) fn discard(layout: &Layout, path: &Path) {
    if let Ok(Some(place)) = trash::discard(layout, path) {
        let _ = trash::remove(layout, &place);
    }
}

/// Finds the directories that sandboxes left half kept when they died, and removes them if
/// `is_removing`. Skips caches that are in use.
pub(crate) fn sweep(layout: &Layout, is_removing: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in project_dirs(layout).unwrap_or_default() {
        let Ok(Some(_locks)) = lock_alone(&dir) else {
            continue;
        };
        let garbage = garbage(&dir).unwrap_or_default();
        if is_removing {
            for path in &garbage {
                discard(layout, path);
            }
        }
        found.extend(garbage);
    }
    found
}
