//! The host's side of a push: the project, sorted, without opening a single file.

use super::entry::{Seen, SeenKind};
use super::spool::{Spool, Spooled};
use crate::RelPath;
use crate::beneath::{Anchor, io, read_names, stat_at};
use crate::collect::RESERVED_PREFIX;
use glovebox_proto::tree::Signature;
use glovebox_proto::{Code, Fault};
use rustix::fd::AsFd as _;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Says whether a path of the project is not to be shown to the sandbox; the second argument tells
/// directories. What is below a hidden directory is not asked about.
pub type IsHidden<'a> = dyn Fn(&RelPath, bool) -> bool + Sync + 'a;

/// Paths listed by name; beyond, only counted.
const MAX_LISTED: usize = 1000;

/// The project as a push sees it.
#[derive(Debug)]
pub(super) struct Walked {
    pub(super) seen: Spooled<Seen>,
    pub(super) hidden: u64,
    pub(super) hidden_paths: Vec<RelPath>,
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
    spool: Spool<Seen>,
    hidden: u64,
    hidden_paths: Vec<RelPath>,
}

/// Walks a project.
pub(super) fn walk(
    anchor: &Anchor,
    is_hidden: &IsHidden<'_>,
    spool_dir: &Path,
    gauge: &Gauge,
) -> Result<Walked, Fault> {
    let mut walk = Walk {
        anchor,
        is_hidden,
        gauge,
        spool: Spool::unnamed(spool_dir)?,
        hidden: 0,
        hidden_paths: Vec::new(),
    };
    walk.directory(&mut Vec::new())?;
    Ok(Walked {
        seen: walk.spool.finish()?,
        hidden: walk.hidden,
        hidden_paths: walk.hidden_paths,
    })
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
            self.hidden += 1;
            if self.hidden_paths.len() < MAX_LISTED {
                self.hidden_paths.push(checked);
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
        self.spool.push(&Seen {
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
