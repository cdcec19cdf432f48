//! Fetches contents from a sandbox. Each is stored once on the host, so that later writes in the
//! sandbox do not affect it.

use super::get::{Answers, Questions, get};
use super::{SandboxRoot, protocol};
use crate::beneath::{io, write_sparse};
use crate::{Digest, RefusalReason, RelPath};
use glovebox_proto::tree::{GotItem, Want};
use glovebox_proto::{Code, Fault, Setting};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of further attempts to read a file that changes while it is read.
const TRIES: usize = 2;

/// Private directory for contents, by digest. Dropping it removes the directory.
#[derive(Debug)]
pub(super) struct Spool {
    dir: PathBuf,
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Spool {
    pub(super) fn create(parent: &Path) -> Result<Self, Fault> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!(".contents-{}-{number}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|error| io("make", &dir, error))?;
        Ok(Self { dir })
    }

    /// Returns the path of the content with a digest, which need not exist.
    pub(super) fn place(&self, digest: &Digest) -> PathBuf {
        self.dir
            .join(blake3::Hash::from_bytes(*digest).to_hex().as_str())
    }

    /// Opens a stored content.
    pub(super) fn open(&self, digest: &Digest) -> Result<File, Fault> {
        let path = self.place(digest);
        File::open(&path).map_err(|error| io("open", &path, error))
    }
}

/// A file to fetch.
#[derive(Debug)]
pub(super) struct WantedFile<'a> {
    pub(super) path: &'a RelPath,
    /// Length and digest of the former content, which need not be sent if unchanged; `None` if not
    /// known.
    pub(super) known: Option<(u64, Digest)>,
}

/// Result of fetching a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FetchedFile {
    /// The file has the known content.
    Same,
    /// The content is in the spool.
    File {
        size: u64,
        digest: Digest,
    },
    /// The file does not exist any longer.
    Gone,
    /// The file changed while it was read.
    Torn,
    Refused(RefusalReason),
}

/// Fetches files, in order. `each` is called with the number of bytes from time to time, and can
/// stop the operation by an error.
///
/// # Errors
/// [`Code::TooLarge`] if the contents exceed `max_bytes`; the message names the file.
pub(super) fn fetch(
    place: &SandboxRoot<'_>,
    wanted: &[WantedFile<'_>],
    spool: &Spool,
    max_bytes: u64,
    each: &mut dyn FnMut(u64) -> Result<(), Fault>,
) -> Result<Vec<FetchedFile>, Fault> {
    let all: Vec<&WantedFile<'_>> = wanted.iter().collect();
    let mut fetched = fetch_once(place, &all, spool, max_bytes, each)?;
    // A file that is being written may be unchanged during the next attempt.
    for _ in 0..TRIES {
        let torn: Vec<usize> = (0..wanted.len())
            .filter(|index| fetched[*index] == FetchedFile::Torn)
            .collect();
        let again: Vec<&WantedFile<'_>> = torn.iter().map(|index| &wanted[*index]).collect();
        let later = fetch_once(place, &again, spool, max_bytes, each)?;
        for (index, found) in torn.into_iter().zip(later) {
            fetched[index] = found;
        }
    }
    for found in &mut fetched {
        if *found == FetchedFile::Torn {
            *found = FetchedFile::Refused(RefusalReason::Moving);
        }
    }
    Ok(fetched)
}

fn fetch_once(
    place: &SandboxRoot<'_>,
    wanted: &[&WantedFile<'_>],
    spool: &Spool,
    max_bytes: u64,
    each: &mut dyn FnMut(u64) -> Result<(), Fault>,
) -> Result<Vec<FetchedFile>, Fault> {
    let mut taker = ContentReceiver {
        wanted,
        spool,
        left: max_bytes,
        max_bytes,
        growing: None,
        fetched: Vec::new(),
        each,
    };
    if wanted.is_empty() {
        return Ok(taker.fetched);
    }
    let ask = |questions: &mut Questions<'_>| {
        for file in wanted {
            questions.ask(&Want {
                path: file.path.as_bytes(),
                known: file.known,
                has_content: true,
            })?;
        }
        Ok(())
    };
    get(place, place.packing, ask, &mut taker)?;
    Ok(taker.fetched)
}

/// Receiver of the contents.
struct ContentReceiver<'a> {
    wanted: &'a [&'a WantedFile<'a>],
    spool: &'a Spool,
    left: u64,
    max_bytes: u64,
    growing: Option<ArrivingFile>,
    fetched: Vec<FetchedFile>,
    each: &'a mut dyn FnMut(u64) -> Result<(), Fault>,
}

