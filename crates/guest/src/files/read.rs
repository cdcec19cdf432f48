//! Reads a regular file in steps. Between two steps only its descriptor is held.

use super::{own, require_regular, shown};
use crate::fault;
use glovebox_proto::{Fault, Reply, limits};
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Maximum number of bytes of one step: half a window, so that the host consumes one half while the
/// guest reads the other, with few hand-overs between threads.
pub(crate) const STEP_BYTES: usize = limits::WINDOW_BYTES as usize / 2;

/// An open file and the position in it.
#[derive(Debug)]
pub(crate) struct Source {
    path: Vec<u8>,
    file: Option<OwnedFd>,
    at: u64,
    /// Bytes still to be read; `u64::MAX` for all.
    left: u64,
    /// Size of the file when it was opened, in bytes.
    pub(crate) size: u64,
    /// Bytes read so far.
    pub(crate) bytes: u64,
    /// Bytes read by the last step.
    pub(crate) read: usize,
    /// True if nothing more will be read.
    pub(crate) is_end: bool,
}

impl Source {
    /// Creates a source; the first step opens the file.
    pub(crate) fn new(path: Vec<u8>, offset: u64, max_bytes: Option<u64>) -> Self {
        let left = max_bytes.unwrap_or(u64::MAX);
        Self {
            path,
            file: None,
            at: offset,
            left,
            size: 0,
            bytes: 0,
            read: 0,
            is_end: false,
        }
    }

    /// Returns the answer to the request, for after the last step.
    pub(crate) fn reply(&self) -> Reply {
        Reply::Read {
            bytes: self.bytes,
            size: self.size,
        }
    }

    fn failed(&self, errno: Errno) -> Fault {
        fault::file(errno, &format!("cannot read {}", shown(&self.path)))
    }

    fn open(&self) -> Result<(OwnedFd, u64), Fault> {
        // The check before the open avoids touching a FIFO or a device at all. The check of the
        // open file is the reliable one, and O_NONBLOCK keeps an open in between from hanging.
        let stat = rustix::fs::stat(self.path.as_slice()).map_err(|errno| self.failed(errno))?;
        require_regular(&stat, &self.path)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file =
            own::open(&self.path, flags, Mode::empty()).map_err(|errno| self.failed(errno))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.failed(errno))?;
        require_regular(&stat, &self.path)?;
        Ok((file, u64::try_from(stat.st_size).unwrap_or(0)))
    }
}

/// Reads all of an open file that had `size` bytes and may have grown. `None` if it has more than
/// `most`.
pub(super) fn read_whole(file: &OwnedFd, size: u64, most: u64) -> Result<Option<Vec<u8>>, Errno> {
    let mut content = Vec::with_capacity(size.min(most) as usize + 1);
    loop {
        if content.len() == content.capacity() {
            content.reserve(STEP_BYTES);
        }
        match rustix::io::read(file, spare_capacity(&mut content)) {
            Ok(0) => return Ok(Some(content)),
            Ok(_) if content.len() as u64 > most => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Opens the file in the first step, then reads up to `room` bytes to the start of `buffer`;
/// `source.read` is their number.
pub(crate) fn read_step(
    mut source: Source,
    room: usize,
    mut buffer: Vec<u8>,
) -> Result<(Source, Vec<u8>), Fault> {
    let file = if let Some(file) = source.file.take() {
        file
    } else {
        let (file, size) = source.open()?;
        source.size = size;
        file
    };
    let mut wanted = room.min(STEP_BYTES);
    wanted = usize::try_from(source.left)
        .unwrap_or(usize::MAX)
        .min(wanted);
    // A small file needs no large buffer; one byte more than its size reveals the end.
    let rest = source.size.saturating_sub(source.at).saturating_add(1);
    let first = usize::try_from(rest).unwrap_or(usize::MAX).max(4096);
    wanted = wanted.min(first);
    if buffer.len() < wanted {
        buffer.resize(wanted, 0);
    }
    let mut done = 0;
    source.is_end = source.left == 0;
    while done < wanted {
        match rustix::io::pread(&file, &mut buffer[done..wanted], source.at) {
            Ok(0) => {
                source.is_end = true;
                break;
            }
            Ok(count) => {
                done += count;
                source.at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(source.failed(errno)),
        }
    }
    source.read = done;
    source.bytes += done as u64;
    if source.left != u64::MAX {
        source.left -= done as u64;
        source.is_end |= source.left == 0;
    }
    source.file = Some(file);
    Ok((source, buffer))
}
