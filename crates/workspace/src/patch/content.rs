//! One version of a file, read, classified, and compared with the collected digest.

use crate::base::hex;
use crate::contents::{changed, unreadable};
use crate::merge::{MAX_TEXT_BYTES, is_comparable};
use crate::{CollectedChanges, Digest, Node, RelPath};
use glovebox_proto::Fault;
use sha1::{Digest as _, Sha1};
use std::io::{self, Read};

const CHUNK_BYTES: usize = 64 << 10;

/// Version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionSide {
    /// Version before the change.
    Before,
    /// Version of the sandbox.
    After,
}

/// Properties of one version after reading it once.
pub(super) struct Content {
    /// Git's object name.
    pub id: String,
    /// Length in bytes.
    pub size: u64,
    /// Complete content; `None` if it is too large or not comparable by lines.
    pub text: Option<Vec<u8>>,
}

/// Git's object name for a version that does not exist.
pub(super) const NO_ID: &str = "0000000000000000000000000000000000000000";

impl Content {
    /// Returns the content of a version that does not exist.
    pub(super) fn nothing() -> Self {
        Self {
            id: NO_ID.to_owned(),
            size: 0,
            text: Some(Vec::new()),
        }
    }

    /// Reads the version `node` of `path`.
    pub(super) fn read(
        collected: &CollectedChanges,
        side: VersionSide,
        path: &RelPath,
        node: &Node,
    ) -> Result<Self, Fault> {
        match node {
            Node::Dir => Ok(Self::nothing()),
            Node::Link { target } => Ok(Self {
                id: hex(&named(target.len() as u64).chain_update(target).finalize()),
                size: target.len() as u64,
                text: Some(target.clone()),
            }),
            Node::File { size, digest, .. } => {
                let size = match side {
                    VersionSide::After => *size,
                    // The host's file may have changed since, so its length is measured.
                    VersionSide::Before => measure(collected.open_base(path)?, path)?,
                };
                let mut text = (size <= MAX_TEXT_BYTES).then(Vec::new);
                let mut name = named(size);
                let reader = open(collected, side, path)?;
                let found = read_through(reader, path, size, |bytes| {
                    name.update(bytes);
                    if let Some(text) = &mut text {
                        text.extend_from_slice(bytes);
                    }
                })?;
                check(side, path, digest.as_ref(), size, &found)?;
                Ok(Self {
                    id: hex(&name.finalize()),
                    size,
                    text: text.filter(|text| is_comparable(text)),
                })
            }
        }
    }

    /// Calls `sink` with a reader of the same content, and checks that it has not changed.
    pub(super) fn again<T>(
        &self,
        collected: &CollectedChanges,
        side: VersionSide,
        path: &RelPath,
        node: &Node,
        sink: impl FnOnce(&mut dyn Read) -> io::Result<T>,
    ) -> Result<T, super::PatchError> {
        if let Node::Link { target } = node {
            return Ok(sink(&mut target.as_slice())?);
        }
        if self.id == NO_ID {
            return Ok(sink(&mut io::empty())?);
        }
        let mut reader = GitNameReader {
            inner: open(collected, side, path)?.take(self.size),
            name: named(self.size),
        };
        let done = sink(&mut reader)?;
        if hex(&reader.name.finalize()) != self.id {
            return Err(changed(path).into());
        }
        Ok(done)
    }
}

/// Reader that computes git's object name of the data.
struct GitNameReader<R> {
    inner: R,
    name: Sha1,
}

impl<R: Read> Read for GitNameReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.name.update(&buffer[..count]);
        Ok(count)
    }
}

struct FoundContent {
    size: u64,
    digest: Digest,
}

fn open<'a>(
    collected: &'a CollectedChanges,
    side: VersionSide,
    path: &RelPath,
) -> Result<Box<dyn Read + Send + 'a>, Fault> {
    match side {
        VersionSide::Before => collected.open_base(path),
        VersionSide::After => collected.open(path),
    }
}

fn measure(mut reader: Box<dyn Read + Send + '_>, path: &RelPath) -> Result<u64, Fault> {
    io::copy(&mut reader, &mut io::sink()).map_err(|error| unreadable(path, &error))
}

/// Reads a content, at most one byte more than `size`.
fn read_through(
    reader: Box<dyn Read + Send + '_>,
    path: &RelPath,
    size: u64,
    mut sink: impl FnMut(&[u8]),
) -> Result<FoundContent, Fault> {
    let mut reader = reader.take(size.saturating_add(1));
    let mut hasher = blake3::Hasher::new();
    let mut found = 0;
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                found += count as u64;
                hasher.update(&buffer[..count]);
                sink(&buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(path, &error)),
        }
    }
    Ok(FoundContent {
        size: found,
        digest: *hasher.finalize().as_bytes(),
    })
}

// TRUST: if the sandbox writes meanwhile, the patch must not contain data that was never collected.
fn check(
    side: VersionSide,
    path: &RelPath,
    digest: Option<&Digest>,
    size: u64,
    found: &FoundContent,
) -> Result<(), Fault> {
    let is_same = found.size == size
        && (side == VersionSide::Before || digest.is_none_or(|digest| found.digest == *digest));
    if is_same { Ok(()) } else { Err(changed(path)) }
}

fn named(size: u64) -> Sha1 {
    Sha1::new().chain_update(format!("blob {size}\0"))
}
