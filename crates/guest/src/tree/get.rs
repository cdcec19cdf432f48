//! Reads listed files of a tree. Each is sent with its digest, without content if the host has it
//! already.

use super::beneath::{self, Root};
use super::{STEP_BYTES, check_cancel, cut_off, malformed, now_ns, signature};
use crate::fault;
use crate::files::{own, require_regular, shown};
use glovebox_proto::tree::{
    Digest, GotItem, Packer, Packing, Signature, TreeTotals, Unpacker, Want,
};
use glovebox_proto::{Fault, WireError};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

/// Bytes of one read if only the digest is wanted.
const HASH_BYTES: usize = 64 << 10;

/// State of a `TreeGet` request.
#[derive(Debug)]
pub(crate) struct Get {
    path: Vec<u8>,
    root: Option<Root>,
    unpacker: Unpacker,
    /// Files still to be read; the input window bounds their number.
    wants: VecDeque<WantedFile>,
    reading: Option<Reading>,
    buffer: Vec<u8>,
    packer: Packer,
    totals: TreeTotals,
}

#[derive(Debug)]
struct WantedFile {
    path: Vec<u8>,
    known: Option<(u64, Digest)>,
    has_content: bool,
}

/// File that is being sent.
#[derive(Debug)]
struct Reading {
    path: Vec<u8>,
    file: OwnedFd,
    before: Signature,
    hasher: Box<blake3::Hasher>,
    size: u64,
}

impl Get {
    /// Creates a request; the first step opens the directory.
    pub(crate) fn new(path: Vec<u8>, packing: Packing) -> Result<Self, Fault> {
        Ok(Self {
            path,
            root: None,
            unpacker: Unpacker::new(),
            wants: VecDeque::new(),
            reading: None,
            buffer: Vec::new(),
            packer: Packer::new(packing)?,
            totals: TreeTotals::default(),
        })
    }

    /// Returns true if requested files are still to be read.
    pub(super) fn has_more(&self) -> bool {
        self.reading.is_some() || !self.wants.is_empty()
    }

    /// Works until a block can be sent or nothing is left to read. Returns the totals at the end of
    /// the list.
    pub(super) fn step(
        &mut self,
        input: &[u8],
        is_complete: bool,
        out: &mut Vec<u8>,
        cancel: &AtomicBool,
    ) -> Result<Option<TreeTotals>, Fault> {
        if self.root.is_none() {
            self.root = Some(Root::open(&self.path, false)?);
        }
        self.take(input)?;
        while self.has_more() {
            if out.len() >= STEP_BYTES {
                return Ok(None);
            }
            check_cancel(cancel)?;
            match self.reading.take() {
                Some(reading) => self.send_more(reading, out)?,
                None => {
                    if let Some(want) = self.wants.pop_front() {
                        self.begin(want, out, cancel)?;
                    }
                }
            }
        }
        // The host may wait for these files before it requests more, so the block must not stay
        // open.
        self.packer.seal(out)?;
        if !is_complete {
            return Ok(None);
        }
        if !self.unpacker.is_between_blocks() {
            return Err(cut_off());
        }
        Ok(Some(self.totals))
    }

