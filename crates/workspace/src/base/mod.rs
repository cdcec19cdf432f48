//! State of the project when a sandbox started from it: the base of every three-way comparison.
//!
//! Right after a start, [`record`] walks the project once (names and attributes, no contents) and
//! writes an index. A path of the host counts as changed if its attributes differ from those in the
//! index, if it was changed at or after the moment of the push, or if it is new. Without an index
//! (the walk was interrupted), the moment of the push alone decides. A change that a pull wrote
//! does not count as the host's: [`advance`] records it beside the index.
//!
//! The contents of the files are recorded after that ([`keep`]), so that both sides' changes of one
//! file can be merged.
//!
//! Both files have sorted entries and are written and read as streams, so memory use does not grow
//! with the project.

mod codec;
mod content;
mod git_index;
mod ignored;
mod kept;
mod since;

pub use codec::decode;
pub(crate) use content::{BaseContents, hex};
pub(crate) use git_index::CleanFiles;
pub use kept::keep;
pub(crate) use kept::{PulledContent, advance as advance_contents};
pub(crate) use since::{ChangedPath, changed_since};

use crate::beneath::{Anchor, io, read_names, stat_at};
use crate::collect::RESERVED_PREFIX;
use crate::{HostChange, RelPath};
use codec::{Encoder, scan};
use glovebox_proto::{Code, Fault};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Location of the base index of a sandbox, for a destination that is the project from which it
/// started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseFile {
    /// Path of the index.
    pub index: PathBuf,
    /// Time at which the sandbox started from the project, in nanoseconds of Unix time.
    pub pushed_unix_ns: u128,
    /// Path of the host's git, which reads the contents of files that were tracked.
    pub git: PathBuf,
}

/// Attributes of a path by which a change is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signature {
    /// The path does not exist.
    Absent,
    /// The path exists.
    Present {
        /// Type of the object.
        kind: Kind,
        /// Length in bytes.
        size: u64,
        /// Permission bits.
        mode: u32,
        /// Time of the last change of content, in nanoseconds of Unix time.
        mtime_ns: i64,
        /// Time of the last change of content or attributes, in nanoseconds of Unix time.
        ctime_ns: i64,
        /// Inode number.
        ino: u64,
    },
}

/// Types of objects that a signature distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A directory. Its times are not compared, because they change with its entries.
    Dir,
    /// Any other type.
    Other,
}

impl From<&Stat> for Signature {
    fn from(stat: &Stat) -> Self {
        let nanoseconds = |seconds: i64, rest: u64| {
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(i64::try_from(rest).unwrap_or(0))
        };
        Self::Present {
            kind: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Kind::File,
                FileType::Symlink => Kind::Link,
                FileType::Directory => Kind::Dir,
                _ => Kind::Other,
            },
            size: stat.st_size as u64,
            mode: stat.st_mode & 0o7777,
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            ino: stat.st_ino,
        }
    }
}

impl Signature {
    /// Returns true if two signatures are of the same file with no write in between. Owner and
    /// permissions may differ.
    pub(crate) fn has_same_content(&self, other: &Self) -> bool {
        let written = |signature: &Self| match *signature {
            Self::Present {
                kind: Kind::File,
                size,
                mtime_ns,
                ino,
                ..
            } => Some((size, mtime_ns, ino)),
            _ => None,
        };
        written(self).is_some_and(|written_at| written(other) == Some(written_at))
    }

    /// Returns true if two signatures are of the same, unchanged object.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_dir = |signature: &Self| {
            matches!(
                signature,
                Self::Present {
                    kind: Kind::Dir,
                    ..
                }
            )
        };
        self == other || (is_dir(self) && is_dir(other))
    }
}

/// Maximum depth of directories that are walked: more than the maximum depth of changes (see
/// [`crate::Quota`]).
const MAX_DEPTH: usize = 200;
/// Name of directories that are not walked, because no change in them is ever applied.
const SKIPPED: &[u8] = b".git";

/// Walks a project and writes its index. Returns the number of entries. `is_stopped` is called
/// every few hundred entries.
///
/// # Errors
/// [`Code::Cancelled`] if stopped; any failure to read the project or to write the index. No part
/// of an incomplete index remains.
pub fn record(
    project: &Path,
    index: &Path,
    pushed_unix_ns: u128,
    is_stopped: &dyn Fn() -> bool,
) -> Result<u64, Fault> {
    let anchor = Anchor::open(project)?;
    let mut walk = Recorder {
        anchor: &anchor,
        encoder: None,
        is_stopped,
        failure: None,
    };
    write_atomically(index, |out| {
        walk.encoder = Some(Encoder::new(out, pushed_unix_ns)?);
        walk.tree()?;
        match walk.encoder.take() {
            Some(encoder) => encoder.finish(),
            None => Ok(0),
        }
    })
    .map_err(|error| {
        walk.failure
            .take()
            .unwrap_or_else(|| io("write", index, error))
    })
}

struct Recorder<'a> {
    anchor: &'a Anchor,
    encoder: Option<Encoder<BufWriter<File>>>,
    is_stopped: &'a dyn Fn() -> bool,
    failure: Option<Fault>,
}

