//! Reader of a tar stream: its entries in order, with their contents.

use super::header::{Header, HeaderKind};
use super::pax::PaxRecords;
use super::{ArchiveError, ArchiveProblem, BLOCK_BYTES};
use std::io::{self, Read};

/// Maximum size of the records about one entry, in bytes: a path, a link target, times and a few
/// attributes.
const MAX_RECORD_BYTES: u64 = 64 << 10;
/// Maximum total size of the records of all entries, in bytes.
const MAX_RECORDS_BYTES: u64 = 64 << 20;
/// Maximum number of record headers before an entry.
const MAX_RECORD_HEADERS: usize = 4;
/// Maximum number of zero bytes after the end marker: writers fill the last record of a tape.
const MAX_TAIL_BYTES: u64 = 4 << 20;

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    File { is_executable: bool },
    Dir,
    Link,
    HardLink,
}

/// An entry. If it is a file, the reader returns its content next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TarEntry {
    /// Path as stored, unchecked.
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryKind,
    pub(super) size: u64,
    /// Target of a link, as stored.
    pub(super) link: Vec<u8>,
}

/// Reader of the entries of a tar stream.
#[derive(Debug)]
pub(super) struct TarReader<R> {
    input: R,
    /// Unread bytes of the current content, and of the padding after it.
    content: u64,
    padding: u64,
    /// Remaining bytes of records that are allowed.
    records_left: u64,
    is_first: bool,
}

impl<R: Read> TarReader<R> {
    pub(super) const fn new(input: R) -> Self {
        Self {
            input,
            content: 0,
            padding: 0,
            records_left: MAX_RECORDS_BYTES,
            is_first: true,
        }
    }

    /// Skips the rest of the previous entry and returns the next one. `None` at the end; the stream
    /// has then been read completely and found valid.
    // TRUST: all input is untrusted. The memory that it takes is bounded here, the bytes written by
    // the caller.
    pub(super) fn next(&mut self) -> Result<Option<TarEntry>, ArchiveError> {
        self.skip()?;
        let mut records = PaxRecords::default();
        for _ in 0..=MAX_RECORD_HEADERS {
            let Some(header) = self.header()? else {
                if !records.is_empty() {
                    return Err(ArchiveError::whole(ArchiveProblem::Cut));
                }
                self.finish()?;
                return Ok(None);
            };
            match header.kind {
                HeaderKind::Extended => {
                    let found = PaxRecords::read(&self.records(&header)?);
                    let found = found.map_err(|problem| ArchiveError::at(problem, &header.path))?;
                    records = PaxRecords {
                        path: found.path.or(records.path),
                        link: found.link.or(records.link),
                        size: found.size.or(records.size),
                    };
                }
                HeaderKind::Global => {
                    let found = PaxRecords::read(&self.records(&header)?);
                    let found = found.map_err(|problem| ArchiveError::at(problem, &header.path))?;
                    // A path for every entry makes no sense.
                    if !found.is_empty() {
                        return Err(ArchiveError::whole(ArchiveProblem::Unsupported));
                    }
                }
                HeaderKind::LongName => records.path = Some(self.long_text(&header)?),
                HeaderKind::LongLink => records.link = Some(self.long_text(&header)?),
                _ => return self.entry(header, records).map(Some),
            }
        }
        Err(ArchiveError::whole(ArchiveProblem::Corrupt))
    }

    fn entry(&mut self, header: Header, records: PaxRecords) -> Result<TarEntry, ArchiveError> {
        let path = records.path.unwrap_or(header.path);
        let refused = |problem| Err(ArchiveError::at(problem, &path));
        let kind = match header.kind {
            HeaderKind::File => EntryKind::File {
                is_executable: header.is_executable,
            },
            HeaderKind::Dir => EntryKind::Dir,
            HeaderKind::Link => EntryKind::Link,
            HeaderKind::HardLink => EntryKind::HardLink,
            HeaderKind::Special => return refused(ArchiveProblem::SpecialFile),
            _ => return refused(ArchiveProblem::Unsupported),
        };
        // Programs disagree about the content of anything but a file, and about which of two sizes
        // holds. Accepting either would let an archive mean different things to different readers.
        let is_file = matches!(kind, EntryKind::File { .. });
        if (!is_file && header.size != 0) || records.size.is_some_and(|size| size != header.size) {
            return refused(ArchiveProblem::Corrupt);
        }
        self.expect(header.size);
        Ok(TarEntry {
            kind,
            size: header.size,
            link: records.link.unwrap_or(header.link),
            path,
        })
    }

    fn expect(&mut self, size: u64) {
        let block = BLOCK_BYTES as u64;
        self.content = size;
        self.padding = (block - size % block) % block;
    }

    fn header(&mut self) -> Result<Option<Header>, ArchiveError> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        // A truncated compressed stream fails in the decoder. A plain one returns a short block.
        (&mut self.input)
            .take(BLOCK_BYTES as u64)
            .read_to_end(&mut block)
            .map_err(|error| ArchiveError::reading(&error))?;
        let block = block.as_slice().try_into().map_err(|_| {
            ArchiveError::whole(if is_first {
                ArchiveProblem::Format
            } else {
                ArchiveProblem::Cut
            })
        })?;
        Header::read(block).map_err(|problem| {
            ArchiveError::whole(if is_first {
                ArchiveProblem::Format
            } else {
                problem
            })
        })
    }

    /// Reads the content of a header that describes other entries.
    fn records(&mut self, header: &Header) -> Result<Vec<u8>, ArchiveError> {
        if header.size > MAX_RECORD_BYTES.min(self.records_left) {
            return Err(ArchiveError::at(ArchiveProblem::TooLarge, &header.path));
        }
        self.records_left -= header.size;
        let mut bytes = vec![0; header.size as usize];
        self.fill(&mut bytes)?;
        self.expect(header.size);
        self.content = 0;
        self.skip()?;
        Ok(bytes)
    }

    fn long_text(&mut self, header: &Header) -> Result<Vec<u8>, ArchiveError> {
        let mut text = self.records(header)?;
        if let Some(end) = text.iter().position(|byte| *byte == 0) {
            text.truncate(end);
        }
        Ok(text)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ArchiveError> {
        let filled = self.input.read_exact(bytes);
        filled.map_err(|error| ArchiveError::reading(&error))
    }

    /// Skips the rest of the current entry.
    fn skip(&mut self) -> Result<(), ArchiveError> {
        let mut left = std::mem::take(&mut self.content);
        left = left.saturating_add(std::mem::take(&mut self.padding));
        let mut block = [0; BLOCK_BYTES];
        while left > 0 {
            let count = left.min(BLOCK_BYTES as u64);
            self.fill(&mut block[..count as usize])?;
            left -= count;
        }
        Ok(())
    }

    /// Reads to the end of the stream, which lets a decoder check its sums. Everything after the
    /// first block of the end marker must be zeros.
    fn finish(&mut self) -> Result<(), ArchiveError> {
        let mut block = [0; 8 * BLOCK_BYTES];
        let mut left = MAX_TAIL_BYTES;
        loop {
            let count = match self.input.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ArchiveError::reading(&error)),
            };
            if block[..count].iter().any(|byte| *byte != 0) {
                return Err(ArchiveError::whole(ArchiveProblem::Corrupt));
            }
            left = left
                .checked_sub(count as u64)
                .ok_or_else(|| ArchiveError::whole(ArchiveProblem::TooLarge))?;
        }
    }
}

/// Reads the content of the current entry.
impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.content).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.content -= count as u64;
        Ok(count)
    }
}
