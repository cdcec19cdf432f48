//! Finds files by name and lines by pattern, with ripgrep's libraries.
//!
//! The results are bounded for any size of tree: the newest hits are kept, the others only counted.
//! Between files a search checks its deadline and its cancellation, and returns what it has found.
//! It opens regular files only, so that a FIFO or a device cannot block it.

mod gitignore;
mod glob;
mod grep;
mod ignored;

pub(crate) use glob::glob;
pub(crate) use grep::{grep, grep_log};

use super::{own, shown};
use crate::fault;
use glovebox_proto::{Code, Fault, SearchEnd};
use ignore::overrides::Override;
use ignore::types::Types;
use ignore::{DirEntry, WalkBuilder, WalkState};
use ignored::SearchIgnoreRules;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Stat};
use rustix::path::Arg;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads of one search, besides the thread that waits for them.
const THREADS: usize = 2;
/// Maximum depth of a searched directory.
const MAX_DEPTH: usize = 256;

/// Deadline and cancellation of a search.
struct Bounds<'a> {
    until: Instant,
    cancel: &'a AtomicBool,
}

impl<'a> Bounds<'a> {
    fn new(deadline_ms: u64, cancel: &'a AtomicBool) -> Self {
        Self {
            until: Instant::now() + Duration::from_millis(deadline_ms),
            cancel,
        }
    }

    fn is_over(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || Instant::now() >= self.until
    }

    /// Returns how the search ended.
    ///
    /// # Errors
    /// `Cancelled` if the search was cancelled.
    fn end(&self, was_stopped: bool) -> Result<SearchEnd, Fault> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Fault::failed(Code::Cancelled, "the search was cancelled"));
        }
        Ok(if was_stopped {
            SearchEnd::Deadline
        } else {
            SearchEnd::Complete
        })
    }
}

/// Selection of the files of a tree that are searched.
struct Scope<'a> {
    root: &'a [u8],
    use_ignore: bool,
    only: Override,
    types: Option<Types>,
}

/// Counters of a walk.
struct WalkReport {
    unreadable: u64,
    was_stopped: bool,
}

impl Scope<'_> {
    fn root(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.root))
    }

    /// Returns a fault if the root does not exist.
    fn check(&self) -> Result<Stat, Fault> {
        rustix::fs::stat(self.root)
            .map_err(|errno| fault::file(errno, &format!("cannot search in {}", shown(self.root))))
    }

    /// Passes every selected regular file to a visitor. Runs on several threads, each of which
    /// creates a visitor of its own.
    fn walk<V: FnMut(&DirEntry) + Send>(
        &self,
        bounds: &Bounds<'_>,
        visitor: impl Fn() -> V,
    ) -> WalkReport {
        let mut builder = WalkBuilder::new(self.root());
        // Patterns are evaluated here: the walk never ignores a path that matches an override, so
        // `*` would find everything that an ignore file excludes.
        let only = self.only.clone();
        let ignored = self.use_ignore.then(|| SearchIgnoreRules::new(self.root()));
        let is_wanted = move |entry: &DirEntry| {
            let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
            if entry.file_name() == ".git" || only.matched(entry.path(), is_dir).is_ignore() {
                return false;
            }
            let Some(ignored) = &ignored else { return true };
            let is_named = ignored.names(entry.path(), is_dir);
            if is_dir && !is_named {
                ignored.enter(entry.path());
            }
            !is_named
        };
        builder
            .standard_filters(false)
            .follow_links(false)
            .max_depth(Some(MAX_DEPTH))
            .filter_entry(move |entry| entry.depth() == 0 || is_wanted(entry))
            .threads(THREADS);
        if let Some(types) = &self.types {
            builder.types(types.clone());
        }
        let unreadable = AtomicU64::new(0);
        let was_stopped = AtomicBool::new(false);
        let (unreadable_seen, stopped_seen) = (&unreadable, &was_stopped);
        builder.build_parallel().run(|| {
            let mut visit = visitor();
            Box::new(move |entry| {
                if bounds.is_over() {
                    stopped_seen.store(true, Ordering::Relaxed);
                    return WalkState::Quit;
                }
                match entry {
                    Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => {
                        visit(&entry);
                    }
                    Ok(_) => {}
                    Err(_) => {
                        unreadable_seen.fetch_add(1, Ordering::Relaxed);
                    }
                }
                WalkState::Continue
            })
        });
        WalkReport {
            unreadable: unreadable.into_inner(),
            was_stopped: was_stopped.into_inner(),
        }
    }

    /// Returns a path of the walk relative to its root.
    fn relative(&self, path: &Path) -> Vec<u8> {
        below(self.root, path).to_vec()
    }
}

/// Returns the part of a walked path after its root. The walk builds its paths by appending names
/// to the root as given, so comparing bytes is sufficient.
fn below<'a>(root: &[u8], path: &'a Path) -> &'a [u8] {
    let path = path.as_os_str().as_bytes();
    let below = path.strip_prefix(root).unwrap_or(path);
    let begin = below.iter().take_while(|byte| **byte == b'/').count();
    &below[begin..]
}

/// Open directory of the files that a thread is visiting. A walk visits the files of a directory
/// one after another; without this, the kernel would resolve and check the whole path again for
/// each.
#[derive(Debug, Default)]
struct OpenDirectory {
    dir: Option<(Vec<u8>, OwnedFd)>,
    /// True if the directory lies in `/proc`, where files may be private to the guest.
    is_of_proc: bool,
}

impl OpenDirectory {
    /// Returns the directory of `path` and the last name. `None` if the directory no longer exists.
    fn find<'a>(&mut self, path: &'a Path) -> Option<(BorrowedFd<'_>, &'a OsStr)> {
        let bytes = path.as_os_str().as_bytes();
        let end = bytes.iter().rposition(|byte| *byte == b'/')?;
        let (parent, name) = (&bytes[..=end], &bytes[end + 1..]);
        if self.dir.as_ref().is_none_or(|(known, _)| known != parent) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::open(parent, flags, Mode::empty()).ok()?;
            self.is_of_proc = own::is_of_proc(&dir);
            self.dir = Some((parent.to_vec(), dir));
        }
        let (_, dir) = self.dir.as_ref()?;
        Some((dir.as_fd(), OsStr::from_bytes(name)))
    }

    /// Opens a file as [`open_file`] does, and refuses private files of the guest.
    fn open(&mut self, path: &Path) -> Option<File> {
        let (dir, name) = self.find(path)?;
        let file = open_file(dir, name)?;
        if self.is_of_proc {
            own::refuse(&file).ok()?;
        }
        Some(file)
    }
}

/// Opens a path that was a regular file when its directory was read. If it was replaced since, a
/// link is not followed and a FIFO does not block; [`regular`] checks the kind afterwards.
fn open_file(dir: BorrowedFd<'_>, path: impl Arg) -> Option<File> {
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, path, flags, Mode::empty()).ok()?;
    Some(file.into())
}

/// Returns the metadata of an open file if it is a regular file. Called only for files with hits,
/// since most have none.
fn regular(file: &File) -> Option<Stat> {
    let stat = rustix::fs::fstat(file).ok()?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    (kind == rustix::fs::FileType::RegularFile).then_some(stat)
}

fn mtime_ns(stat: &Stat) -> i128 {
    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec)
}

/// Returns the fault for a pattern that a library rejected, with the library's message.
fn bad_pattern(what: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::failed(
        Code::InvalidArgument,
        format!("the {what} is not valid: {error}"),
    )
}