/// A directory with names that have not been written yet.
struct Level {
    dir: OwnedFd,
    names: std::vec::IntoIter<Box<[u8]>>,
    /// Length of the path of the parent directory.
    parent_length: usize,
}

impl Recorder<'_> {
    /// Writes all entries. Uses an explicit stack, because the project may come from a stranger who
    /// chose its depth.
    fn tree(&mut self) -> std::io::Result<()> {
        let mut path: Vec<u8> = Vec::new();
        let mut levels: Vec<Level> = self.open(&path, 0)?.into_iter().collect();
        let mut number = 0_usize;
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                path.truncate(level.parent_length);
                levels.pop();
                continue;
            };
            if number.is_multiple_of(256) && (self.is_stopped)() {
                self.failure = Some(Fault::failed(Code::Cancelled, "it was cancelled"));
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            number += 1;
            let is_top = path.is_empty();
            if *name == *SKIPPED || (is_top && name.starts_with(RESERVED_PREFIX)) {
                continue;
            }
            let Ok(stat) = stat_at(level.dir.as_fd(), &name) else {
                continue;
            };
            let parent_length = path.len();
            if !is_top {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let mut below = None;
            if let (Some(encoder), Ok(checked)) = (&mut self.encoder, RelPath::new(path.as_slice()))
            {
                encoder.put(&checked, &Signature::from(&stat))?;
                let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                if is_dir && levels.len() <= MAX_DEPTH {
                    below = self.open(&path, parent_length)?;
                }
            }
            match below {
                Some(level) => levels.push(level),
                None => path.truncate(parent_length),
            }
        }
        Ok(())
    }

    fn open(&mut self, path: &[u8], parent_length: usize) -> std::io::Result<Option<Level>> {
        let dir = match self.anchor.dir(path) {
            Ok(dir) => dir,
            // The directory was removed, or this user cannot read it; then the sandbox could not
            // read it either.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
            Err(errno) => return Err(self.fail(path, errno)),
        };
        let mut names: Vec<Box<[u8]>> = Vec::new();
        read_names(&dir, |name, _| {
            names.push(name.into());
            Ok::<(), Errno>(())
        })
        .map_err(|errno| self.fail(path, errno))?;
        names.sort_unstable();
        Ok(Some(Level {
            dir,
            names: names.into_iter(),
            parent_length,
        }))
    }

    fn fail(&mut self, path: &[u8], errno: Errno) -> std::io::Error {
        let at = String::from_utf8_lossy(path);
        self.failure = Some(io("read", &self.anchor.path().join(at.as_ref()), errno));
        errno.into()
    }
}

/// Writer of an index, for a walk over the project that has another purpose as well.
#[derive(Debug)]
pub(crate) struct Writer {
    encoder: Encoder<BufWriter<File>>,
    new: TemporaryFile,
    index: PathBuf,
}

