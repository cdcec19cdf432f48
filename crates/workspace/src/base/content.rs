//! Finds the content that a file had when the sandbox started from it.

use super::kept::{KeptFile, KeptRecord};
use crate::base::{Base, BaseFile};
use crate::branch::Blobs;
use crate::merge::MAX_TEXT_BYTES;
use crate::{Digest, RelPath};
use sha1::Digest as _;
use sha1::Sha1;
use std::collections::BTreeSet;
use std::path::Path;

/// Recorded contents of some paths.
pub(crate) struct BaseContents<'a> {
    base: &'a BaseFile,
    project: &'a Path,
    wanted: BTreeSet<RelPath>,
    first: KeptRecord,
    pulled: KeptRecord,
    /// Attributes of the files at the start; loaded on first use.
    started: Option<Base>,
    repository: Repository<'a>,
}

/// The object database, opened on first use.
enum Repository<'a> {
    Unopened,
    Open(Box<Blobs<'a>>),
    Unreadable,
}

impl<'a> BaseContents<'a> {
    /// Loads the records for the paths in `wanted`.
    pub(crate) fn load(base: &'a BaseFile, project: &'a Path, wanted: &BTreeSet<RelPath>) -> Self {
        Self {
            base,
            project,
            wanted: wanted.clone(),
            started: None,
            first: KeptRecord::first(&base.index, wanted),
            pulled: KeptRecord::pulled(&base.index, wanted),
            repository: Repository::Unopened,
        }
    }

    /// Returns the base content of a path: the version of the last pull, or the one from which the
    /// sandbox started. `None` if it was not kept, or is too large.
    pub(crate) fn text(&mut self, path: &RelPath) -> Option<Vec<u8>> {
        if let Some(content) = self.pulled.content(path, MAX_TEXT_BYTES) {
            return Some(content);
        }
        if let Some(content) = self.first.content(path, MAX_TEXT_BYTES) {
            return Some(content);
        }
        let known = self.first.get(path).filter(|known| known.is_clean)?;
        let id = hex(&known.id);
        if matches!(self.repository, Repository::Unopened) {
            let scratch = self.base.index.parent()?;
            self.repository = match Blobs::open(self.project, &self.base.git, scratch) {
                Ok(blobs) => Repository::Open(Box::new(blobs)),
                Err(_) => Repository::Unreadable,
            };
        }
        let stored = match &mut self.repository {
            Repository::Open(blobs) => blobs.read(&id, MAX_TEXT_BYTES),
            Repository::Unopened | Repository::Unreadable => None,
        };
        as_in_working_tree(stored?, self.size_at_start(path)?)
    }

    /// Returns the length of a file when the sandbox started; `None` if it is not known.
    fn size_at_start(&mut self, path: &RelPath) -> Option<u64> {
        let started = match &mut self.started {
            Some(started) => started,
            none => {
                let (index, pushed_unix_ns) = (&self.base.index, self.base.pushed_unix_ns);
                none.insert(Base::load(index, pushed_unix_ns, &self.wanted))
            }
        };
        started.size_at_start(path)
    }

    /// Returns the base content like [`Self::text`]. If the object database no longer has it,
    /// returns the one of `candidates` with the object name that git had recorded.
    pub(crate) fn text_among(&mut self, path: &RelPath, candidates: &[&[u8]]) -> Option<Vec<u8>> {
        let found = self.text(path);
        if found.is_some() {
            return found;
        }
        let known = self.first.get(path).filter(|known| known.is_clean)?;
        let is_it = |content: &&&[u8]| {
            let head = format!("blob {}\0", content.len());
            let name = Sha1::new().chain_update(head).chain_update(content);
            name.finalize().as_slice() == known.id.as_slice()
        };
        candidates
            .iter()
            .find(is_it)
            .map(|content| content.to_vec())
    }

    /// Returns true if `digest` is that of the version that the last pull brought for a path.
    pub(crate) fn is_pulled(&self, path: &RelPath, digest: &Digest) -> bool {
        self.pulled
            .get(path)
            .is_some_and(|known| known.id == digest)
    }

    /// Returns git's record of a path when the sandbox started; `None` if git did not track it.
    pub(crate) fn tracked(&self, path: &RelPath) -> Option<&KeptFile> {
        self.first.get(path).filter(|known| !known.id.is_empty())
    }
}

/// Converts stored content to the form of the working tree, if its length there shows which form
/// that was: the same, or with CRLF for each LF. `None` for any other length, as after a filter or
/// another encoding.
fn as_in_working_tree(stored: Vec<u8>, size: u64) -> Option<Vec<u8>> {
    if stored.len() as u64 == size {
        return Some(stored);
    }
    let lines = memchr::memchr_iter(b'\n', &stored).count();
    if stored.contains(&b'\r') || (stored.len() + lines) as u64 != size {
        return None;
    }
    let mut converted = Vec::with_capacity(stored.len() + lines);
    for line in stored.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(line) => converted.extend_from_slice(&[line, b"\r\n"].concat()),
            None => converted.extend_from_slice(line),
        }
    }
    Some(converted)
}

/// Returns bytes as hexadecimal digits in lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
