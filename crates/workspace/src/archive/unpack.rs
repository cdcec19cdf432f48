//! Unpacks an archive into an empty directory.
//!
//! Names are checked before anything is created. Everything is created beneath a descriptor of the
//! directory, by `openat2(2)` without following links. Symbolic links are created last, after all
//! of them have been found to stay within the tree, so that none exists while files are written.

use super::read::{EntryKind, TarEntry, TarReader};
use super::{ArchiveError, ArchiveProblem};
use crate::beneath::{Anchor, BLOCK_BYTES, io};
use crate::collect::{RESERVED_PREFIX, is_git_name, links_that_lead_out};
use crate::{Quota, RefusalReason, RelPath};
use flate2::bufread::MultiGzDecoder;
use glovebox_proto::Fault;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The first bytes of a gzip stream (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Maximum total size of names and link targets, in bytes: they are held while the archive is
/// unpacked.
const MAX_NAMES_BYTES: usize = 32 << 20;

/// Numbers of the unpacked objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnpackedTotals {
    /// Files, including hard links.
    pub files: u64,
    /// Directories, including those that only occur in the path of another entry.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Unpacks a tar archive, gzipped or not, into an empty directory that no other process writes to.
/// After an error the directory may have content, which the caller must remove.
///
/// # Errors
/// [`ArchiveError::Refused`] for an archive that breaks a rule or exceeds `quota`, which is noticed
/// before more is written; [`ArchiveError::Failed`] when it cannot be read or written.
pub fn unpack(
    mut source: impl Read,
    into: &Path,
    quota: &Quota,
) -> Result<UnpackedTotals, ArchiveError> {
    let mut start = Vec::new();
    (&mut source)
        .take(GZIP.len() as u64)
        .read_to_end(&mut start)
        .map_err(|error| ArchiveError::reading(&error))?;
    let is_gzip = start == GZIP;
    let mut source = BufReader::with_capacity(BLOCK_BYTES, start.as_slice().chain(source));
    if is_gzip {
        let mut decoder = BufReader::with_capacity(BLOCK_BYTES, MultiGzDecoder::new(source));
        unpack_tar(&mut decoder, into, quota)
    } else {
        unpack_tar(&mut source, into, quota)
    }
}

fn unpack_tar(
    source: &mut dyn Read,
    into: &Path,
    quota: &Quota,
) -> Result<UnpackedTotals, ArchiveError> {
    let anchor = Anchor::open(into)?;
    let mut unpacker = Unpacker {
        anchor: &anchor,
        quota,
        seen: BTreeMap::new(),
        names_bytes: 0,
        totals: UnpackedTotals::default(),
    };
    let mut archive = TarReader::new(source);
    let mut entries = 0;
    while let Some(entry) = archive.next()? {
        entries += 1;
        // Entries that create nothing count as well, or an archive could be endless.
        if entries > quota.max_changes {
            return Err(ArchiveError::whole(ArchiveProblem::TooManyEntries));
        }
        unpacker.entry(entry, &mut archive)?;
    }
    unpacker.make_links()
}

/// Object that an earlier entry put at a path.
#[derive(Debug)]
enum SeenPath {
    /// A directory. `is_named` is true if it had an entry of its own, and false if it only occurred
    /// in the path of another entry.
    Dir {
        is_named: bool,
    },
    File {
        size: u64,
        is_executable: bool,
    },
    /// A symbolic link with this target, which is created at the end.
    Link(Vec<u8>),
}

struct Unpacker<'a> {
    anchor: &'a Anchor,
    quota: &'a Quota,
    seen: BTreeMap<RelPath, SeenPath>,
    names_bytes: usize,
    totals: UnpackedTotals,
}

