//! Earlier versions: files of the user that an apply overwrites or deletes and that git does not
//! have, kept for a day.
//!
//! ```text
//! STATE/undo/ID/
//!   record   the project, the time, and for each path its old state and the one that the apply
//!            wrote
//!   N        the content of a file
//! ```
//!
//! The versions are copied and on the disk before the first file of the project changes, so they
//! exist however the apply ends. They are restored as an ordinary change set: a path that changed
//! after the apply is a conflict, and one that the apply did not change is no change.

use super::{CollectedChanges, Destination};
use crate::base::{CleanFiles, Kind, Signature};
use crate::beneath::{Anchor, digest, io, write_sparse};
use crate::contents::unreadable;
use crate::git::{git_dir, owned_working_tree};
use crate::{Change, ChangeKind, ChangeSet, Contents, EarlierVersions, Node, Plan, RelPath, Step};
use glovebox_proto::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Name of the directory below the state directory.
const UNDO: &str = "undo";
const RECORD: &str = "record";
const VERSION: u32 = 1;
/// Time for which versions are kept.
const KEPT: Duration = Duration::from_hours(24);
/// Maximum size of the versions of one apply, and of all applies, in bytes.
const MAX_APPLY_BYTES: u64 = 2 << 30;
const MAX_ALL_BYTES: u64 = 20 << 30;
/// Maximum size of a record that is read, in bytes.
const MAX_RECORD_BYTES: u64 = 256 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    #[serde(with = "serde_bytes")]
    project: Vec<u8>,
    made_unix_s: u64,
    versions: Vec<Version>,
}

/// State of a path before an apply, and the state that the apply wrote.
#[derive(Debug, Serialize, Deserialize)]
struct Version {
    path: RelPath,
    /// Number of the file with the content; `None` for a link.
    slot: Option<u32>,
    old: Node,
    /// Permission bits of the old file.
    mode: u32,
    /// Node that the apply wrote; `None` if it removed the path.
    made: Option<Node>,
}

/// Copies the files and links that a plan overwrites or deletes and that git does not have. `None`
/// if there are none.
///
/// # Errors
/// Any failure to copy. Nothing is kept then.
pub fn keep_earlier(
    destination: &Destination,
    plan: &Plan,
    state_dir: &Path,
) -> Result<Option<EarlierVersions>, Fault> {
    let wanted = lost_paths(destination, plan);
    if wanted.is_empty() {
        return Ok(None);
    }
    let now = now_unix_s();
    let mut kept = EarlierVersions {
        id: String::new(),
        files: 0,
        until_unix_s: now + KEPT.as_secs(),
        unkept: Vec::new(),
    };
    let undo = state_dir.join(UNDO);
    sweep_earlier(state_dir);
    let mut store = Store::make(&undo)?;
    let mut versions = Vec::new();
    let mut bytes = 0;
    for (path, made) in wanted {
        let Some(Signature::Present {
            kind, size, mode, ..
        }) = destination.seen.get(&path)
        else {
            continue;
        };
        let (slot, old) = if *kind == Kind::Link {
            let target = destination.anchor.link(path.as_bytes());
            let target = target.map_err(|errno| io("read", path.as_path(), errno))?;
            (None, Node::Link { target })
        } else {
            if bytes + size > MAX_APPLY_BYTES {
                kept.unkept.push(path);
                continue;
            }
            let Ok((file, _)) = destination.anchor.file(path.as_bytes()) else {
                kept.unkept.push(path);
                continue;
            };
            bytes += size;
            let old = Node::File {
                size: *size,
                is_executable: mode & 0o100 != 0,
                digest: None,
            };
            (Some(store.copy(file)?), old)
        };
        versions.push(Version {
            path,
            slot,
            old,
            mode: mode & 0o7777,
            made,
        });
    }
    kept.files = versions.len();
    if versions.is_empty() {
        return Ok(Some(kept));
    }
    kept.id = store.finish(&Record {
        version: VERSION,
        project: destination.anchor.path().as_os_str().as_bytes().to_vec(),
        made_unix_s: now,
        versions,
    })?;
    Ok(Some(kept))
}

