//! Walk over a project's directories that finds names to hide.
//!
//! Input: patterns. Output: paths that are hidden by name or pattern, files whose content may be a
//! secret, and directories of repositories. Only directories are opened.

use super::names::{is_one_of, is_secret, may_hold_secret};
use super::{HideReason, MAX_HIDDEN, SKIPPED};
use crate::beneath::{Anchor, io, read_names, stat_at};
use crate::filter::compile;
use crate::git::TrackedFiles;
use glovebox_proto::{Code, Fault};
use ignore::gitignore::Gitignore;
use rustix::fd::AsFd as _;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum depth within a hidden directory at which a path that is shown is searched for.
const MAX_DEPTH: usize = 64;
/// Maximum number of threads that list directories.
const MAX_THREADS: usize = 4;
/// Number of directories that one thread lists before others are started.
const ALONE_DIRS: usize = 32;
/// Maximum number of files to inspect that are recorded, in the order in which they are found.
const MAX_READABLE: usize = 50_000;
/// Maximum number of repositories within a project whose tracked files are known.
const MAX_REPOSITORIES: usize = 256;
/// Maximum depth of links that are recorded because they may lead out of the project.
const LINK_DEPTH: usize = 3;
/// Maximum number of links that are recorded.
const MAX_LINKS: usize = 1000;
/// Directory of packages. The links at its top are recorded, because package managers put links to
/// other directories there.
const PACKAGES: &[u8] = b"node_modules";

/// A path that is hidden.
#[derive(Debug)]
pub(super) struct HiddenPath {
    pub(super) path: Vec<u8>,
    pub(super) reason: HideReason,
    pub(super) is_dir: bool,
}

/// Results of the walk.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    pub(super) hidden: Vec<HiddenPath>,
    /// Files whose content may be a secret, nearest to the top first.
    pub(super) readable: Vec<Vec<u8>>,
    /// Directories with a `.git`.
    pub(super) repositories: Vec<Vec<u8>>,
    /// Symbolic links near the top, with any target.
    pub(super) links: Vec<Vec<u8>>,
}

/// Directories to be listed, and results so far.
#[derive(Debug, Default)]
struct Queue {
    dirs: Vec<Vec<u8>>,
    busy: usize,
    found: ScanResult,
    failure: Option<Fault>,
}

/// State of a walk, shared by its threads.
pub(super) struct Scan {
    anchor: Anchor,
    exclude: Gitignore,
    include: Gitignore,
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// Results from one directory.
#[derive(Default)]
struct DirectoryListing {
    dirs: Vec<Vec<u8>>,
    found: ScanResult,
}

impl Scan {
    /// Returns a walk over the directory of `anchor`.
    pub(super) fn new(
        anchor: Anchor,
        exclude: &[String],
        include: &[String],
    ) -> Result<Self, Fault> {
        Ok(Self {
            anchor,
            exclude: compile(exclude)?,
            include: compile(include)?,
            queue: Mutex::new(Queue {
                dirs: vec![Vec::new()],
                ..Queue::default()
            }),
            wake: Condvar::new(),
        })
    }

    /// Walks over the whole project.
    pub(super) fn run(&self) -> Result<ScanResult, Fault> {
        // Most walks end before another thread would have started.
        self.work(Some(ALONE_DIRS));
        if self.is_unfinished() {
            let threads = std::thread::available_parallelism()
                .map_or(1, |count| count.get().min(MAX_THREADS));
            std::thread::scope(|scope| {
                for _ in 1..threads {
                    // If no further thread can be started, this one does all the work.
                    let _ = std::thread::Builder::new().spawn_scoped(scope, || self.work(None));
                }
                self.work(None);
            });
        }
        let mut queue = self.lock();
        if let Some(fault) = queue.failure.take() {
            return Err(fault);
        }
        let mut found = std::mem::take(&mut queue.found);
        let by_depth = |a: &Vec<u8>, b: &Vec<u8>| depth(a).cmp(&depth(b)).then_with(|| a.cmp(b));
        found.readable.sort_by(by_depth);
        found.links.sort_by(by_depth);
        Ok(found)
    }

    /// Returns the content of a file; `None` if it is longer than `max_bytes` or cannot be read.
    pub(super) fn read(&self, path: &[u8], max_bytes: u64) -> Option<Vec<u8>> {
        let (file, stat) = self.anchor.file(path).ok()?;
        let size = u64::try_from(stat.st_size).ok()?;
        if size > max_bytes {
            return None;
        }
        let mut text = Vec::with_capacity(size as usize);
        file.take(max_bytes).read_to_end(&mut text).ok()?;
        Some(text)
    }

