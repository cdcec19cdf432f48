//! Header of a tar archive entry, 512 bytes. Reads the formats of POSIX `ustar` and GNU tar, and
//! writes `ustar`.
//!
//! Source: POSIX.1-2017, `pax`, "ustar Interchange Format"; the GNU tar manual, "Basic Tar Format".

use super::{ArchiveProblem, BLOCK_BYTES};
use std::ops::Range;

const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const MTIME: Range<usize> = 136..148;
const CHECKSUM: Range<usize> = 148..156;
const KIND: usize = 156;
const LINK: Range<usize> = 157..257;
const MAGIC: Range<usize> = 257..265;
const PREFIX: Range<usize> = 345..500;

const USTAR: &[u8; 8] = b"ustar\x0000";
/// Maximum length of a path or link target in a header, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 100;

/// Kind of object that a header describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderKind {
    File,
    HardLink,
    Link,
    Dir,
    /// A device or FIFO.
    Special,
    /// Records about the next entry.
    Extended,
    /// Records about every further entry.
    Global,
    /// The path of the next entry (GNU).
    LongName,
    /// The link target of the next entry (GNU).
    LongLink,
    Other,
}

/// Decoded fields of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: HeaderKind,
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) size: u64,
    pub(super) is_executable: bool,
}

impl Header {
    /// Decodes a header. `None` for the block of zeros that ends an archive.
    ///
    /// # Errors
    /// [`ArchiveProblem::Corrupt`] if the checksum or a number is wrong.
    // TRUST: the bytes are untrusted. Every number is bounded by its field, every text by the end
    // of its field.
    pub(super) fn read(block: &[u8; BLOCK_BYTES]) -> Result<Option<Self>, ArchiveProblem> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if number(&block[CHECKSUM])? != u64::from(checksum(block)) {
            return Err(ArchiveProblem::Corrupt);
        }
        let mut path = text(&block[NAME]).to_vec();
        // GNU tar uses the space of the prefix for other fields.
        let prefix = text(&block[PREFIX]);
        if block[MAGIC].starts_with(&USTAR[..6]) && !prefix.is_empty() {
            path = [prefix, b"/", path.as_slice()].concat();
        }
        let kind = match block[KIND] {
            // Formats older than the kind for directories marked them by a slash at the end.
            b'0' | 0 if path.ends_with(b"/") => HeaderKind::Dir,
            b'0' | b'7' | 0 => HeaderKind::File,
            b'1' => HeaderKind::HardLink,
            b'2' => HeaderKind::Link,
            b'3' | b'4' | b'6' => HeaderKind::Special,
            b'5' => HeaderKind::Dir,
            b'x' => HeaderKind::Extended,
            b'g' => HeaderKind::Global,
            b'L' => HeaderKind::LongName,
            b'K' => HeaderKind::LongLink,
            _ => HeaderKind::Other,
        };
        Ok(Some(Self {
            kind,
            path,
            link: text(&block[LINK]).to_vec(),
            size: number(&block[SIZE])?,
            is_executable: number(&block[MODE])? & 0o100 != 0,
        }))
    }

    /// Encodes the header of an entry of a POSIX kind. Path and link must fit into their fields.
    pub(super) fn write(&self, kind: u8, mtime_s: u64) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        let mut put = |field: Range<usize>, bytes: &[u8]| {
            let len = bytes.len().min(field.len());
            block[field.start..field.start + len].copy_from_slice(&bytes[..len]);
        };
        let mode = if self.is_executable || kind == b'5' {
            0o755
        } else {
            0o644
        };
        put(NAME, &self.path);
        put(MODE, &octal(mode, MODE.len()));
        put(UID, &octal(0, UID.len()));
        put(GID, &octal(0, GID.len()));
        put(SIZE, &octal(self.size, SIZE.len()));
        put(MTIME, &octal(mtime_s, MTIME.len()));
        put(KIND..KIND + 1, &[kind]);
        put(LINK, &self.link);
        put(MAGIC, USTAR);
        let sum = format!("{:06o}\0 ", checksum(&block));
        block[CHECKSUM].copy_from_slice(sum.as_bytes());
        block
    }
}

/// Returns the sum of all bytes, with those of the checksum field counted as spaces.
fn checksum(block: &[u8; BLOCK_BYTES]) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    sum(&block[..CHECKSUM.start])
        + sum(&block[CHECKSUM.end..])
        + CHECKSUM.len() as u32 * u32::from(b' ')
}

/// Returns the text before the first NUL byte.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0);
    &field[..end.unwrap_or(field.len())]
}

/// Decodes a number: octal digits with spaces around them, or binary if the first bit is set (GNU).
fn number(field: &[u8]) -> Result<u64, ArchiveProblem> {
    let corrupt = ArchiveProblem::Corrupt;
    if let [0x80, rest @ ..] = field {
        let (high, low) = rest.split_at(rest.len().saturating_sub(8));
        if high.iter().any(|byte| *byte != 0) {
            return Err(corrupt);
        }
        return Ok(low
            .iter()
            .fold(0, |sum, byte| (sum << 8) | u64::from(*byte)));
    }
    let digits = text(field).trim_ascii();
    let mut sum = 0_u64;
    // A field has 12 bytes at most, so that nothing overflows.
    for digit in digits {
        if !(b'0'..=b'7').contains(digit) {
            return Err(corrupt);
        }
        sum = (sum << 3) | u64::from(digit - b'0');
    }
    Ok(sum)
}

/// Encodes a number for a field of `len` bytes: octal, or binary if octal digits do not suffice.
fn octal(number: u64, len: usize) -> Vec<u8> {
    let digits = format!("{number:0width$o}\0", width = len - 1);
    if digits.len() <= len {
        return digits.into_bytes();
    }
    let mut field = vec![0; len];
    field[0] = 0x80;
    field[len - 8..].copy_from_slice(&number.to_be_bytes());
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for number in [0, 1, 0o777, (8 << 30) - 1, 8 << 30, 1 << 40] {
            let field = octal(number, SIZE.len());
            assert_eq!((field.len(), super::number(&field)), (12, Ok(number)));
        }
        assert_eq!(number(b"  644 \0\0"), Ok(0o644));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Ok(0));
        for wrong in [&b"12x\0"[..], b"-1\0", b"8\0", b"\xff\xff\xff\xff"] {
            assert!(number(wrong).is_err(), "{wrong:?}");
        }
        let mut large = vec![0xff; 12];
        large[0] = 0x80;
        assert!(number(&large).is_err());
    }

    #[test]
    fn a_header_is_read_as_it_was_written_and_a_changed_one_is_not() {
        let header = Header {
            kind: HeaderKind::Link,
            path: b"a/b".to_vec(),
            link: b"../c".to_vec(),
            size: 0,
            is_executable: false,
        };
        let block = header.write(b'2', 1_700_000_000);
        assert_eq!(Header::read(&block), Ok(Some(header)));
        let mut changed = block;
        changed[0] ^= 1;
        assert_eq!(Header::read(&changed), Err(ArchiveProblem::Corrupt));
        assert_eq!(Header::read(&[0; BLOCK_BYTES]), Ok(None));
    }
}
