//! What a native sandbox changed in its workspace: a walk over the overlay's upper layer.
//!
//! The layer was written from inside and is hostile: it is walked by descriptor, links are never
//! followed, and depth and number are bounded. See the kernel's `overlayfs.rst` for its marks.

use crate::fault;
use glovebox_proto::{Code, Fault};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::path::Path;

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Path relative to the workspace, as bytes.
    pub path: Vec<u8>,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It was written to, replaced, or given another mode.
    Modified,
    /// It is gone.
    Deleted,
}

/// Most changes that are listed.
const MAX_CHANGES: usize = 100_000;
/// Deepest directory that is looked into.
const MAX_DEPTH: usize = 256;

/// Lists the changes in `upper` against `project` (nothing, when there is none), sorted by path.
///
/// # Errors
/// When a layer cannot be read, or there are more changes than anybody would list.
pub(crate) fn list(upper: &Path, project: Option<&Path>) -> Result<Vec<Change>, Fault> {
    let open = |path: &Path| {
        rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())
            .map_err(|errno| fault::io("read the changes in", path, errno))
    };
    let upper_fd = open(upper)?;
    let project_fd = project.map(open).transpose()?;
    let mut walk = Walk {
        project: project_fd,
        changes: Vec::new(),
    };
    walk.directory(&upper_fd, &mut Vec::new(), 0)
        .map_err(|errno| fault::io("read the changes in", upper, errno))?;
    if walk.changes.len() > MAX_CHANGES {
        return Err(Fault::failed(
            Code::TooLarge,
            format!("more than {MAX_CHANGES} paths changed in the workspace"),
        ));
    }
    walk.changes.sort();
    Ok(walk.changes)
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

struct Walk {
    project: Option<OwnedFd>,
    changes: Vec<Change>,
}

impl Walk {
    // TRUST: names and depth come from inside; the walk is bounded, opens only directories, one
    // component at a time and never through a link.
    fn directory(&mut self, dir: &OwnedFd, path: &mut Vec<u8>, depth: usize) -> Result<(), Errno> {
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if self.changes.len() > MAX_CHANGES {
                return Ok(());
            }
            let length = path.len();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.to_bytes());
            self.entry(dir, name, path, depth)?;
            path.truncate(length);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        name: &std::ffi::CStr,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Errno> {
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let before = self.kind_before(path);
        let mut add = |kind| {
            self.changes.push(Change {
                path: path.clone(),
                kind,
            });
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                // A whiteout of something the project never had says nothing.
                if before.is_some() {
                    add(ChangeKind::Deleted);
                }
            }
            FileType::Directory => {
                match before {
                    None => add(ChangeKind::Added),
                    Some(FileType::Directory) => {}
                    Some(_) => add(ChangeKind::Modified),
                }
                if depth < MAX_DEPTH {
                    let child = rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())?;
                    self.directory(&child, path, depth + 1)?;
                    if before == Some(FileType::Directory) && is_opaque(&child) {
                        self.hidden(path)?;
                    }
                }
            }
            _ if before.is_some() => add(ChangeKind::Modified),
            _ => add(ChangeKind::Added),
        }
        Ok(())
    }

    fn project_entry(&self, path: &[u8], flags: OFlags) -> Option<OwnedFd> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(self.project.as_ref()?, path, flags, Mode::empty(), resolve).ok()
    }

    fn kind_before(&self, path: &[u8]) -> Option<FileType> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = self.project_entry(path, flags)?;
        let stat = rustix::fs::fstat(found).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// A directory that was removed and made again hides what the project has in it.
    fn hidden(&mut self, path: &[u8]) -> Result<(), Errno> {
        let Some(before) = self.project_entry(path, DIRECTORY) else {
            return Ok(());
        };
        for entry in Dir::read_from(&before)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let mut gone = path.to_vec();
            gone.push(b'/');
            gone.extend_from_slice(name.to_bytes());
            if !self.changes.iter().any(|change| change.path == gone) {
                self.changes.push(Change {
                    path: gone,
                    kind: ChangeKind::Deleted,
                });
            }
        }
        Ok(())
    }
}

fn is_opaque(dir: &OwnedFd) -> bool {
    let mut value = [0_u8; 1];
    matches!(
        rustix::fs::fgetxattr(dir.as_fd(), "user.overlay.opaque", &mut value),
        Ok(1)
    ) && value == *b"y"
}