/// Removes the versions that were kept for an apply that does not take place.
pub fn discard_earlier(state_dir: &Path, kept: &EarlierVersions) {
    if !kept.id.is_empty() {
        // If the removal fails, a later sweep removes the directory.
        let _ = fs::remove_dir_all(state_dir.join(UNDO).join(&kept.id));
    }
}

/// Removes versions older than a day, and the oldest ones while the total exceeds its limit.
/// Returns the number of applies whose versions were removed.
pub fn sweep_earlier(state_dir: &Path) -> usize {
    let undo = state_dir.join(UNDO);
    let now = now_unix_s();
    let mut all = entries(&undo);
    all.sort();
    let sizes: Vec<u64> = all.iter().map(|(_, dir)| size_of(dir)).collect();
    let mut total: u64 = sizes.iter().sum();
    let mut removed = 0;
    for ((made, dir), size) in all.iter().zip(sizes) {
        let is_old = now.saturating_sub(made.as_secs()) > KEPT.as_secs();
        if is_old || total > MAX_ALL_BYTES {
            total -= size;
            removed += usize::from(fs::remove_dir_all(dir).is_ok());
        }
    }
    removed
}

/// Earlier versions as a change set for their project.
#[derive(Debug)]
pub struct PutBack {
    /// Changes that restore the versions.
    pub collected: CollectedChanges,
    /// Project to which they belong.
    pub project: PathBuf,
    /// Permission bits of the files.
    modes: BTreeMap<RelPath, u32>,
}

impl PutBack {
    /// Opens the versions with the identifier `id`, or the newest ones of a project.
    ///
    /// # Errors
    /// [`Code::NotFound`] if there are none.
    pub fn open(state_dir: &Path, id: Option<&str>, project: &Path) -> Result<Self, Fault> {
        let undo = state_dir.join(UNDO);
        let mut all = entries(&undo);
        all.sort();
        let canonical = project.canonicalize();
        let project = canonical.as_deref().unwrap_or(project);
        let found = all.iter().rev().find_map(|(_, dir)| {
            let is_named = id.is_none_or(|id| dir.file_name() == Some(OsStr::new(id)));
            let record = is_named.then(|| read_record(dir))??;
            let is_wanted = id.is_some() || record.project == project.as_os_str().as_bytes();
            is_wanted.then(|| (record, dir.clone()))
        });
        let Some((record, dir)) = found else {
            let message = match id {
                Some(id) => format!("no earlier versions are kept as `{id}`"),
                None => format!("no earlier versions of {} are kept", project.display()),
            };
            let fault = Fault::failed(Code::NotFound, message);
            return Err(fault.remedy("they are kept for a day after the apply that replaced them"));
        };
        Self::read(record, &dir)
    }