    /// Adds the paths to hide of a directory of secrets: the directory itself, or single paths if a
    /// file in it is tracked.
    pub(super) fn untracked_below(
        &self,
        dir: &[u8],
        tracked: &TrackedFiles,
        hidden: &mut Vec<(Vec<u8>, HideReason)>,
    ) -> Result<(), Fault> {
        let mut found = Vec::new();
        let is_shown = |path: &[u8], is_dir: bool| {
            self.includes(path, is_dir) || (!is_dir && tracked.contains(path))
        };
        let is_any_shown = tracked.has_below(dir)
            && self.covers_shown(dir, 0, HideReason::Secret, &is_shown, &mut found)?;
        if is_any_shown {
            hidden.extend(found.into_iter().map(|found| (found.path, found.reason)));
        } else {
            hidden.push((dir.to_vec(), HideReason::Secret));
        }
        Ok(())
    }

    fn is_unfinished(&self) -> bool {
        !self.lock().dirs.is_empty()
    }

    /// Lists directories until none are left, or `limit` of them.
    fn work(&self, mut limit: Option<usize>) {
        let mut queue = self.lock();
        loop {
            match &mut limit {
                Some(0) => return,
                Some(left) => *left -= 1,
                None => {}
            }
            let Some(dir) = queue.dirs.pop() else {
                if queue.busy == 0 {
                    self.wake.notify_all();
                    return;
                }
                queue = self
                    .wake
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.busy += 1;
            drop(queue);
            let mut listed = DirectoryListing::default();
            let result = self.directory(&dir, &mut listed);
            queue = self.lock();
            queue.busy -= 1;
            queue.dirs.extend(listed.dirs);
            queue.found.add(listed.found);
            let failed = result
                .err()
                .or_else(|| (queue.found.hidden.len() > MAX_HIDDEN).then(too_many));
            if let Some(fault) = failed {
                queue.failure.get_or_insert(fault);
                queue.dirs.clear();
            }
            self.wake.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Classifies the names in one directory.
    fn directory(&self, path: &[u8], listed: &mut DirectoryListing) -> Result<(), Fault> {
        self.each(path, |name, child, kind| {
            let is_dir = kind == FileType::Directory;
            if name == b".git" {
                listed.found.repositories.push(path.to_vec());
            }
            match self.verdict(name, child, is_dir) {
                Some(reason) if is_dir && !self.include.is_empty() => {
                    // A path below the directory may be included.
                    let mut below = Vec::new();
                    let is_shown = |path: &[u8], is_dir: bool| self.includes(path, is_dir);
                    if self.covers_shown(child, 0, reason, &is_shown, &mut below)? {
                        listed.found.hidden.append(&mut below);
                    } else {
                        listed.found.hide(child, reason, is_dir);
                    }
                }
                Some(reason) => listed.found.hide(child, reason, is_dir),
                None if is_dir && !is_one_of(name, SKIPPED) => listed.dirs.push(child.to_vec()),
                None if is_dir && name == PACKAGES && depth(child) <= LINK_DEPTH => {
                    self.links_of_packages(child, &mut listed.found.links)?;
                }
                None if kind == FileType::Symlink && depth(child) <= LINK_DEPTH => {
                    listed.found.links.push(child.to_vec());
                }
                None if kind == FileType::RegularFile
                    && may_hold_secret(name)
                    && !self.includes(child, false) =>
                {
                    listed.found.readable.push(child.to_vec());
                }
                None => {}
            }
            Ok(())
        })
    }

    /// Lists the links at the top of a directory of packages, and those of its scopes
    /// (`@scope/name`).
    fn links_of_packages(&self, path: &[u8], links: &mut Vec<Vec<u8>>) -> Result<(), Fault> {
        let mut scopes = Vec::new();
        self.each(path, |name, child, kind| {
            match kind {
                FileType::Symlink => links.push(child.to_vec()),
                FileType::Directory if name.starts_with(b"@") => scopes.push(child.to_vec()),
                _ => {}
            }
            Ok(())
        })?;
        for scope in scopes {
            self.each(&scope, |_, child, kind| {
                if kind == FileType::Symlink {
                    links.push(child.to_vec());
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Lists the hidden paths below a directory. Returns true if a path below it is shown.
    fn covers_shown(
        &self,
        path: &[u8],
        depth: usize,
        reason: HideReason,
        is_shown: &dyn Fn(&[u8], bool) -> bool,
        hidden: &mut Vec<HiddenPath>,
    ) -> Result<bool, Fault> {
        let mut is_any_shown = false;
        if depth > MAX_DEPTH {
            return Ok(false);
        }
        self.each(path, |_, child, kind| {
            let is_dir = kind == FileType::Directory;
            if is_shown(child, is_dir) {
                is_any_shown = true;
                return Ok(());
            }
            if is_dir {
                let mut below = Vec::new();
                if self.covers_shown(child, depth + 1, reason, is_shown, &mut below)? {
                    is_any_shown = true;
                    hidden.append(&mut below);
                    return Ok(());
                }
            }
            hidden.push(HiddenPath {
                path: child.to_vec(),
                reason,
                is_dir,
            });
            Ok(())
        })?;
        Ok(is_any_shown)
    }

    /// Calls `act` with name, path and type of every entry of a directory.
    fn each(
        &self,
        path: &[u8],
        mut act: impl FnMut(&[u8], &[u8], FileType) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let dir = match self.anchor.dir(path) {
            Ok(dir) => dir,
            // The sandbox cannot read a directory that this user cannot read; or the directory was
            // removed; or its path is too long for the kernel.
            Err(
                Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG,
            ) => return Ok(()),
            Err(errno) => {
                let at = self.anchor.path().join(OsStr::from_bytes(path));
                return Err(io("read", &at, errno));
            }
        };
        let mut child = path.to_vec();
        if !child.is_empty() {
            child.push(b'/');
        }
        let length = child.len();
        let mut failure = None;
        read_names(&dir, |name, kind| {
            let kind = match kind {
                FileType::Unknown => stat_at(dir.as_fd(), name).map_or(FileType::Unknown, |stat| {
                    FileType::from_raw_mode(stat.st_mode)
                }),
                kind => kind,
            };
            child.truncate(length);
            child.extend_from_slice(name);
            act(name, &child, kind).map_err(|fault| {
                failure = Some(fault);
                Errno::CANCELED
            })
        })
        .map_err(|errno| {
            failure.unwrap_or_else(|| {
                io(
                    "read",
                    &self.anchor.path().join(OsStr::from_bytes(path)),
                    errno,
                )
            })
        })
    }

    fn verdict(&self, name: &[u8], path: &[u8], is_dir: bool) -> Option<HideReason> {
        let at = || Path::new(OsStr::from_bytes(path));
        // Exclusions of the user come first, because they also hide tracked files.
        let reason = if !self.exclude.is_empty() && self.exclude.matched(at(), is_dir).is_ignore() {
            HideReason::Excluded
        } else if is_secret(path, name, is_dir) {
            HideReason::Secret
        } else {
            return None;
        };
        (!self.includes(path, is_dir)).then_some(reason)
    }

    fn includes(&self, path: &[u8], is_dir: bool) -> bool {
        let at = Path::new(OsStr::from_bytes(path));
        !self.include.is_empty() && self.include.matched(at, is_dir).is_ignore()
    }
}

impl ScanResult {
    fn hide(&mut self, path: &[u8], reason: HideReason, is_dir: bool) {
        self.hidden.push(HiddenPath {
            path: path.to_vec(),
            reason,
            is_dir,
        });
    }

    fn add(&mut self, other: Self) {
        self.hidden.extend(other.hidden);
        let room = MAX_READABLE.saturating_sub(self.readable.len());
        self.readable.extend(other.readable.into_iter().take(room));
        let room = MAX_REPOSITORIES.saturating_sub(self.repositories.len());
        self.repositories
            .extend(other.repositories.into_iter().take(room));
        let room = MAX_LINKS.saturating_sub(self.links.len());
        self.links.extend(other.links.into_iter().take(room));
    }
}

/// Returns the number of components of a relative path.
fn depth(path: &[u8]) -> usize {
    path.split(|byte| *byte == b'/').count()
}

/// Returns the fault for a project with too many paths to hide.
pub(super) fn too_many() -> Fault {
    Fault::failed(
        Code::TooLarge,
        format!("more than {MAX_HIDDEN} files would be hidden one by one"),
    )
    .remedy("exclude the directories they are in")
}
