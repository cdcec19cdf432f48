//! The content a file had when the sandbox started from it, wherever that can still be found.

use super::kept::{KeptFile, KeptRecord};
use crate::base::{Base, BaseFile};
use crate::branch::Blobs;
use crate::merge::MAX_TEXT_BYTES;
use crate::{Digest, RelPath};
use sha1::Digest as _;
use sha1::Sha1;
use std::collections::BTreeSet;
use std::path::Path;

/// What is known about the contents of some paths.
pub(crate) struct BaseContents<'a> {
    base: &'a BaseFile,
    project: &'a Path,
    wanted: BTreeSet<RelPath>,
    first: KeptRecord,
    pulled: KeptRecord,
    /// The files as they were at the start; read when it is needed.
    started: Option<Base>,
    repository: Repository<'a>,
}

/// The object database, as far as it was needed.
enum Repository<'a> {
    Unopened,
    Open(Box<Blobs<'a>>),
    Unreadable,
}

impl<'a> BaseContents<'a> {
    /// Reads what is known about `wanted`.
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

    /// The content of the base of a path: what a pull last brought, or what the sandbox began with.
    /// `None` when nobody kept it.
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

    /// Length of a file when the sandbox began.
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

    /// The same, where one of `candidates` may be it: by the name that git had for it, which can still be
    /// compared when the object database has it no more.
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

    /// True if `digest` is of what the last pull brought for a path.
    pub(crate) fn is_pulled(&self, path: &RelPath, digest: &Digest) -> bool {
        self.pulled
            .get(path)
            .is_some_and(|known| known.id == digest)
    }

    /// What git knew of a path when the sandbox began; `None` when it did not track it.
    pub(crate) fn tracked(&self, path: &RelPath) -> Option<&KeptFile> {
        self.first.get(path).filter(|known| !known.id.is_empty())
    }
}

/// The content that a working tree had for what git stores, if its length says which that was: the same, or one with
/// CRLF for each LF. What a filter or an encoding makes of it is not known here.
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

/// A name of a content as git writes it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
