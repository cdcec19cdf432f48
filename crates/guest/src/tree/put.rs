//! Changes a tree according to a stream of items. Every file is written under a temporary name,
//! checked against its digest, and renamed. In a directory that has no final name itself yet, a
//! file is written under its own name.

use super::beneath::{self, Root};
use super::fresh::NewDirectory;
use super::{check_cancel, cut_off, malformed, now_ns, signature};
use crate::fault;
use crate::files::{shown, temporary_in, temporary_name, write_sparse};
use glovebox_proto::tree::{Packer, Packing, PutItem, PutReceipt, TreeTotals, Unpacker};
use glovebox_proto::{Code, Fault};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// State of a `TreePut` request.
#[derive(Debug)]
pub(crate) struct Put {
    path: Vec<u8>,
    unpacker: Unpacker,
    receipts: Packer,
    site: Option<Site>,
}

/// The tree as changed so far.
#[derive(Debug)]
struct Site {
    root: Root,
    file: Option<NewFile>,
    /// New directory that the last items have created or filled.
    fresh: Option<NewDirectory>,
    /// Hasher of the file that is being written.
    hasher: Box<blake3::Hasher>,
    totals: TreeTotals,
}

/// File that is being written. Dropping it before it is in place removes it.
#[derive(Debug)]
struct NewFile {
    path: Vec<u8>,
    dir: Arc<OwnedFd>,
    file: OwnedFd,
    /// Present name in `dir`.
    name: Vec<u8>,
    /// True if `name` is the final name.
    has_own_name: bool,
    size: u64,
    /// End of the last written run: a hole follows if it is less than `size`.
    data_end: u64,
    mtime_ns: i64,
    is_in_place: bool,
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_in_place {
            let _ = rustix::fs::unlinkat(&self.dir, self.name.as_slice(), AtFlags::empty());
        }
    }
}

impl Put {
    /// Creates a request; the first step opens the directory.
    pub(crate) fn new(path: Vec<u8>) -> Result<Self, Fault> {
        Ok(Self {
            path,
            unpacker: Unpacker::new(),
            // Receipts have a few bytes per file: not worth compressing.
            receipts: Packer::new(Packing::Stored)?,
            site: None,
        })
    }

    /// Applies the items that have arrived. Returns the totals after the last one.
    pub(super) fn step(
        &mut self,
        input: &[u8],
        is_complete: bool,
        out: &mut Vec<u8>,
        cancel: &AtomicBool,
    ) -> Result<Option<TreeTotals>, Fault> {
        let result = self.take(input, out, cancel);
        // Receipts are sent even if a later item failed, and at once, because the host may wait for
        // them before it sends more.
        self.receipts.seal(out)?;
        result?;
        match &mut self.site {
            Some(site) if is_complete => {
                if site.file.is_some() || !self.unpacker.is_between_blocks() {
                    return Err(cut_off());
                }
                site.leave()?;
                Ok(Some(site.totals))
            }
            _ => Ok(None),
        }
    }

    fn take(
        &mut self,
        mut input: &[u8],
        out: &mut Vec<u8>,
        cancel: &AtomicBool,
    ) -> Result<(), Fault> {
        let Self {
            path,
            unpacker,
            receipts,
            site,
        } = self;
        let site = match site {
            Some(site) => site,
            none => none.insert(Site {
                root: Root::open(path, true)?,
                file: None,
                fresh: None,
                hasher: Box::new(blake3::Hasher::new()),
                totals: TreeTotals::default(),
            }),
        };
        while let Some(block) = unpacker
            .next_block(&mut input)
            .map_err(|error| malformed(&error))?
        {
            for item in block.items::<PutItem<'_>>() {
                check_cancel(cancel)?;
                let item = item.map_err(|error| malformed(&error))?;
                if let Some(receipt) = site.apply(&item)? {
                    receipts.push(&receipt, out)?;
                }
            }
        }
        Ok(())
    }
}

fn failed(errno: Errno, path: &[u8]) -> Fault {
    fault::file(errno, &format!("cannot write {}", shown(path)))
}