impl Unpacker<'_> {
    fn entry(&mut self, entry: TarEntry, content: &mut dyn Read) -> Result<(), ArchiveError> {
        let refused = |problem| ArchiveError::at(problem, &entry.path);
        let Some(path) = self.path(&entry.path).map_err(refused)? else {
            return match entry.kind {
                EntryKind::Dir => Ok(()),
                _ => Err(refused(ArchiveProblem::BadName)),
            };
        };
        self.make_parents(&path)?;
        match (self.seen.get(&path), entry.kind) {
            (None, _) | (Some(SeenPath::Dir { is_named: false }), EntryKind::Dir) => {}
            _ => return Err(refused(ArchiveProblem::Duplicate)),
        }
        match entry.kind {
            EntryKind::Dir => {
                if !self.seen.contains_key(&path) {
                    self.make_dir(&path)?;
                }
                self.add(path, SeenPath::Dir { is_named: true })
            }
            EntryKind::File { is_executable } => {
                self.write_file(&path, entry.size, is_executable, content)?;
                let size = entry.size;
                self.add(
                    path,
                    SeenPath::File {
                        size,
                        is_executable,
                    },
                )
            }
            EntryKind::HardLink => {
                // The hard link becomes a separate file with the same content.
                let target = self.path(&entry.link).ok().flatten();
                let Some(target) = target else {
                    return Err(refused(ArchiveProblem::HardLink));
                };
                let Some(&SeenPath::File {
                    size,
                    is_executable,
                }) = self.seen.get(&target)
                else {
                    return Err(refused(ArchiveProblem::HardLink));
                };
                let (mut file, _) = self
                    .anchor
                    .file(target.as_bytes())
                    .map_err(|errno| self.failed("open", &target, errno))?;
                self.write_file(&path, size, is_executable, &mut file)?;
                self.add(
                    path,
                    SeenPath::File {
                        size,
                        is_executable,
                    },
                )
            }
            EntryKind::Link => self.add(path, SeenPath::Link(entry.link)),
        }
    }

    /// Returns the checked path of an entry; `None` for the tree itself.
    // TRUST: a path that does not lead downwards is refused, not repaired.
    fn path(&self, typed: &[u8]) -> Result<Option<RelPath>, ArchiveProblem> {
        if typed.starts_with(b"/") {
            return Err(ArchiveProblem::AbsolutePath);
        }
        let mut path = typed;
        while let Some(rest) = path.strip_prefix(b"./") {
            path = rest;
        }
        // The path of a directory may end with a slash.
        let path = path.strip_suffix(b"/").unwrap_or(path);
        if (path.is_empty() && !typed.is_empty()) || path == b"." {
            return Ok(None);
        }
        if path.split(|byte| *byte == b'/').any(|name| name == b"..") {
            return Err(ArchiveProblem::ParentPath);
        }
        let path = RelPath::new(path).map_err(|_| ArchiveProblem::BadName)?;
        if path.components().count() > self.quota.max_depth {
            return Err(ArchiveProblem::TooDeep);
        }
        for name in path.components() {
            if is_git_name(name) {
                return Err(ArchiveProblem::Git);
            }
            if name.starts_with(RESERVED_PREFIX) {
                return Err(ArchiveProblem::BadName);
            }
        }
        Ok(Some(path))
    }

    /// Creates the missing parent directories of a path.
    fn make_parents(&mut self, path: &RelPath) -> Result<(), ArchiveError> {
        let mut missing = Vec::new();
        let mut above = path.parent();
        while let Some(dir) = above {
            match self.seen.get(&dir) {
                Some(SeenPath::Dir { .. }) => break,
                Some(SeenPath::File { .. } | SeenPath::Link(_)) => {
                    let problem = ArchiveProblem::BeneathFile;
                    return Err(ArchiveError::at(problem, path.as_bytes()));
                }
                None => {
                    above = dir.parent();
                    missing.push(dir);
                }
            }
        }
        for dir in missing.into_iter().rev() {
            self.make_dir(&dir)?;
            self.add(dir, SeenPath::Dir { is_named: false })?;
        }
        Ok(())
    }

    /// Records the object at a path and counts it against the limits.
    fn add(&mut self, path: RelPath, seen: SeenPath) -> Result<(), ArchiveError> {
        let link_bytes = match &seen {
            SeenPath::Link(target) => target.len(),
            SeenPath::Dir { .. } | SeenPath::File { .. } => 0,
        };
        self.names_bytes += path.as_bytes().len() + link_bytes;
        if self.names_bytes > MAX_NAMES_BYTES {
            return Err(ArchiveError::at(ArchiveProblem::TooLarge, path.as_bytes()));
        }
        if self.seen.len() >= self.quota.max_changes && !self.seen.contains_key(&path) {
            return Err(ArchiveError::whole(ArchiveProblem::TooManyEntries));
        }
        self.seen.insert(path, seen);
        Ok(())
    }

    fn parent(&self, path: &RelPath) -> Result<OwnedFd, Fault> {
        let parent = path.parent();
        let parent = parent.as_ref().map_or(&b""[..], RelPath::as_bytes);
        let dir = self.anchor.dir(parent);
        dir.map_err(|errno| self.failed("open the directory of", path, errno))
    }

    fn failed(&self, what: &str, path: &RelPath, error: impl Into<std::io::Error>) -> Fault {
        io(what, &self.anchor.path().join(path.as_path()), error)
    }

    fn make_dir(&self, path: &RelPath) -> Result<(), Fault> {
        let made = rustix::fs::mkdirat(self.parent(path)?, path.name(), Mode::from_raw_mode(0o755));
        made.map_err(|errno| self.failed("make", path, errno))
    }

    fn write_file(
        &mut self,
        path: &RelPath,
        size: u64,
        is_executable: bool,
        content: &mut dyn Read,
    ) -> Result<(), ArchiveError> {
        let bytes = self.totals.bytes.saturating_add(size);
        if bytes > self.quota.max_bytes {
            return Err(ArchiveError::at(ArchiveProblem::TooLarge, path.as_bytes()));
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::openat(self.parent(path)?, path.name(), flags, mode);
        let mut file = File::from(fd.map_err(|errno| self.failed("make", path, errno))?);
        let mut block = vec![0; BLOCK_BYTES];
        let mut left = size;
        while left > 0 {
            let most = left.min(BLOCK_BYTES as u64) as usize;
            let count = match content.read(&mut block[..most]) {
                Ok(0) => return Err(ArchiveError::whole(ArchiveProblem::Cut)),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ArchiveError::reading(&error)),
            };
            file.write_all(&block[..count])
                .map_err(|error| self.failed("write", path, error))?;
            left -= count as u64;
        }
        // The umask applies at creation, so the mode is set explicitly.
        let mode = if is_executable { 0o755 } else { 0o644 };
        file.set_permissions(std::fs::Permissions::from_mode(mode))
            .map_err(|error| self.failed("write", path, error))?;
        self.totals.bytes = bytes;
        Ok(())
    }

    /// Creates the symbolic links, after checking that all of them stay within the tree.
    fn make_links(mut self) -> Result<UnpackedTotals, ArchiveError> {
        let links = self.seen.iter().filter_map(|(path, seen)| match seen {
            SeenPath::Link(target) => Some((path.clone(), target.clone())),
            SeenPath::Dir { .. } | SeenPath::File { .. } => None,
        });
        if let Some(refused) = links_that_lead_out(links).first() {
            let problem = match refused.reason {
                RefusalReason::LinkIntoGit => ArchiveProblem::Git,
                _ => ArchiveProblem::LinkLeadsOut,
            };
            return Err(ArchiveError::at(problem, &refused.path));
        }
        for (path, seen) in &self.seen {
            match seen {
                SeenPath::Dir { .. } => self.totals.directories += 1,
                SeenPath::File { .. } => self.totals.files += 1,
                SeenPath::Link(target) => {
                    self.totals.links += 1;
                    let made =
                        rustix::fs::symlinkat(target.as_slice(), self.parent(path)?, path.name());
                    made.map_err(|errno: Errno| self.failed("make", path, errno))?;
                }
            }
        }
        Ok(self.totals)
    }
}
