//! Lists that may be long. They are kept in files instead of memory, in the blocks of tree streams,
//! or taken from another thread while it produces them.

use crate::beneath::io;
use glovebox_proto::tree::{Packer, Packing, Unpacker};
use glovebox_proto::{Code, Fault, WireError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;

/// Number of bytes read at a time.
const READ_BYTES: usize = 64 << 10;
/// Number of bytes collected before they are written.
const WRITE_BYTES: usize = 256 << 10;

/// A list that is being written.
#[derive(Debug)]
pub(super) struct Spool<T> {
    file: File,
    path: PathBuf,
    packer: Packer,
    out: Vec<u8>,
    kind: PhantomData<fn(T)>,
}

impl<T: Serialize> Spool<T> {
    /// Creates a list in a file without a name, which is freed with the last reader.
    pub(super) fn unnamed(dir: &Path) -> Result<Self, Fault> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!(".list-{}-{number}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| io("make", &path, error))?;
        std::fs::remove_file(&path).map_err(|error| io("remove", &path, error))?;
        Self::over(file, path)
    }

    /// Creates a list in an open file.
    pub(super) fn over(file: File, path: PathBuf) -> Result<Self, Fault> {
        Ok(Self {
            file,
            path,
            packer: Packer::new(Packing::Stored)?,
            out: Vec::new(),
            kind: PhantomData,
        })
    }

    /// Appends an item.
    pub(super) fn push(&mut self, item: &T) -> Result<(), Fault> {
        self.packer.push(item, &mut self.out)?;
        if self.out.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        let written = self.file.write_all(&self.out);
        self.out.clear();
        written.map_err(|error| io("write", &self.path, error))
    }

    /// Writes the rest, and returns the list.
    pub(super) fn finish(mut self) -> Result<SpooledList<T>, Fault> {
        self.packer.seal(&mut self.out)?;
        self.flush()?;
        Ok(SpooledList {
            file: Arc::new(self.file),
            path: self.path,
            kind: PhantomData,
        })
    }
}

/// A complete list.
#[derive(Debug)]
pub(super) struct SpooledList<T> {
    file: Arc<File>,
    path: PathBuf,
    kind: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> SpooledList<T> {
    /// Opens a list in a file.
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        let file = File::open(path).map_err(|error| io("open", path, error))?;
        Ok(Self {
            file: Arc::new(file),
            path: path.to_owned(),
            kind: PhantomData,
        })
    }

    /// Returns a reader from the beginning. Several readers can be used at the same time.
    pub(super) fn read(&self) -> Reader<T> {
        Reader {
            source: Source::File(FileSource {
                file: Arc::clone(&self.file),
                path: self.path.clone(),
                at: 0,
                unpacker: Unpacker::new(),
            }),
            ready: VecDeque::new(),
        }
    }
}

/// Part of a list that another thread produces.
#[derive(Debug)]
pub(super) enum Batch<T> {
    Items(Vec<T>),
    /// End of the list, or the error that ended it.
    End(Result<(), Fault>),
}

/// Source of the items of a list.
#[derive(Debug)]
enum Source<T> {
    File(FileSource),
    Thread(Receiver<Batch<T>>),
    /// All items have been read.
    End,
}

#[derive(Debug)]
struct FileSource {
    file: Arc<File>,
    path: PathBuf,
    at: u64,
    unpacker: Unpacker,
}

/// Reader of a list.
#[derive(Debug)]
pub(super) struct Reader<T> {
    source: Source<T>,
    /// Items of the last block or batch.
    ready: VecDeque<T>,
}

impl<T: DeserializeOwned> Reader<T> {
    /// Returns a reader of an empty list.
    pub(super) fn empty() -> Self {
        Self {
            source: Source::End,
            ready: VecDeque::new(),
        }
    }

    /// Returns a reader of a list that another thread produces.
    pub(super) fn along(batches: Receiver<Batch<T>>) -> Self {
        Self {
            source: Source::Thread(batches),
            ready: VecDeque::new(),
        }
    }

    /// Returns the next item without taking it; `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<&T>, Fault> {
        self.fill()?;
        Ok(self.ready.front())
    }

    /// Takes the next item; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<T>, Fault> {
        self.fill()?;
        Ok(self.ready.pop_front())
    }

    fn fill(&mut self) -> Result<(), Fault> {
        while self.ready.is_empty() {
            let has_more = match &mut self.source {
                Source::End => return Ok(()),
                Source::File(source) => source.read(&mut self.ready)?,
                Source::Thread(batches) => match batches.recv() {
                    Ok(Batch::Items(items)) => {
                        self.ready.extend(items);
                        true
                    }
                    Ok(Batch::End(end)) => {
                        end?;
                        false
                    }
                    // A thread that stops without an end mark has failed. The list must not count
                    // as complete.
                    Err(_) => {
                        let message = "who makes a list stopped in the middle of it";
                        return Err(Fault::failed(Code::Internal, message));
                    }
                },
            };
            if !has_more {
                self.source = Source::End;
            }
        }
        Ok(())
    }
}

impl FileSource {
    /// Reads some items from the file. Returns false at its end.
    fn read<T: DeserializeOwned>(&mut self, ready: &mut VecDeque<T>) -> Result<bool, Fault> {
        let Self {
            file,
            path,
            at,
            unpacker,
        } = self;
        let damaged = |error: &WireError| {
            let message = format!("{} is damaged: {error}", path.display());
            Fault::failed(Code::Io, message)
        };
        let mut bytes = vec![0; READ_BYTES];
        let count = match file.read_at(&mut bytes, *at) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(io("read", path, error)),
        };
        *at += count as u64;
        let mut input = &bytes[..count];
        while let Some(block) = unpacker
            .next_block(&mut input)
            .map_err(|error| damaged(&error))?
        {
            for item in block.items::<T>() {
                ready.push_back(item.map_err(|error| damaged(&error))?);
            }
        }
        if count == 0 && !unpacker.is_between_blocks() {
            let message = format!("{} is cut off", path.display());
            return Err(Fault::failed(Code::Io, message));
        }
        Ok(count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_list_that_is_being_made_ends_where_its_maker_says_so() {
        let (maker, batches) = sync_channel(8);
        let mut reader = Reader::along(batches);
        for batch in [vec![1, 2], vec![], vec![3]] {
            maker.send(Batch::Items(batch)).unwrap();
        }
        maker.send(Batch::End(Ok(()))).unwrap();
        let mut read = || reader.next().unwrap();
        let found = [read(), read(), read(), read(), read()];
        assert_eq!(found, [Some(1), Some(2), Some(3), None, None]);
    }

    #[test]
    fn a_list_whose_maker_fails_or_vanishes_is_never_taken_for_a_whole_one() {
        let fault = Fault::failed(Code::Io, "cannot read it");
        for end in [Some(fault), None] {
            let (maker, batches) = sync_channel(8);
            let mut reader = Reader::along(batches);
            maker.send(Batch::Items(vec![1])).unwrap();
            let code = end.as_ref().map_or(Code::Internal, |fault| fault.code);
            if let Some(fault) = end {
                maker.send(Batch::End(Err(fault))).unwrap();
            }
            drop(maker);
            assert_eq!(reader.next().unwrap(), Some(1));
            for _ in 0..2 {
                let failed = reader.next().unwrap_err();
                assert!([code, Code::Internal].contains(&failed.code), "{failed}");
            }
        }
    }
}