impl Site {
    fn apply(&mut self, item: &PutItem<'_>) -> Result<Option<PutReceipt>, Fault> {
        let is_content = matches!(item, PutItem::Chunk(_) | PutItem::End { .. });
        if is_content != self.file.is_some() {
            let message = "a file's content is out of order in the tree's stream";
            return Err(Fault::failed(Code::InvalidArgument, message));
        }
        if let PutItem::Chunk(bytes) = *item {
            if let Some(file) = &mut self.file {
                self.hasher.update(bytes);
                file.write(bytes)?;
                self.totals.bytes += bytes.len() as u64;
            }
            return Ok(None);
        }
        if let PutItem::Delete { path }
        | PutItem::Dir { path }
        | PutItem::Link { path, .. }
        | PutItem::File { path, .. } = *item
        {
            beneath::check(path)?;
            let is_there = |fresh: &mut NewDirectory| fresh.holds(path).is_some();
            if !self.fresh.as_mut().is_some_and(is_there) {
                self.leave()?;
            }
        }
        match *item {
            PutItem::Delete { path } => {
                let receipt = self.delete(path).map_err(|errno| {
                    fault::file(errno, &format!("cannot remove {}", shown(path)))
                })?;
                self.totals.entries += 1;
                Ok(Some(receipt))
            }
            PutItem::Dir { path } => {
                self.make_dir(path).map_err(|errno| failed(errno, path))?;
                self.totals.entries += 1;
                Ok(Some(PutReceipt::Done))
            }
            PutItem::Link { path, target } => {
                self.make_link(path, target)
                    .map_err(|errno| failed(errno, path))?;
                self.totals.entries += 1;
                Ok(Some(PutReceipt::Done))
            }
            PutItem::File {
                path,
                is_executable,
                mtime_ns,
            } => {
                self.file = Some(
                    self.begin_file(path, is_executable, mtime_ns)
                        .map_err(|errno| failed(errno, path))?,
                );
                Ok(None)
            }
            PutItem::End { size, digest } => {
                let Some(file) = self.file.take() else {
                    return Ok(None);
                };
                let receipt = file.finish(size, self.hasher.finalize().as_bytes() == &digest)?;
                self.totals.entries += 1;
                Ok(Some(receipt))
            }
            PutItem::Chunk(_) => Ok(None),
        }
    }

    /// Puts the directory that was being filled in its place.
    fn leave(&mut self) -> Result<(), Fault> {
        self.fresh.take().map_or(Ok(()), NewDirectory::finish)
    }

