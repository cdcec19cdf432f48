//! Queries a sandbox for digests of files whose signatures do not decide whether they changed.

use super::get::{self, Questions, get};
use super::spool::{Reader, Spool, SpooledList};
use super::{SandboxRoot, protocol};
use crate::{Digest, RelPath};
use glovebox_proto::Fault;
use glovebox_proto::tree::{GotItem, Packing, Signature, Want};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A file of the sandbox whose digest was computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReadDigest {
    pub(super) size: u64,
    pub(super) digest: Digest,
    /// Signature of the file; `None` if an equal signature later would not prove the same content.
    pub(super) signature: Option<Signature>,
}

/// Digests of the queried files, looked up in the order of their paths.
#[derive(Debug)]
pub(super) struct Answers {
    wanted: Reader<RelPath>,
    told: Reader<Option<ReadDigest>>,
}

impl Answers {
    /// Returns an empty list.
    pub(super) fn none() -> Self {
        Self {
            wanted: Reader::empty(),
            told: Reader::empty(),
        }
    }

    /// Returns the digest of a file; `None` if it was not queried or could not be read.
    pub(super) fn about(&mut self, path: &RelPath) -> Result<Option<ReadDigest>, Fault> {
        if self.wanted.peek()? != Some(path) {
            return Ok(None);
        }
        self.wanted.next()?;
        match self.told.next()? {
            Some(told) => Ok(told),
            None => Err(protocol("did not answer all questions")),
        }
    }
}

/// Queries the digests of `wanted`. A file that could not be read has none. `each` is called with
/// the number of files from time to time, and can stop the operation by an error.
// TRUST: the guest describes its own files only. Exactly one reply per query is accepted.
pub(super) fn ask(
    place: &SandboxRoot<'_>,
    wanted: &SpooledList<RelPath>,
    count: u64,
    spool_dir: &Path,
    each: &mut dyn FnMut(u64) -> Result<(), Fault>,
) -> Result<Answers, Fault> {
    if count == 0 {
        return Ok(Answers::none());
    }
    let mut told = Spool::unnamed(spool_dir)?;
    let mut answers = Digests {
        told: &mut told,
        answers: 0,
        count,
        each,
    };
    let ask = |questions: &mut Questions<'_>| {
        let mut paths = wanted.read();
        while let Some(path) = paths.next()? {
            questions.ask(&Want {
                path: path.as_bytes(),
                known: None,
                has_content: false,
            })?;
        }
        Ok(())
    };
    get(place, Packing::Stored, ask, &mut answers)?;
    Ok(Answers {
        wanted: wanted.read(),
        told: told.finish()?.read(),
    })
}

/// Receiver of the replies.
struct Digests<'a> {
    told: &'a mut Spool<Option<ReadDigest>>,
    answers: u64,
    count: u64,
    each: &'a mut dyn FnMut(u64) -> Result<(), Fault>,
}

impl get::Answers for Digests<'_> {
    fn take(&mut self, item: GotItem<'_>) -> Result<(), Fault> {
        if self.is_complete() {
            return Err(protocol("answers what it was not asked"));
        }
        self.answers += 1;
        match item {
            GotItem::End {
                signature,
                is_settled,
                size,
                digest,
                has_content: false,
                ..
            } => self.told.push(&Some(ReadDigest {
                size,
                digest,
                signature: is_settled.then_some(signature),
            })),
            GotItem::Failed { .. } => self.told.push(&None),
            GotItem::Chunk(_) | GotItem::End { .. } => {
                Err(protocol("sends content it was not asked for"))
            }
        }
    }

    fn pause(&mut self) -> Result<(), Fault> {
        (self.each)(self.answers)
    }

    fn is_complete(&self) -> bool {
        self.answers == self.count
    }
}