    fn read(record: Record, dir: &Path) -> Result<Self, Fault> {
        let project = PathBuf::from(OsStr::from_bytes(&record.project));
        let anchor = Anchor::open(&project)?;
        let mut set = ChangeSet::default();
        let mut modes = BTreeMap::new();
        let mut slots = BTreeMap::new();
        let mut dirs = BTreeSet::new();
        for version in record.versions {
            let path = version.path;
            let mut above = path.parent();
            while let Some(dir) = above {
                if anchor.stat_within(dir.as_bytes()).is_err() {
                    dirs.insert(dir.clone());
                }
                above = dir.parent();
            }
            let mut old = version.old;
            if let (
                Some(slot),
                Node::File {
                    size, digest: sum, ..
                },
            ) = (version.slot, &mut old)
            {
                let place = dir.join(slot.to_string());
                let mut file = File::open(&place).map_err(|error| io("read", &place, error))?;
                let read = digest(&mut file, *size, &mut |_| Ok(()));
                let (found, length) = read.map_err(|error| io("read", &place, error))?;
                (*size, *sum) = (length, Some(found));
                modes.insert(path.clone(), version.mode & 0o777);
                slots.insert(path.clone(), place);
            }
            set.changes.push(Change {
                path,
                kind: match version.made {
                    Some(from) => ChangeKind::Modified { from, to: old },
                    None => ChangeKind::Added { to: old },
                },
                flags: Vec::new(),
            });
        }
        set.changes.extend(dirs.into_iter().map(|path| Change {
            path,
            kind: ChangeKind::Added { to: Node::Dir },
            flags: Vec::new(),
        }));
        set.changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self {
            collected: CollectedChanges::new(set, Box::new(KeptContents(slots))),
            project,
            modes,
        })
    }

    /// Restores the former permissions of restored files. `paths` are the paths that were restored.
    /// Failures are ignored.
    pub fn restore_modes<'p>(&self, paths: impl Iterator<Item = &'p RelPath>) {
        let Ok(anchor) = Anchor::open(&self.project) else {
            return;
        };
        for path in paths {
            if let Some(mode) = self.modes.get(path)
                && let Ok((file, _)) = anchor.file(path.as_bytes())
            {
                // The content is restored even if the permissions cannot be changed.
                let _ = file.set_permissions(Permissions::from_mode(*mode));
            }
        }
    }
}

/// Files with the contents of earlier versions, by path.
#[derive(Debug)]
struct KeptContents(BTreeMap<RelPath, PathBuf>);

impl Contents for KeptContents {
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let place = self.0.get(path).ok_or_else(missing);
        let file = place.and_then(File::open);
        let file = file.map_err(|error| unreadable(path, &error))?;
        Ok(Box::new(file))
    }

    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        Err(unreadable(path, &std::io::ErrorKind::NotFound.into()))
    }
}

/// Returns the files and links that a plan overwrites or deletes and that git does not have, with
/// the nodes that replace them; `None` for a deletion.
fn lost_paths(destination: &Destination, plan: &Plan) -> BTreeMap<RelPath, Option<Node>> {
    let mut lost = BTreeMap::new();
    let mut moved: HashSet<&RelPath> = HashSet::new();
    for step in &plan.steps {
        match step {
            Step::Keep { path, .. } => {
                moved.insert(path);
            }
            Step::Remove { path } if !moved.contains(path) => {
                lost.insert(path.clone(), None);
            }
            Step::Write {
                path,
                node,
                replaces,
                ..
            } if lost.contains_key(path) || (*replaces && !moved.contains(path)) => {
                lost.insert(path.clone(), Some(as_written(plan, path, node)));
            }
            _ => {}
        }
    }
    if lost.is_empty() {
        return lost;
    }
    let project = destination.anchor.path();
    let clean = owned_working_tree(project).and_then(|(tree, prefix)| {
        let git_dir = git_dir(&tree.top)?;
        Some((CleanFiles::read(&git_dir, &tree.top).ok()?, prefix))
    });
    lost.retain(|path, _| {
        let seen = destination.seen.get(path);
        let is_file = matches!(
            seen,
            Some(Signature::Present {
                kind: Kind::File | Kind::Link,
                ..
            })
        );
        let is_in_git = clean.as_ref().is_some_and(|(files, prefix)| {
            let whole = [prefix, path.as_bytes()].concat();
            seen.is_some_and(|seen| files.is_surely_clean(&whole, seen))
        });
        is_file && !is_in_git
    });
    lost
}

/// Returns a node of a plan with the digest of the content that is actually written.
fn as_written(plan: &Plan, path: &RelPath, node: &Node) -> Node {
    match (plan.merged.get(path), node) {
        (Some(content), Node::File { is_executable, .. }) => Node::File {
            size: content.len() as u64,
            is_executable: *is_executable,
            digest: Some(*blake3::hash(content).as_bytes()),
        },
        _ => node.clone(),
    }
}

