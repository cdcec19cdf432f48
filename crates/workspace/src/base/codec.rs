//! The base index as bytes: sorted entries, each without what it shares with the one before.
//!
//! ```text
//! "GLVBASE" version(1) pushed_unix_ns(16, little-endian)
//! entry*    shared rest-length rest kind size mode mtime ctime ino      numbers as LEB128
//! end       0 0 count
//! ```

use super::{Kind, Signature};
use crate::RelPath;
use glovebox_proto::limits::MAX_PATH_BYTES;
use std::cmp::Ordering;
use std::io::{BufRead, Error, ErrorKind, Result, Write};

const MAGIC: &[u8; 8] = b"GLVBASE\x01";

/// Orders paths as [`RelPath`] does, on bytes: a slash comes before everything else.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(rank).cmp(b.iter().map(rank))
}

/// Writes entries in order.
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

    /// Marks the end; an index without it is not complete.
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

/// Reads entries in order until the end, or until `each` has seen enough (false). Returns how many
/// there were.
///
/// # Errors
/// [`ErrorKind::InvalidData`] for what is no index, is not sorted, or is cut off; memory stays that of
/// one path whatever the bytes say.
pub fn decode(
    mut source: impl BufRead,
    mut each: impl FnMut(&RelPath, Signature) -> bool,
) -> Result<u64> {
    let mut head = [0_u8; 24];
    source.read_exact(&mut head)?;
    if head[..8] != *MAGIC {
        return Err(invalid("not an index"));
    }
    let mut path: Vec<u8> = Vec::new();
    let mut count = 0;
    loop {
        let shared = number(&mut source)? as usize;
        let length = number(&mut source)?;
        if length == 0 {
            return if shared == 0 && number(&mut source)? == count {
                Ok(count)
            } else {
                Err(invalid("a wrong end"))
            };
        }
        if shared > path.len() || length > MAX_PATH_BYTES as u64 {
            return Err(invalid("a wrong length"));
        }
        let mut next = path[..shared].to_vec();
        next.resize(shared + length as usize, 0);
        source.read_exact(&mut next[shared..])?;
        if count > 0 && compare(&path, &next) != Ordering::Less {
            return Err(invalid("a wrong order"));
        }
        path = next;
        count += 1;
        let checked = RelPath::new(path.as_slice()).map_err(|_| invalid("a wrong path"))?;
        let mut kind = [0_u8];
        source.read_exact(&mut kind)?;
        let kind = match kind[0] {
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
                size: number(&mut source)?,
                mode: u32::try_from(number(&mut source)?).map_err(|_| invalid("a wrong mode"))?,
                mtime_ns: number(&mut source)? as i64,
                ctime_ns: number(&mut source)? as i64,
                ino: number(&mut source)?,
            },
        };
        if !each(&checked, signature) {
            return Ok(count);
        }
    }
}

fn number(source: &mut impl BufRead) -> Result<u64> {
    let mut value = 0_u64;
    for shift in (0..).step_by(7) {
        let mut byte = [0_u8];
        source.read_exact(&mut byte)?;
        let low = u64::from(byte[0] & 0x7f);
        if shift > 63 || (shift == 63 && low > 1) {
            return Err(invalid("a wrong number"));
        }
        value |= low << shift;
        if byte[0] & 0x80 == 0 {
            break;
        }
    }
    Ok(value)
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}
