//! The host's side of a push: lists the project in order, without opening any file.

use super::entry::{SeenEntry, SeenKind};
use super::spool::Batch;
use crate::RelPath;
use crate::beneath::{Anchor, io, read_names, stat_at};
use crate::collect::RESERVED_PREFIX;
use glovebox_proto::tree::Signature;
use glovebox_proto::{Code, Fault};
use rustix::fd::AsFd as _;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

/// Predicate for paths of the project that are hidden from the sandbox; the second argument is true
/// for directories. It is not called for paths below a hidden directory.
pub type HiddenPredicate<'a> = dyn Fn(&RelPath, bool) -> bool + Sync + 'a;

/// Maximum number of hidden paths that are listed by name; further ones are only counted.
const MAX_LISTED: usize = 1000;

/// Number of paths handed over at a time.
const BATCH: usize = 256;

/// Hidden paths of a project.
#[derive(Debug, Default)]
pub(super) struct HiddenCount {
    pub(super) count: u64,
    pub(super) paths: Vec<RelPath>,
}

/// Progress of the walk, shared with another thread, which may also stop it.
#[derive(Debug, Default)]
pub(super) struct WalkProgress {
    pub(super) paths: AtomicU64,
    pub(super) is_stopped: AtomicBool,
}

struct Walk<'a> {
    anchor: &'a Anchor,
    is_hidden: &'a HiddenPredicate<'a>,
    gauge: &'a WalkProgress,
    each: &'a mut dyn FnMut(SeenEntry) -> Result<(), Fault>,
    hidden: HiddenCount,
}

/// Walks a project and sends its entries to `found` while walking, followed by the end or the
/// error.
pub(super) fn walk_along(
    anchor: &Anchor,
    is_hidden: &HiddenPredicate<'_>,
    gauge: &WalkProgress,
    found: &SyncSender<Batch<SeenEntry>>,
) -> Result<HiddenCount, Fault> {
    let given_up = |_| Fault::failed(Code::Cancelled, "the push was given up");
    let mut batch = Vec::with_capacity(BATCH);
    let mut each = |seen| {
        batch.push(seen);
        if batch.len() < BATCH {
            return Ok(());
        }
        let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
        found.send(Batch::Items(full)).map_err(given_up)
    };
    let walked = walk(anchor, is_hidden, gauge, &mut each);
    let end = match &walked {
        Ok(_) => {
            found.send(Batch::Items(batch)).map_err(given_up)?;
            Ok(())
        }
        Err(fault) => Err(fault.clone()),
    };
    // If the receiver has stopped, it knows the reason.
    let _ = found.send(Batch::End(end));
    walked
}

/// Walks a project and passes its entries to `each`, in order.
pub(super) fn walk(
    anchor: &Anchor,
    is_hidden: &HiddenPredicate<'_>,
    gauge: &WalkProgress,
    each: &mut dyn FnMut(SeenEntry) -> Result<(), Fault>,
) -> Result<HiddenCount, Fault> {
    let mut walk = Walk {
        anchor,
        is_hidden,
        gauge,
        each,
        hidden: HiddenCount::default(),
    };
    walk.tree()?;
    Ok(walk.hidden)
}

/// An entry of a directory.
struct NamedEntry {
    name: Box<[u8]>,
    signature: Signature,
    kind: SeenKind,
}

/// A directory with names that have not been handed over yet.
struct Level {
    names: std::vec::IntoIter<NamedEntry>,
    /// Length of the path of the parent directory.
    parent_length: usize,
}

impl Walk<'_> {
    /// Walks all directories. Uses an explicit stack and keeps no descriptor open in between,
    /// because a project may be as deep as a path is long.
    fn tree(&mut self) -> Result<(), Fault> {
        let mut path: Vec<u8> = Vec::new();
        let mut levels = vec![Level {
            names: self.list(&path)?.into_iter(),
            parent_length: 0,
        }];
        while let Some(level) = levels.last_mut() {
            if self.gauge.is_stopped.load(Ordering::Relaxed) {
                return Err(Fault::failed(Code::Cancelled, "it was cancelled"));
            }
            let Some(listed) = level.names.next() else {
                path.truncate(level.parent_length);
                levels.pop();
                continue;
            };
            let parent_length = path.len();
            if parent_length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&listed.name);
            // A path longer than Linux allows cannot be opened by any other program either.
            let is_entered = match RelPath::new(path.as_slice()) {
                Ok(checked) => self.entry(checked, listed)?,
                Err(_) => false,
            };
            if is_entered {
                levels.push(Level {
                    names: self.list(&path)?.into_iter(),
                    parent_length,
                });
            } else {
                path.truncate(parent_length);
            }
        }
        Ok(())
    }

    /// Returns the entries of a directory, sorted by name.
    fn list(&self, path: &[u8]) -> Result<Vec<NamedEntry>, Fault> {
        let dir = match self.anchor.dir(path) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !path.is_empty() => {
                return Ok(Vec::new());
            }
            Err(Errno::ACCESS) => return Ok(Vec::new()),
            Err(errno) => return Err(self.failed(path, errno)),
        };
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let is_top = path.is_empty();
        read_names(&dir, |name, _| {
            if !(is_top && name.starts_with(RESERVED_PREFIX)) {
                names.push(name.into());
            }
            Ok::<(), Errno>(())
        })
        .map_err(|errno| self.failed(path, errno))?;
        names.sort_unstable();
        let look = |name: Box<[u8]>| {
            let stat = stat_at(dir.as_fd(), &name).ok()?;
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => SeenKind::File { is_linked: false },
                FileType::Directory => SeenKind::Dir,
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&dir, &*name, Vec::new()).ok()?;
                    SeenKind::Link {
                        target: ByteBuf::from(target.into_bytes()),
                    }
                }
                _ => SeenKind::Special,
            };
            Some(NamedEntry {
                signature: signature(&stat),
                name,
                kind,
            })
        };
        Ok(names.into_iter().filter_map(look).collect())
    }

    /// Hands over one entry, unless it is hidden. Returns true if it is a directory to be walked.
    fn entry(&mut self, checked: RelPath, listed: NamedEntry) -> Result<bool, Fault> {
        self.gauge.paths.fetch_add(1, Ordering::Relaxed);
        let is_dir = matches!(listed.kind, SeenKind::Dir);
        if (self.is_hidden)(&checked, is_dir) {
            self.hidden.count += 1;
            if self.hidden.paths.len() < MAX_LISTED {
                self.hidden.paths.push(checked);
            }
            return Ok(false);
        }
        (self.each)(SeenEntry {
            path: checked,
            signature: listed.signature,
            kind: listed.kind,
        })?;
        Ok(is_dir)
    }

    fn failed(&self, path: &[u8], errno: Errno) -> Fault {
        let name = String::from_utf8_lossy(path);
        io("read", &self.anchor.path().join(name.as_ref()), errno)
    }
}

/// Returns the signature of a host file.
pub(super) fn signature(stat: &Stat) -> Signature {
    Signature::from_stat(
        stat.st_size,
        (stat.st_mtime, stat.st_mtime_nsec as i64),
        (stat.st_ctime, stat.st_ctime_nsec as i64),
        stat.st_ino,
        stat.st_mode,
    )
}
