//! Changing a tree as a stream of items says. Every file is written beside its place, checked
//! against its digest, and renamed into it.

use super::beneath::{self, Root};
use super::{check_cancel, cut_off, malformed, now_ns, signature};
use crate::fault;
use crate::files::{shown, temporary_in, temporary_name};
use glovebox_proto::tree::{Packer, Packing, PutItem, PutReceipt, TreeTotals, Unpacker};
use glovebox_proto::{Code, Fault};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A put and where it stands.
#[derive(Debug)]
pub(crate) struct Put {
    path: Vec<u8>,
    unpacker: Unpacker,
    receipts: Packer,
    site: Option<Site>,
}

/// The tree as far as it has been changed.
#[derive(Debug)]
struct Site {
    root: Root,
    file: Option<Growing>,
    /// Of the file that is being written.
    hasher: Box<blake3::Hasher>,
    totals: TreeTotals,
}

/// A file that is being written. Dropping it leaves no trace.
#[derive(Debug)]
struct Growing {
    path: Vec<u8>,
    dir: Arc<OwnedFd>,
    file: OwnedFd,
    temporary: Vec<u8>,
    size: u64,
    mtime_ns: i64,
    is_in_place: bool,
}

impl Drop for Growing {
    fn drop(&mut self) {
        if !self.is_in_place {
            let _ = rustix::fs::unlinkat(&self.dir, self.temporary.as_slice(), AtFlags::empty());
        }
    }
}

impl Put {
    /// Nothing is opened yet.
    pub(crate) fn new(path: Vec<u8>) -> Result<Self, Fault> {
        Ok(Self {
            path,
            unpacker: Unpacker::new(),
            // Some bytes per file: not worth compressing.
            receipts: Packer::new(Packing::Stored)?,
            site: None,
        })
    }

    /// Does what has arrived.
    pub(super) fn step(
        &mut self,
        input: &[u8],
        is_complete: bool,
        out: &mut Vec<u8>,
        cancel: &AtomicBool,
    ) -> Result<Option<TreeTotals>, Fault> {
        let result = self.take(input, out, cancel);
        // What was done is told at once, also if the rest could not be: whoever sends may wait for it
        // before sending more.
        self.receipts.seal(out)?;
        result?;
        match &self.site {
            Some(site) if is_complete => {
                if site.file.is_some() || !self.unpacker.is_between_blocks() {
                    return Err(cut_off());
                }
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
        match *item {
            PutItem::Delete { path } => {
                beneath::check(path)?;
                let receipt = self.delete(path).map_err(|errno| {
                    fault::file(errno, &format!("cannot remove {}", shown(path)))
                })?;
                self.totals.entries += 1;
                Ok(Some(receipt))
            }
            PutItem::Dir { path } => {
                beneath::check(path)?;
                self.make_dir(path).map_err(|errno| failed(errno, path))?;
                self.totals.entries += 1;
                Ok(Some(PutReceipt::Done))
            }
            PutItem::Link { path, target } => {
                beneath::check(path)?;
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
                beneath::check(path)?;
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

    fn delete(&mut self, path: &[u8]) -> Result<PutReceipt, Errno> {
        let (dir, name) = match self.root.parent(path) {
            Ok(parent) => parent,
            // What it was in is gone, or is no directory any more.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(PutReceipt::Done),
            Err(errno) => return Err(errno),
        };
        match remove(&dir, name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(PutReceipt::Kept),
            Err(errno) => return Err(errno),
        }
        self.root.forget();
        Ok(PutReceipt::Done)
    }

    fn make_dir(&mut self, path: &[u8]) -> Result<(), Errno> {
        let (dir, name) = self.root.parent(path)?;
        let usual = Mode::from_raw_mode(0o777);
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
        let (dir, name) = self.root.parent(path)?;
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
    ) -> Result<Growing, Errno> {
        let (dir, _) = self.root.parent(path)?;
        // Less what the umask takes away, as everything else made inside.
        let mode = if is_executable { 0o777 } else { 0o666 };
        let (file, temporary) = temporary_in(&dir, Mode::from_raw_mode(mode))?;
        self.hasher.reset();
        Ok(Growing {
            path: path.to_vec(),
            dir,
            file,
            temporary,
            size: 0,
            mtime_ns,
            is_in_place: false,
        })
    }
}

impl Growing {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.size += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(&self.file, rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno, &self.path)),
            }
        }
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

    /// Gives the file its time and its place.
    fn settle(&mut self) -> Result<rustix::fs::Stat, Errno> {
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
            // A time the file system cannot keep.
            Ok(()) | Err(Errno::INVAL | Errno::RANGE | Errno::OVERFLOW) => {}
            Err(errno) => return Err(errno),
        }
        let name = self
            .path
            .iter()
            .rposition(|&byte| byte == b'/')
            .map_or(0, |slash| slash + 1);
        place(&self.dir, &self.temporary, &self.path[name..])?;
        self.is_in_place = true;
        // Renaming has changed it once more.
        rustix::fs::fstat(&self.file)
    }
}

/// Renames over whatever is there; an empty directory gives way too.
fn place(dir: &OwnedFd, temporary: &[u8], name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat(dir, temporary, dir, name) {
        Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
            rustix::fs::unlinkat(dir.as_fd(), name, AtFlags::REMOVEDIR)?;
            rustix::fs::renameat(dir, temporary, dir, name)
        }
        other => other,
    }
}

/// Removes a file, a link, or an empty directory.
fn remove(dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        // POSIX says EPERM for a directory, Linux says EISDIR.
        Err(Errno::ISDIR | Errno::PERM) => rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR),
        other => other,
    }
}