/// Directory of earlier versions under construction. Dropping it unfinished removes it.
struct Store {
    dir: PathBuf,
    next_slot: u32,
    is_finished: bool,
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

impl Store {
    fn make(undo: &Path) -> Result<Self, Fault> {
        let mut random = [0_u8; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| io("name a directory in", undo, errno))?;
        let dir = undo.join(format!("{:08x}", u32::from_ne_bytes(random)));
        let mut private = DirBuilder::new();
        private.mode(0o700);
        let made = private
            .recursive(true)
            .create(undo)
            .and_then(|()| private.recursive(false).create(&dir));
        made.map_err(|error| io("make", &dir, error))?;
        Ok(Self {
            dir,
            next_slot: 0,
            is_finished: false,
        })
    }

    fn create(path: &Path) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(path)
    }

    /// Copies the content of a file, and waits until it is on the disk. Returns the number of the
    /// copy.
    fn copy(&mut self, mut from: File) -> Result<u32, Fault> {
        self.next_slot += 1;
        let path = self.dir.join(self.next_slot.to_string());
        let mut copy = || -> std::io::Result<()> {
            let to = Self::create(&path)?;
            // On a file system that shares blocks this copies no data.
            if rustix::fs::ioctl_ficlone(&to, &from).is_err() {
                let mut buffer = vec![0; 256 << 10];
                let mut at = 0;
                loop {
                    let count = from.read(&mut buffer)?;
                    if count == 0 {
                        break;
                    }
                    write_sparse(&to, at, &buffer[..count])?;
                    at += count as u64;
                }
                to.set_len(at)?;
            }
            to.sync_data()
        };
        copy().map_err(|error| io("keep an earlier version in", &path, error))?;
        Ok(self.next_slot)
    }

    /// Writes the record, without which the versions are not found. Returns the identifier.
    fn finish(mut self, record: &Record) -> Result<String, Fault> {
        let path = self.dir.join(RECORD);
        let write = || -> std::io::Result<()> {
            // Every content is on the disk already, so a record never names an incomplete file.
            let bytes = postcard::to_allocvec(record).map_err(std::io::Error::other)?;
            let file = Self::create(&path)?;
            std::io::Write::write_all(&mut &file, &bytes)?;
            file.sync_all()?;
            // Without this, a crash could lose the name of the record.
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(|error| io("write", &path, error))?;
        self.is_finished = true;
        let name = self.dir.file_name().unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }
}

/// Returns the directories of earlier versions, each with its time of modification since the epoch.
/// Its fractions order the applies of one second.
fn entries(undo: &Path) -> Vec<(Duration, PathBuf)> {
    let Ok(entries) = fs::read_dir(undo) else {
        return Vec::new();
    };
    let time_of = |path: PathBuf| {
        let modified = path.symlink_metadata().ok()?.modified().ok()?;
        let since = modified.duration_since(UNIX_EPOCH).ok()?;
        Some((since, path))
    };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter_map(time_of).collect()
}

fn read_record(dir: &Path) -> Option<Record> {
    let mut bytes = Vec::new();
    let file = File::open(dir.join(RECORD)).ok()?;
    file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes).ok()?;
    let record: Record = postcard::from_bytes(&bytes).ok()?;
    (record.version == VERSION).then_some(record)
}

fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len()));
    sizes.sum()
}

fn now_unix_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applies_of_one_second_are_in_order() {
        let undo = tempfile::tempdir().unwrap();
        let second = UNIX_EPOCH + Duration::from_hours(1);
        for (name, nanos) in [("b", 1), ("c", 3), ("a", 2)] {
            let dir = undo.path().join(name);
            fs::create_dir(&dir).unwrap();
            let time = second + Duration::from_nanos(nanos);
            File::open(&dir).unwrap().set_modified(time).unwrap();
        }
        let mut all = entries(undo.path());
        all.sort();
        let names: Vec<_> = all.iter().filter_map(|(_, dir)| dir.file_name()).collect();
        assert_eq!(names, ["b", "a", "c"]);
    }
}
