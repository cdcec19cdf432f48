//! Writes collected changes as a tar archive that every tar program reads.

use super::header::{Header, HeaderKind, MAX_NAME_BYTES};
use super::{BLOCK_BYTES, pax};
use crate::beneath::digest;
use crate::{CollectedChanges, Node, RelPath};
use flate2::Compression;
use flate2::write::GzEncoder;
use glovebox_proto::Fault;
use std::io::{self, Write};

/// Error of writing an archive. A part of it may have been written.
#[derive(Debug)]
pub enum PackError {
    /// A content cannot be read, or differs from what was collected.
    Content(Fault),
    /// The output cannot be written to.
    Write(io::Error),
}

impl From<io::Error> for PackError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Writes all collected additions as a tar archive in the `pax` format. Every entry has the time
/// `mtime_s`, in seconds since 1970. The end marker is written last, so that a truncated archive is
/// not taken for a complete one.
///
/// # Errors
/// When a content is not what was collected, or `out` fails.
pub fn pack(
    collected: &CollectedChanges,
    mtime_s: u64,
    out: &mut dyn Write,
) -> Result<(), PackError> {
    for change in &collected.set.changes {
        let Some(node) = change.to() else {
            continue;
        };
        let path = change.path.as_bytes();
        match node {
            Node::Dir => {
                let path = [path, b"/"].concat();
                write_header(out, b'5', header(&path, b"", 0, false), mtime_s)?;
            }
            Node::Link { target } => {
                write_header(out, b'2', header(path, target, 0, false), mtime_s)?;
            }
            Node::File {
                size,
                is_executable,
                digest,
            } => {
                write_header(out, b'0', header(path, b"", *size, *is_executable), mtime_s)?;
                write_content(out, collected, &change.path, *size, *digest)?;
            }
        }
    }
    out.write_all(&[0; 2 * BLOCK_BYTES])?;
    Ok(())
}

/// Writes the same archive as [`pack`], gzipped.
///
/// # Errors
/// As [`pack`].
pub fn pack_gzip(
    collected: &CollectedChanges,
    mtime_s: u64,
    out: &mut dyn Write,
) -> Result<(), PackError> {
    let mut encoder = GzEncoder::new(out, Compression::fast());
    pack(collected, mtime_s, &mut encoder)?;
    encoder.finish()?;
    Ok(())
}

fn header(path: &[u8], link: &[u8], size: u64, is_executable: bool) -> Header {
    Header {
        kind: HeaderKind::Other,
        path: path.to_vec(),
        link: link.to_vec(),
        size,
        is_executable,
    }
}

/// Writes a header, after extended records for a path or target that does not fit into it.
fn write_header(out: &mut dyn Write, kind: u8, mut header: Header, mtime_s: u64) -> io::Result<()> {
    let mut records = Vec::new();
    for (key, text) in [("path", &mut header.path), ("linkpath", &mut header.link)] {
        if text.len() > MAX_NAME_BYTES {
            records.extend(pax::record(key, text));
            text.truncate(MAX_NAME_BYTES);
        }
    }
    if !records.is_empty() {
        let about = self::header(b"pax", b"", records.len() as u64, false);
        out.write_all(&about.write(b'x', mtime_s))?;
        out.write_all(&records)?;
        pad(out, records.len() as u64)?;
    }
    out.write_all(&header.write(kind, mtime_s))
}

fn write_content(
    out: &mut dyn Write,
    collected: &CollectedChanges,
    path: &RelPath,
    size: u64,
    expected: Option<crate::Digest>,
) -> Result<(), PackError> {
    let mut content = collected.open(path).map_err(PackError::Content)?;
    let changed = || PackError::Content(crate::contents::changed(path));
    let mut failed = None;
    let read = digest(&mut content, size, &mut |block| {
        out.write_all(block).map_err(|error| {
            let kind = error.kind();
            failed = Some(error);
            kind.into()
        })
    });
    if let Some(error) = failed {
        return Err(PackError::Write(error));
    }
    match read {
        Ok((sum, len)) if len == size && expected.is_none_or(|expected| expected == sum) => {
            Ok(pad(out, size)?)
        }
        Ok(_) => Err(changed()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(changed()),
        Err(error) => Err(PackError::Content(crate::contents::unreadable(
            path, &error,
        ))),
    }
}

/// Writes zeros up to the next block.
fn pad(out: &mut dyn Write, len: u64) -> io::Result<()> {
    let over = (len % BLOCK_BYTES as u64) as usize;
    let count = (BLOCK_BYTES - over) % BLOCK_BYTES;
    out.write_all(&[0; BLOCK_BYTES][..count])
}
