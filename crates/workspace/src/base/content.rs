//! The content a file had when the sandbox started from it, wherever that can still be found.

use super::kept::{KeptFile, KeptRecord};
use crate::base::BaseFile;
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
    first: KeptRecord,
    pulled: KeptRecord,
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
        match &mut self.repository {
            Repository::Open(blobs) => blobs.read(&id, MAX_TEXT_BYTES),
            Repository::Unopened | Repository::Unreadable => None,
        }
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

/// A name of a content as git writes it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