/// A temporary file. Dropping it removes the file, unless it was renamed.
#[derive(Debug)]
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Writer {
    /// Begins an index under a temporary name. [`Self::finish`] renames it.
    pub(crate) fn create(index: &Path, pushed_unix_ns: u128) -> Result<Self, Fault> {
        let mut name = index.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = TemporaryFile(index.with_file_name(name));
        let encoder = File::create(&new.0)
            .map(|file| BufWriter::with_capacity(64 << 10, file))
            .and_then(|out| Encoder::new(out, pushed_unix_ns))
            .map_err(|error| io("write", &new.0, error))?;
        Ok(Self {
            encoder,
            new,
            index: index.to_owned(),
        })
    }

    /// Adds a path. Paths must be added in order. Paths that an index never has are skipped.
    pub(crate) fn put(&mut self, path: &RelPath, signature: &Signature) -> Result<(), Fault> {
        let is_skipped = path.components().any(|name| name == SKIPPED)
            || path.as_bytes().starts_with(RESERVED_PREFIX);
        if is_skipped {
            return Ok(());
        }
        self.encoder
            .put(path, signature)
            .map_err(|error| io("write", &self.new.0, error))
    }

    /// Renames the index into place, and removes the records beside the old one, which the new one
    /// replaces.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        let Self {
            encoder,
            new,
            index,
        } = self;
        encoder
            .finish()
            .and_then(|_| std::fs::rename(&new.0, &index))
            .map_err(|error| io("write", &index, error))?;
        for suffix in [".pulled", ".pulled.kept", ".kept", ".pushed"] {
            match std::fs::remove_file(beside(&index, suffix)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io("remove", &index, error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Recorded state of some paths at the start and after pulls.
#[derive(Debug, Default)]
pub struct Base {
    pushed_unix_ns: i64,
    has_index: bool,
    index: HashMap<RelPath, Signature>,
    pulled: HashMap<RelPath, Signature>,
}

impl Base {
    /// Loads the records of some paths.
    pub fn load(index: &Path, pushed_unix_ns: u128, wanted: &BTreeSet<RelPath>) -> Self {
        // An index that cannot be read to its end counts as missing.
        let entries = lookup(index, wanted);
        Self {
            pushed_unix_ns: i64::try_from(pushed_unix_ns).unwrap_or(i64::MAX),
            has_index: entries.is_some(),
            index: entries.unwrap_or_default(),
            pulled: lookup(&pulled_file(index), wanted).unwrap_or_default(),
        }
    }

    /// Returns the length of a file at the start; `None` if it is not known.
    pub(crate) fn size_at_start(&self, path: &RelPath) -> Option<u64> {
        match self.index.get(path)? {
            Signature::Present {
                kind: Kind::File,
                size,
                ..
            } => Some(*size),
            _ => None,
        }
    }

    /// Returns the permissions of a file at the last pull or at the start; `None` if they are not
    /// known.
    pub(crate) fn mode(&self, path: &RelPath) -> Option<u32> {
        match self.pulled.get(path).or_else(|| self.index.get(path))? {
            Signature::Present {
                kind: Kind::File,
                mode,
                ..
            } => Some(*mode),
            _ => None,
        }
    }

    /// Returns the host's change of a path since the push, or since the pull that last wrote it.
    pub fn since(&self, path: &RelPath, now: &Signature) -> HostChange {
        if let Some(known) = self.pulled.get(path) {
            return match known {
                _ if known.is_same(now) => HostChange::Same,
                Signature::Absent => HostChange::Added,
                Signature::Present { .. } => HostChange::Changed,
            };
        }
        let known = self.index.get(path);
        let Signature::Present { kind, ctime_ns, .. } = now else {
            return known.map_or(HostChange::Same, |_| HostChange::Changed);
        };
        // Times of a directory change with its entries, so they are not compared.
        let is_dir = *kind == Kind::Dir;
        match known {
            // The index may have been written after a change. A file with exactly the time of the
            // push was written just before it: no sandbox starts, and no user reacts to it, within
            // one clock tick.
            Some(known) if known.is_same(now) && (is_dir || *ctime_ns <= self.pushed_unix_ns) => {
                HostChange::Same
            }
            Some(_) => HostChange::Changed,
            None if self.has_index => HostChange::Added,
            None if !is_dir && *ctime_ns >= self.pushed_unix_ns => HostChange::Changed,
            None => HostChange::Same,
        }
    }
}

/// Records the signatures of paths that a pull wrote, so that they do not count as changes of the
/// host.
///
/// # Errors
/// When the record cannot be written.
pub fn advance(index: &Path, entries: Vec<(RelPath, Signature)>) -> Result<(), Fault> {
    merge_into(&pulled_file(index), entries)
}

fn merge_into(file: &Path, entries: Vec<(RelPath, Signature)>) -> Result<(), Fault> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut all: BTreeMap<RelPath, Signature> = BTreeMap::new();
    if let Ok(earlier) = File::open(file) {
        // An unreadable record counts as missing: pulled paths then count as changed.
        let _ = decode(earlier, |path, signature| {
            all.insert(path.clone(), signature);
            true
        });
    }
    all.extend(entries);
    write_atomically(file, |out| {
        let mut encoder = Encoder::new(out, 0)?;
        for (path, signature) in &all {
            encoder.put(path, signature)?;
        }
        encoder.finish()
    })
    .map(drop)
    .map_err(|error| io("write", file, error))
}

fn pulled_file(index: &Path) -> PathBuf {
    beside(index, ".pulled")
}

/// Records where a pull put the sandbox's versions beside those of the host, with their signatures.
///
/// # Errors
/// When the record cannot be written.
pub(crate) fn note_theirs(index: &Path, entries: Vec<(RelPath, Signature)>) -> Result<(), Fault> {
    merge_into(&beside(index, ".theirs"), entries)
}

/// Returns the recorded versions that pulls put beside the host's. Empty if the record cannot be
/// read.
pub(crate) fn noted_theirs(index: &Path) -> Vec<(RelPath, Signature)> {
    let mut found = Vec::new();
    if let Ok(file) = File::open(beside(index, ".theirs")) {
        let read = decode(file, |path, signature| {
            found.push((path.clone(), signature));
            true
        });
        if read.is_err() {
            found.clear();
        }
    }
    found
}

/// Returns the path of the index with a suffix.
fn beside(index: &Path, suffix: &str) -> PathBuf {
    let mut name = index.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    index.with_file_name(name)
}

fn lookup(file: &Path, wanted: &BTreeSet<RelPath>) -> Option<HashMap<RelPath, Signature>> {
    let mut found = HashMap::new();
    let mut rest = wanted.iter();
    let mut next = rest.next();
    scan(File::open(file).ok()?, |path, signature| {
        while let Some(waited) = next {
            match crate::path::compare(waited.as_bytes(), path) {
                Ordering::Greater => break,
                Ordering::Equal => {
                    found.insert(waited.clone(), signature);
                }
                Ordering::Less => {}
            }
            next = rest.next();
        }
        next.is_some()
    })
    .ok()?;
    Some(found)
}

fn write_atomically<T>(
    path: &Path,
    write: impl FnOnce(BufWriter<File>) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let written = File::create(&new)
        .map(|file| BufWriter::with_capacity(64 << 10, file))
        .and_then(write)
        .and_then(|done| std::fs::rename(&new, path).map(|()| done));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests;