/// A content that is being received.
struct ArrivingFile {
    file: File,
    path: PathBuf,
    hasher: blake3::Hasher,
    size: u64,
}

impl Answers for ContentReceiver<'_> {
    fn pause(&mut self) -> Result<(), Fault> {
        (self.each)(self.max_bytes - self.left)
    }

    fn is_complete(&self) -> bool {
        self.fetched.len() == self.wanted.len() && self.growing.is_none()
    }

    // TRUST: the sandbox controls the data. Exactly one reply per query is accepted, no more bytes
    // than the quota, and the digest is computed from the received bytes.
    fn take(&mut self, item: GotItem<'_>) -> Result<(), Fault> {
        let Some(wanted) = self.wanted.get(self.fetched.len()) else {
            return Err(protocol("sends files it was not asked for"));
        };
        match item {
            GotItem::Chunk(bytes) => {
                let count = bytes.len() as u64;
                self.left = self.left.checked_sub(count).ok_or_else(|| {
                    Fault::failed(
                        Code::TooLarge,
                        format!(
                            "the changes have more than {} bytes, with `{}` among them",
                            self.max_bytes, wanted.path
                        ),
                    )
                    .remedy([
                        "leave it out with ".into(),
                        Setting::Exclude.into(),
                        ", or raise the limit".into(),
                    ])
                })?;
                let growing = match &mut self.growing {
                    Some(growing) => growing,
                    none => none.insert(ArrivingFile::create(self.spool)?),
                };
                growing.hasher.update(bytes);
                let at = growing.size;
                growing.size += count;
                write_sparse(&growing.file, at, bytes)
                    .map_err(|error| io("write", &growing.path, error))
            }
            GotItem::End { is_torn: true, .. } => {
                if let Some(growing) = self.growing.take() {
                    let _ = std::fs::remove_file(&growing.path);
                }
                self.fetched.push(FetchedFile::Torn);
                Ok(())
            }
            GotItem::End {
                size,
                digest,
                has_content: true,
                ..
            } => {
                let growing = match self.growing.take() {
                    Some(growing) => growing,
                    None => ArrivingFile::create(self.spool)?,
                };
                if growing.size != size || growing.hasher.finalize().as_bytes() != &digest {
                    let message = format!("`{}` did not arrive as it was sent", wanted.path);
                    return Err(Fault::failed(Code::Io, message).retryable());
                }
                // A hole at the end does not extend the file by itself.
                let set = growing.file.set_len(size);
                set.map_err(|error| io("write", &growing.path, error))?;
                let target = self.spool.place(&digest);
                std::fs::rename(&growing.path, &target)
                    .map_err(|error| io("put in place", &target, error))?;
                self.fetched.push(FetchedFile::File { size, digest });
                Ok(())
            }
            GotItem::End { size, digest, .. } => {
                if self.growing.is_some() || wanted.known != Some((size, digest)) {
                    return Err(protocol("does not send a file it was asked for"));
                }
                self.fetched.push(FetchedFile::Same);
                Ok(())
            }
            GotItem::Failed { code, message } => {
                if let Some(growing) = self.growing.take() {
                    let _ = std::fs::remove_file(&growing.path);
                }
                self.fetched.push(match code {
                    Code::NotFound | Code::NotDirectory | Code::IsDirectory => FetchedFile::Gone,
                    Code::SpecialFile => FetchedFile::Refused(RefusalReason::Special),
                    Code::PermissionDenied => FetchedFile::Refused(RefusalReason::Unreadable),
                    code => return Err(Fault::failed(code, message)),
                });
                Ok(())
            }
        }
    }
}

impl ArrivingFile {
    fn create(spool: &Spool) -> Result<Self, Fault> {
        let path = spool.dir.join("arriving");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| io("make", &path, error))?;
        Ok(Self {
            file,
            path,
            hasher: blake3::Hasher::new(),
            size: 0,
        })
    }
}
