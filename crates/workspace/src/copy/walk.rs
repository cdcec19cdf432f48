//! The host's side of a push: the project, sorted, without opening a single file.

use super::entry::{Seen, SeenKind};
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

/// Says whether a path of the project is not to be shown to the sandbox; the second argument tells
/// directories. What is below a hidden directory is not asked about.
pub type IsHidden<'a> = dyn Fn(&RelPath, bool) -> bool + Sync + 'a;

/// Paths listed by name; beyond, only counted.
const MAX_LISTED: usize = 1000;

/// Paths handed over at a time.
const BATCH: usize = 256;

/// What a push does not see of a project.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    pub(super) count: u64,
    pub(super) paths: Vec<RelPath>,
}

/// How far the walk is, for another thread, which may also stop it.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    pub(super) paths: AtomicU64,
    pub(super) is_stopped: AtomicBool,
}

struct Walk<'a> {
    anchor: &'a Anchor,
    is_hidden: &'a IsHidden<'a>,
    gauge: &'a Gauge,
    each: &'a mut dyn FnMut(Seen) -> Result<(), Fault>,
    hidden: Hidden,
}

/// Walks a project and hands over what is there as it is found, then how it ended.
pub(super) fn walk_along(
    anchor: &Anchor,
    is_hidden: &IsHidden<'_>,
    gauge: &Gauge,
    found: &SyncSender<Batch<Seen>>,
) -> Result<Hidden, Fault> {
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
    // Who has stopped listening knows why.
    let _ = found.send(Batch::End(end));
    walked
}

/// Walks a project and gives `each` what is there, sorted.
pub(super) fn walk(
    anchor: &Anchor,
    is_hidden: &IsHidden<'_>,
    gauge: &Gauge,
    each: &mut dyn FnMut(Seen) -> Result<(), Fault>,
) -> Result<Hidden, Fault> {
    let mut walk = Walk {
        anchor,
        is_hidden,
        gauge,
        each,
        hidden: Hidden::default(),
    };
    walk.directory(&mut Vec::new())?;
    Ok(walk.hidden)
}

impl Walk<'_> {
    fn directory(&mut self, path: &mut Vec<u8>) -> Result<(), Fault> {
        let dir = match self.anchor.dir(path) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !path.is_empty() => return Ok(()),
            Err(Errno::ACCESS) => return Ok(()),
            Err(errno) => return Err(self.failed(path, errno)),
        };
        let mut names: Vec<Box<[u8]>> = Vec::new();
        read_names(&dir, |name, _| {
            names.push(name.into());
            Ok::<(), Errno>(())
        })
        .map_err(|errno| self.failed(path, errno))?;
        names.sort_unstable();
        let is_top = path.is_empty();
        for name in names {
            if self.gauge.is_stopped.load(Ordering::Relaxed) {
                return Err(Fault::failed(Code::Cancelled, "it was cancelled"));
            }
            if is_top && name.starts_with(RESERVED_PREFIX) {
                continue;
            }
            let Ok(stat) = stat_at(dir.as_fd(), &name) else {
                continue;
            };
            let length = path.len();
            if !is_top {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            // A path longer than Linux allows cannot be opened by anybody else either.
            if let Ok(checked) = RelPath::new(path.as_slice()) {
                self.entry(dir.as_fd(), &name, checked, &stat, path)?;
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: rustix::fd::BorrowedFd<'_>,
        name: &[u8],
        checked: RelPath,
        stat: &Stat,
        path: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        self.gauge.paths.fetch_add(1, Ordering::Relaxed);
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_dir = kind == FileType::Directory;
        if (self.is_hidden)(&checked, is_dir) {
            self.hidden.count += 1;
            if self.hidden.paths.len() < MAX_LISTED {
                self.hidden.paths.push(checked);
            }
            return Ok(());
        }
        let kind = match kind {
            FileType::RegularFile => SeenKind::File { is_linked: false },
            FileType::Directory => SeenKind::Dir,
            FileType::Symlink => match rustix::fs::readlinkat(dir, name, Vec::new()) {
                Ok(target) => SeenKind::Link {
                    target: ByteBuf::from(target.into_bytes()),
                },
                Err(_) => return Ok(()),
            },
            _ => SeenKind::Special,
        };
        (self.each)(Seen {
            path: checked,
            signature: signature(stat),
            kind,
        })?;
        if is_dir {
            self.directory(path)?;
        }
        Ok(())
    }

    fn failed(&self, path: &[u8], errno: Errno) -> Fault {
        let name = String::from_utf8_lossy(path);
        io("read", &self.anchor.path().join(name.as_ref()), errno)
    }
}

/// What a file of the host is known by.
pub(super) fn signature(stat: &Stat) -> Signature {
    Signature::from_stat(
        stat.st_size,
        (stat.st_mtime, stat.st_mtime_nsec as i64),
        (stat.st_ctime, stat.st_ctime_nsec as i64),
        stat.st_ino,
        stat.st_mode,
    )
}
