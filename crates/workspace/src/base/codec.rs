//! Encoding of the base index: sorted entries, each without the prefix that it shares with the
//! previous one.
//!
//! ```text
//! "GLVBASE" version(1) pushed_unix_ns(16, little-endian)
//! entry*   shared rest-length rest kind size mode mtime ctime ino   numbers as LEB128
//! end      0 0 count
//! ```

use super::{Kind, Signature};
use crate::RelPath;
use glovebox_proto::limits::MAX_PATH_BYTES;
use std::io::{Error, ErrorKind, Read, Result, Write};

const MAGIC: &[u8; 8] = b"GLVBASE\x01";

/// Writer of sorted entries.
#[derive(Debug)]
pub(super) struct Encoder<W: Write> {
    out: W,
    previous: Vec<u8>,
    count: u64,
}

impl<W: Write> Encoder<W> {
    pub(super) fn new(mut out: W, pushed_unix_ns: u128) -> Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&pushed_unix_ns.to_le_bytes())?;
        Ok(Self {
            out,
            previous: Vec::new(),
            count: 0,
        })
    }

    pub(super) fn put(&mut self, path: &RelPath, signature: &Signature) -> Result<()> {
        let path = path.as_bytes();
        let same = |(a, b): &(&u8, &u8)| a == b;
        let shared = path.iter().zip(&self.previous).take_while(same).count();
        let rest = &path[shared..];
        self.number(shared as u64)?;
        self.number(rest.len() as u64)?;
        self.out.write_all(rest)?;
        self.previous.truncate(shared);
        self.previous.extend_from_slice(rest);
        self.count += 1;
        match *signature {
            Signature::Absent => self.out.write_all(&[0]),
            Signature::Present {
                kind,
                size,
                mode,
                mtime_ns,
                ctime_ns,
                ino,
            } => {
                let kind = match kind {
                    Kind::File => 1,
                    Kind::Link => 2,
                    Kind::Dir => 3,
                    Kind::Other => 4,
                };
                self.out.write_all(&[kind])?;
                self.number(size)?;
                self.number(u64::from(mode))?;
                self.number(mtime_ns as u64)?;
                self.number(ctime_ns as u64)?;
                self.number(ino)
            }
        }
    }

    /// Writes the end mark, without which an index is incomplete. Returns the number of entries.
    pub(super) fn finish(mut self) -> Result<u64> {
        let count = self.count;
        self.number(0)?;
        self.number(0)?;
        self.number(count)?;
        self.out.flush()?;
        Ok(count)
    }

    fn number(&mut self, mut value: u64) -> Result<()> {
        let mut bytes = [0_u8; 10];
        let mut length = 0;
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            bytes[length] = if value == 0 { low } else { low | 0x80 };
            length += 1;
            if value == 0 {
                return self.out.write_all(&bytes[..length]);
            }
        }
    }
}

/// Reads entries in order until the end, or until `each` returns false. Returns the number of
/// entries read.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if the data is not an index, is not sorted, or is truncated. Memory
/// use is bounded by one block, whatever the data.
pub fn decode(source: impl Read, mut each: impl FnMut(&RelPath, Signature) -> bool) -> Result<u64> {
    let mut wrong = None;
    let count = scan(source, |path, signature| match RelPath::new(path) {
        Ok(path) => each(&path, signature),
        Err(bad) => {
            wrong = Some(bad);
            false
        }
    })?;
    match wrong {
        None => Ok(count),
        Some(_) => Err(invalid("a wrong path")),
    }
}

/// Reads entries like [`decode`], but does not validate their paths.
pub(super) fn scan(
    source: impl Read,
    mut each: impl FnMut(&[u8], Signature) -> bool,
) -> Result<u64> {
    let mut input = Input::new(source);
    input.fill()?;
    if input.take(HEAD_BYTES)?[..MAGIC.len()] != *MAGIC {
        return Err(invalid("not an index"));
    }
    let mut path: Vec<u8> = Vec::new();
    let mut count = 0;
    loop {
        input.fill()?;
        let shared = input.number()? as usize;
        let length = input.number()?;
        if length == 0 {
            return if shared == 0 && input.number()? == count {
                Ok(count)
            } else {
                Err(invalid("a wrong end"))
            };
        }
        if shared > path.len() || length > MAX_PATH_BYTES as u64 {
            return Err(invalid("a wrong length"));
        }
        let rest = input.take(length as usize)?;
        // The entry states the whole shared prefix, so the next byte decides the order.
        let rank = |byte: u8| if byte == b'/' { 0 } else { byte };
        if path
            .get(shared)
            .is_some_and(|old| rank(*old) >= rank(rest[0]))
        {
            return Err(invalid("a wrong order"));
        }
        path.truncate(shared);
        path.extend_from_slice(rest);
        if path.len() > MAX_PATH_BYTES {
            return Err(invalid("a wrong length"));
        }
        count += 1;
        let kind = match input.take(1)?[0] {
            0 => None,
            1 => Some(Kind::File),
            2 => Some(Kind::Link),
            3 => Some(Kind::Dir),
            4 => Some(Kind::Other),
            _ => return Err(invalid("a wrong kind")),
        };
        let signature = match kind {
            None => Signature::Absent,
            Some(kind) => Signature::Present {
                kind,
                size: input.number()?,
                mode: u32::try_from(input.number()?).map_err(|_| invalid("a wrong mode"))?,
                mtime_ns: input.number()? as i64,
                ctime_ns: input.number()? as i64,
                ino: input.number()?,
            },
        };
        if !each(&path, signature) {
            return Ok(count);
        }
    }
}

/// Length of the magic and the time of the push, in bytes.
const HEAD_BYTES: usize = 24;
/// Upper limit of the size of an entry in bytes: a path, eight numbers, a kind.
const MAX_ENTRY_BYTES: usize = MAX_PATH_BYTES + 128;
const BLOCK_BYTES: usize = 256 << 10;

/// A source that is read in blocks. At least one entry is always in memory.
struct Input<R> {
    source: R,
    block: Vec<u8>,
    at: usize,
    is_over: bool,
}

impl<R: Read> Input<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            block: Vec::new(),
            at: 0,
            is_over: false,
        }
    }

    fn fill(&mut self) -> Result<()> {
        if self.block.len() - self.at >= MAX_ENTRY_BYTES || self.is_over {
            return Ok(());
        }
        self.block.drain(..self.at);
        self.at = 0;
        let missing = (BLOCK_BYTES - self.block.len()) as u64;
        let read = (&mut self.source)
            .take(missing)
            .read_to_end(&mut self.block)?;
        self.is_over = (read as u64) < missing;
        Ok(())
    }

    fn take(&mut self, length: usize) -> Result<&[u8]> {
        let end = self.at + length;
        let bytes = self.block.get(self.at..end).ok_or_else(cut_off)?;
        self.at = end;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for (number, byte) in self.block[self.at..].iter().enumerate().take(10) {
            let low = u64::from(byte & 0x7f);
            if number == 9 && *byte > 1 {
                break;
            }
            value |= low << (7 * number);
            if byte & 0x80 == 0 {
                self.at += number + 1;
                return Ok(value);
            }
        }
        Err(if self.block.len() - self.at < 10 {
            cut_off()
        } else {
            invalid("a wrong number")
        })
    }
}

fn cut_off() -> Error {
    invalid("an end in the middle")
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}