    /// Returns the root to resolve a path from, and the path relative to it.
    fn whereabouts<'p>(&mut self, path: &'p [u8]) -> (&mut Root, &'p [u8]) {
        match self.fresh.as_mut().and_then(|fresh| fresh.holds(path)) {
            Some(inside) => inside,
            None => (&mut self.root, path),
        }
    }

    fn delete(&mut self, path: &[u8]) -> Result<PutReceipt, Errno> {
        let (root, path) = self.whereabouts(path);
        let (dir, name) = match root.parent(path) {
            Ok(parent) => parent,
            // The parent is gone, or is not a directory any more.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(PutReceipt::Done),
            Err(errno) => return Err(errno),
        };
        match remove(&dir, name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(PutReceipt::Kept),
            Err(errno) => return Err(errno),
        }
        root.forget();
        Ok(PutReceipt::Done)
    }

    fn make_dir(&mut self, path: &[u8]) -> Result<(), Errno> {
        let usual = Mode::from_raw_mode(0o777);
        if self.fresh.is_none() {
            let (dir, name) = self.root.parent(path)?;
            let found = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
            if found.err() == Some(Errno::NOENT) {
                self.fresh = Some(NewDirectory::begin(path, dir, usual)?);
                return Ok(());
            }
        }
        let (root, path) = self.whereabouts(path);
        let (dir, name) = root.parent(path)?;
        match rustix::fs::mkdirat(&dir, name, usual) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
        let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Ok(());
        }
        rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
        rustix::fs::mkdirat(&dir, name, usual)
    }

    fn make_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Errno> {
        let (root, path) = self.whereabouts(path);
        let (dir, name) = root.parent(path)?;
        match rustix::fs::symlinkat(target, &dir, name) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
        let temporary = temporary_name();
        rustix::fs::symlinkat(target, &dir, temporary.as_slice())?;
        let placed = place(&dir, &temporary, name);
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(&dir, temporary.as_slice(), AtFlags::empty());
        }
        placed
    }

    fn begin_file(
        &mut self,
        path: &[u8],
        is_executable: bool,
        mtime_ns: i64,
    ) -> Result<NewFile, Errno> {
        let is_fresh = self.fresh.is_some();
        let (root, inner) = self.whereabouts(path);
        let (dir, name) = root.parent(inner)?;
        // The umask applies, as for all other files created inside.
        let mode = Mode::from_raw_mode(if is_executable { 0o777 } else { 0o666 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let own = if is_fresh {
            rustix::fs::openat(&dir, name, flags, mode)
        } else {
            Err(Errno::EXIST)
        };
        let has_own_name = own.is_ok();
        let (file, name) = match own {
            Ok(file) => (file, name.to_vec()),
            Err(Errno::EXIST) => temporary_in(&dir, mode)?,
            Err(errno) => return Err(errno),
        };
        self.hasher.reset();
        Ok(NewFile {
            path: path.to_vec(),
            dir,
            file,
            name,
            has_own_name,
            size: 0,
            data_end: 0,
            mtime_ns,
            is_in_place: false,
        })
    }
}

impl NewFile {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.size;
        self.size += bytes.len() as u64;
        let written = write_sparse(&self.file, at, bytes);
        let written = written.map_err(|errno| failed(errno, &self.path))?;
        self.data_end = written.unwrap_or(self.data_end);
        Ok(())
    }

    fn finish(mut self, size: u64, is_as_sent: bool) -> Result<PutReceipt, Fault> {
        if size != self.size || !is_as_sent {
            let message = format!("{} did not arrive as it was sent", shown(&self.path));
            return Err(Fault::failed(Code::Io, message).retryable());
        }
        let stat = self.settle().map_err(|errno| failed(errno, &self.path))?;
        let signature = signature(&stat);
        Ok(PutReceipt::Written {
            signature,
            is_settled: signature.is_settled(now_ns()),
        })
    }

    /// Sets the file's length and time and renames it. Returns its metadata afterwards.
    fn settle(&mut self) -> Result<rustix::fs::Stat, Errno> {
        if self.data_end < self.size {
            // A hole at the end did not extend the file. This changes the modification time, so it
            // comes before futimens(2).
            rustix::fs::ftruncate(&self.file, self.size)?;
        }
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: self.mtime_ns.div_euclid(1_000_000_000),
                tv_nsec: self.mtime_ns.rem_euclid(1_000_000_000),
            },
        };
        match rustix::fs::futimens(&self.file, &times) {
            // A time that the file system cannot store is ignored.
            Ok(()) | Err(Errno::INVAL | Errno::RANGE | Errno::OVERFLOW) => {}
            Err(errno) => return Err(errno),
        }
        if !self.has_own_name {
            let name = self.path.rsplit(|&byte| byte == b'/').next();
            place(&self.dir, &self.name, name.unwrap_or_default())?;
        }
        self.is_in_place = true;
        // After the rename, which changes ctime.
        rustix::fs::fstat(&self.file)
    }
}

/// Renames over an existing file, link or empty directory.
fn place(dir: &OwnedFd, temporary: &[u8], name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat(dir, temporary, dir, name) {
        Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
            rustix::fs::unlinkat(dir.as_fd(), name, AtFlags::REMOVEDIR)?;
            rustix::fs::renameat(dir, temporary, dir, name)
        }
        other => other,
    }
}

/// Removes a file, a link or an empty directory.
fn remove(dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        // POSIX says EPERM for a directory, Linux says EISDIR.
        Err(Errno::ISDIR | Errno::PERM) => rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR),
        other => other,
    }
}