    fn take(&mut self, mut input: &[u8]) -> Result<(), Fault> {
        let bad = |error: WireError| malformed(&error);
        while let Some(block) = self.unpacker.next_block(&mut input).map_err(bad)? {
            for want in block.items::<Want<'_>>() {
                let want = want.map_err(bad)?;
                beneath::check(want.path)?;
                self.wants.push_back(WantedFile {
                    path: want.path.to_vec(),
                    known: want.known,
                    has_content: want.has_content,
                });
            }
        }
        Ok(())
    }

    fn begin(
        &mut self,
        want: WantedFile,
        out: &mut Vec<u8>,
        cancel: &AtomicBool,
    ) -> Result<(), Fault> {
        let opened = self.open(&want.path).and_then(|(file, before)| {
            let is_known = |size: u64, digest: &Digest| want.known == Some((size, *digest));
            let may_be_known = want.known.is_some_and(|(size, _)| size == before.size);
            if !want.has_content || may_be_known {
                let (size, digest) = self.digest(&file, &want.path, cancel)?;
                if !want.has_content || is_known(size, &digest) {
                    return Ok(Err((file, before, size, digest)));
                }
            }
            Ok(Ok((file, before)))
        });
        match opened {
            Ok(Ok((file, before))) => {
                self.reading = Some(Reading {
                    path: want.path,
                    file,
                    before,
                    hasher: Box::new(blake3::Hasher::new()),
                    size: 0,
                });
                Ok(())
            }
            Ok(Err((file, before, size, digest))) => {
                self.end(&want.path, &file, before, size, digest, false, out)
            }
            Err(fault) if fault.code == glovebox_proto::Code::Cancelled => Err(fault),
            Err(fault) => self.fail(&fault, out),
        }
    }

    fn open(&mut self, path: &[u8]) -> Result<(OwnedFd, Signature), Fault> {
        let failed = |errno| fault::file(errno, &format!("cannot read {}", shown(path)));
        let Some(root) = &mut self.root else {
            return Err(failed(Errno::BADF));
        };
        let (dir, name) = root.parent(path).map_err(failed)?;
        // The check before the open avoids touching a FIFO or a device at all. The check of the
        // open file is the reliable one, and O_NONBLOCK keeps an open in between from hanging.
        let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        require_regular(&stat, path)?;
        let flags =
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, name, flags, Mode::empty()).map_err(failed)?;
        own::refuse(&file).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        require_regular(&stat, path)?;
        Ok((file, signature(&stat)))
    }

    /// Reads a file only for its size and digest.
    fn digest(
        &mut self,
        file: &OwnedFd,
        path: &[u8],
        cancel: &AtomicBool,
    ) -> Result<(u64, Digest), Fault> {
        self.buffer.resize(HASH_BYTES, 0);
        let mut hasher = blake3::Hasher::new();
        let mut size = 0;
        loop {
            check_cancel(cancel)?;
            let count = read_at(file, &mut self.buffer, size)
                .map_err(|errno| fault::file(errno, &format!("cannot read {}", shown(path))))?;
            if count == 0 {
                self.totals.bytes += size;
                return Ok((size, *hasher.finalize().as_bytes()));
            }
            hasher.update(&self.buffer[..count]);
            size += count as u64;
        }
    }

    fn send_more(&mut self, mut reading: Reading, out: &mut Vec<u8>) -> Result<(), Fault> {
        let room = self.packer.chunk_room();
        self.buffer.resize(room, 0);
        match read_at(&reading.file, &mut self.buffer, reading.size) {
            Ok(0) => {
                let digest = *reading.hasher.finalize().as_bytes();
                let Reading {
                    path,
                    file,
                    before,
                    size,
                    ..
                } = reading;
                self.totals.bytes += size;
                self.end(&path, &file, before, size, digest, true, out)
            }
            Ok(count) => {
                let bytes = &self.buffer[..count];
                reading.hasher.update(bytes);
                reading.size += count as u64;
                self.packer.push(&GotItem::Chunk(bytes), out)?;
                self.reading = Some(reading);
                Ok(())
            }
            Err(errno) => {
                let what = format!("cannot read {}", shown(&reading.path));
                self.fail(&fault::file(errno, &what), out)
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what is known about a file that was read"
    )]
    fn end(
        &mut self,
        path: &[u8],
        file: &OwnedFd,
        before: Signature,
        size: u64,
        digest: Digest,
        has_content: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let what = || format!("cannot look at {}", shown(path));
        let after = rustix::fs::fstat(file).map_err(|errno| fault::file(errno, &what()))?;
        let is_same = signature(&after) == before && size == before.size;
        self.totals.entries += 1;
        let item = GotItem::End {
            signature: before,
            is_settled: is_same && before.is_settled(now_ns()),
            is_torn: !is_same,
            size,
            digest,
            has_content,
        };
        self.packer.push(&item, out)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.totals.failed += 1;
        let item = GotItem::Failed {
            code: fault.code,
            message: &fault.message,
        };
        self.packer.push(&item, out)
    }
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &OwnedFd, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(file, &mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}
