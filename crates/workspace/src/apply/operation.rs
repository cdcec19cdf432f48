//! Operations of a commit: performing one, detecting whether it was performed, and undoing it.
//!
//! Every operation is one `renameat2(2)`, `mkdirat(2)` or `fchmod(2)`, so it was either performed
//! or not. Inode numbers tell which, wherever the commit was interrupted.

use super::journal::Staging;
use crate::RelPath;
use crate::base::{Kind, Signature};
use crate::beneath::{Anchor, io, read_names, stat_at};
use glovebox_proto::{Code, Fault};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// One operation of a commit. Slots are names in the staging directory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Operation {
    /// Renames the host's version.
    Move {
        path: RelPath,
        to: RelPath,
        expected: Signature,
    },
    /// Moves a file, link or empty directory into the staging directory.
    TakeOut {
        path: RelPath,
        slot: u32,
        expected: Signature,
    },
    /// Creates a directory, and sets its owner if one is given.
    MakeDir {
        path: RelPath,
        owner: Option<(u32, u32)>,
    },
    /// Moves a staged file or link to a free path.
    PutIn {
        path: RelPath,
        slot: u32,
        made: Signature,
    },
    /// Exchanges a staged file or link with the existing object.
    Exchange {
        path: RelPath,
        slot: u32,
        made: Signature,
        expected: Signature,
    },
    /// Sets the permissions of a file.
    SetMode {
        path: RelPath,
        mode: u32,
        expected: Signature,
    },
}

/// Number of names that are tried for a version that cannot go back to its path.
const MAX_NAMES: u32 = 100;

/// Directories in which operations work.
pub(super) struct OperationDirs<'a> {
    anchor: &'a Anchor,
    staging: &'a Staging,
    /// Files that operations of this commit have changed, by inode number: a rename changes the
    /// `ctime` of the file, which its other hard links show as well.
    own_changes: RefCell<BTreeMap<u64, OwnChange>>,
}

/// Attributes of a file before and after operations of this commit.
struct OwnChange {
    /// Attributes that the plan saw.
    planned: Signature,
    /// Attributes after the last operation.
    now: Signature,
}

impl<'a> OperationDirs<'a> {
    pub(super) fn new(anchor: &'a Anchor, staging: &'a Staging) -> Self {
        Self {
            anchor,
            staging,
            own_changes: RefCell::default(),
        }
    }

    /// Performs one operation. If it fails, it has no effect.
    pub(super) fn perform(&self, operation: &Operation) -> Result<(), Fault> {
        match operation {
            Operation::Move { path, to, expected } => {
                let (from_dir, from) = self.parent(path)?;
                let (to_dir, to_name) = self.parent(to)?;
                self.expect(&from_dir, from, path, expected)?;
                rename_new(&from_dir, from, &to_dir, to_name)
                    .map_err(|errno| self.cannot("rename", path, errno))?;
                self.note_own_change(&to_dir, to_name, expected);
                Ok(())
            }
            Operation::TakeOut {
                path,
                slot,
                expected,
            } => self.take_out(path, *slot, expected),
            Operation::MakeDir { path, owner } => {
                let (dir, name) = self.parent(path)?;
                rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777))
                    .map_err(|errno| self.cannot("make", path, errno))?;
                let Some((uid, gid)) = owner else {
                    return Ok(());
                };
                let (uid, gid) = (
                    rustix::fs::Uid::from_raw(*uid),
                    rustix::fs::Gid::from_raw(*gid),
                );
                // A file system without owners may refuse even a change to the current owner.
                let is_given = stat_at(dir.as_fd(), name)
                    .is_ok_and(|stat| (stat.st_uid, stat.st_gid) == (uid.as_raw(), gid.as_raw()));
                if is_given {
                    return Ok(());
                }
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(&dir, name, Some(uid), Some(gid), flags).map_err(|errno| {
                    // An operation that fails is not undone, so it must leave nothing behind.
                    let _ = rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR);
                    self.cannot("give away", path, errno)
                })
            }
            Operation::PutIn { path, slot, .. } => {
                let (dir, name) = self.parent(path)?;
                let slot = slot.to_string();
                rename_new(&self.staging.new, slot.as_bytes(), &dir, name)
                    .map_err(|errno| self.cannot("write", path, errno))
            }
            Operation::Exchange {
                path,
                slot,
                expected,
                ..
            } => self.exchange(path, *slot, expected),
            Operation::SetMode {
                path,
                mode,
                expected,
            } => {
                let (dir, name) = self.parent(path)?;
                self.expect(&dir, name, path, expected)?;
                set_mode(&dir, name, expected, *mode)
                    .map_err(|errno| self.cannot("change the permissions of", path, errno))?;
                self.note_own_change(&dir, name, expected);
                Ok(())
            }
        }
    }

    /// Records the attributes of a file after an operation on it. The plan saw it as `planned`, and
    /// it is now `name` in `dir`.
    fn note_own_change(&self, dir: &OwnedFd, name: &[u8], planned: &Signature) {
        let (Signature::Present { ino, .. }, Ok(stat)) = (planned, stat_at(dir.as_fd(), name))
        else {
            return;
        };
        let change = OwnChange {
            planned: *planned,
            now: Signature::from(&stat),
        };
        self.own_changes.borrow_mut().insert(*ino, change);
    }

    /// Returns the attributes that a file has if only this commit has changed it since the plan saw
    /// it as `planned`.
    fn current(&self, planned: &Signature) -> Signature {
        let Signature::Present { ino, .. } = planned else {
            return *planned;
        };
        match self.own_changes.borrow().get(ino) {
            Some(change) if change.planned == *planned => change.now,
            _ => *planned,
        }
    }

    fn take_out(&self, path: &RelPath, slot: u32, expected: &Signature) -> Result<(), Fault> {
        let (dir, name) = self.parent(path)?;
        let current = self.expect(&dir, name, path, expected)?;
        let slot = slot.to_string();
        let old = &self.staging.old;
        match rename_new(&dir, name, old, slot.as_bytes()) {
            // An overlay cannot rename a directory that is in a lower layer.
            Err(Errno::XDEV) if is_dir(expected) => {
                return remove_dir(&dir, name, old, slot.as_bytes())
                    .map_err(|errno| self.cannot("remove", path, errno));
            }
            renamed => renamed.map_err(|errno| self.cannot("remove", path, errno))?,
        }
        // The host may have replaced the object after the check above, or put something into the
        // directory.
        let is_right = is_untouched(old, slot.as_bytes(), &current)
            && (!is_dir(expected) || is_empty_dir(old, slot.as_bytes()));
        if is_right {
            self.note_own_change(old, slot.as_bytes(), expected);
            return Ok(());
        }
        rename_new(old, slot.as_bytes(), &dir, name)
            .map_err(|errno| self.cannot("put back", path, errno))?;
        Err(self.changed(path))
    }

    fn exchange(&self, path: &RelPath, slot: u32, expected: &Signature) -> Result<(), Fault> {
        let (dir, name) = self.parent(path)?;
        let current = self.expect(&dir, name, path, expected)?;
        let slot = slot.to_string();
        let new = &self.staging.new;
        let swap = || {
            let flags = RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(new, slot.as_bytes(), &dir, name, flags)
        };
        swap().map_err(|errno| self.cannot("replace", path, errno))?;
        // The host may have replaced the object between the check and the exchange.
        if is_untouched(new, slot.as_bytes(), &current) {
            self.note_own_change(new, slot.as_bytes(), expected);
            return Ok(());
        }
        swap().map_err(|errno| self.cannot("put back", path, errno))?;
        Err(self.changed(path))
    }

    /// Undoes one operation, if it was performed. If the host has changed the result since, that
    /// stays and the earlier version is put beside it.
    pub(super) fn undo(&self, operation: &Operation) -> Result<(), Fault> {
        let result = match operation {
            Operation::Move { path, to, expected } => {
                self.both(path, to, |dir, name, to_dir, to| {
                    if is_same_inode(to_dir, to, expected) {
                        put_back(to_dir, to, dir, name)
                    } else {
                        Ok(())
                    }
                })
            }
            Operation::TakeOut {
                path,
                slot,
                expected,
            } => {
                let slot = slot.to_string();
                if exists(&self.staging.old, slot.as_bytes()) {
                    self.at(path, |dir, name| {
                        if is_dir(expected) && is_same_inode(dir, name, expected) {
                            // Only the copy was made ([`remove_dir`]); it is removed with the
                            // staging directory.
                            return Ok(());
                        }
                        put_back(&self.staging.old, slot.as_bytes(), dir, name)
                    })
                } else {
                    Ok(())
                }
            }
            Operation::MakeDir { path, .. } => self.at(path, |dir, name| {
                match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
                    // The host has put something into it, or something else at its path.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
                    other => other,
                }
            }),
            Operation::PutIn { path, slot, made } => {
                let slot = slot.to_string();
                if exists(&self.staging.new, slot.as_bytes()) {
                    return Ok(());
                }
                self.at(path, |dir, name| {
                    if is_untouched(dir, name, made) {
                        rename_new(dir, name, &self.staging.new, slot.as_bytes())
                    } else {
                        Ok(())
                    }
                })
            }
            Operation::Exchange {
                path, slot, made, ..
            } => {
                let slot = slot.to_string();
                let new = &self.staging.new;
                if is_same_inode(new, slot.as_bytes(), made) {
                    return Ok(());
                }
                self.at(path, |dir, name| {
                    if is_untouched(dir, name, made) {
                        let flags = RenameFlags::EXCHANGE;
                        rustix::fs::renameat_with(new, slot.as_bytes(), dir, name, flags)
                    } else {
                        put_back(new, slot.as_bytes(), dir, name)
                    }
                })
            }
            Operation::SetMode {
                path,
                mode,
                expected,
            } => self.at(path, |dir, name| {
                let Signature::Present { mode: before, .. } = expected else {
                    return Ok(());
                };
                let is_ours =
                    stat_at(dir.as_fd(), name).is_ok_and(|stat| stat.st_mode & 0o7777 == *mode);
                if is_ours && is_same_inode(dir, name, expected) {
                    set_mode(dir, name, expected, *before)
                } else {
                    Ok(())
                }
            }),
        };
        let (path, kept) = match operation {
            Operation::TakeOut { path, slot, .. } => (path, Some(("old", slot))),
            Operation::Exchange { path, slot, .. } => (path, Some(("new", slot))),
            Operation::Move { path, .. }
            | Operation::MakeDir { path, .. }
            | Operation::PutIn { path, .. }
            | Operation::SetMode { path, .. } => (path, None),
        };
        match (result, kept) {
            // The host may have removed the directory together with the result.
            (Ok(()), _) | (Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP), None) => Ok(()),
            (Err(errno), None) => Err(self.cannot("put back", path, errno)),
            (Err(errno), Some((room, slot))) => {
                let kept = self.staging.path.join(room).join(slot.to_string());
                Err(self.cannot("put back", path, errno).remedy(format!(
                    "its earlier version is {}; make its directory again, or move it yourself",
                    kept.display()
                )))
            }
        }
    }

    /// Returns the current signature of a path after an operation was undone, if the object is
    /// again the one that the plan saw. `None` for operations that create or rename.
    pub(super) fn restored(&self, operation: &Operation) -> Option<(RelPath, Signature)> {
        let (Operation::TakeOut { path, expected, .. }
        | Operation::Exchange { path, expected, .. }
        | Operation::SetMode { path, expected, .. }) = operation
        else {
            // The other operations created an object, or renamed one that the host had changed.
            return None;
        };
        let (dir, name) = self.open_parent(path).ok()?;
        let now = Signature::from(&stat_at(dir.as_fd(), name).ok()?);
        is_untouched(&dir, name, expected).then(|| (path.clone(), now))
    }

    /// Calls `act` with the directory of a path and the last component.
    fn at(
        &self,
        path: &RelPath,
        act: impl FnOnce(&OwnedFd, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (dir, name) = self.open_parent(path)?;
        act(&dir, name)
    }

    fn both(
        &self,
        path: &RelPath,
        to: &RelPath,
        act: impl FnOnce(&OwnedFd, &[u8], &OwnedFd, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (dir, name) = self.open_parent(path)?;
        let (to_dir, to_name) = self.open_parent(to)?;
        act(&dir, name, &to_dir, to_name)
    }

    fn open_parent<'p>(&self, path: &'p RelPath) -> Result<(OwnedFd, &'p [u8]), Errno> {
        let name = path.name();
        let length = path.as_bytes().len() - name.len();
        let above = &path.as_bytes()[..length.saturating_sub(1)];
        Ok((self.anchor.dir_within(above)?, name))
    }

    fn parent<'p>(&self, path: &'p RelPath) -> Result<(OwnedFd, &'p [u8]), Fault> {
        self.open_parent(path)
            .map_err(|errno| self.cannot("open the directory of", path, errno))
    }

    /// Returns the attributes of an object that is as the plan saw it, or as this commit made it.
    ///
    /// # Errors
    /// `busy` if it is neither.
    fn expect(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        path: &RelPath,
        expected: &Signature,
    ) -> Result<Signature, Fault> {
        let now = match stat_at(dir.as_fd(), name) {
            Ok(stat) => Signature::from(&stat),
            Err(Errno::NOENT) => Signature::Absent,
            Err(errno) => return Err(self.cannot("inspect", path, errno)),
        };
        let current = self.current(expected);
        if now.is_same(&current) {
            Ok(current)
        } else {
            Err(self.changed(path))
        }
    }

    fn changed(&self, path: &RelPath) -> Fault {
        let at = self.anchor.path().join(path.as_path());
        Fault::failed(
            Code::Busy,
            format!("{} changed while it was being written", at.display()),
        )
        .remedy("try again")
        .retryable()
    }

    fn cannot(&self, what: &str, path: &RelPath, errno: Errno) -> Fault {
        io(what, &self.anchor.path().join(path.as_path()), errno)
    }
}

/// Renames to a free name. Fails with [`Errno::EXIST`] if the name is taken.
fn rename_new(from: &OwnedFd, name: &[u8], to: &OwnedFd, new: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // The file system does not support the flag, so the check is not atomic.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if exists(to, new) {
                return Err(Errno::EXIST);
            }
            rustix::fs::renameat(from, name, to, new)
        }
        other => other,
    }
}

/// Renames an object back to its former name, or to one beside it if the host has put something
/// there.
fn put_back(from: &OwnedFd, slot: &[u8], dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rename_new(from, slot, dir, name) {
        Err(Errno::EXIST) => {}
        other => return other,
    }
    for number in 0..MAX_NAMES {
        let mut beside = [name, b".orig"].concat();
        if number > 0 {
            beside.extend_from_slice(format!(".{number}").as_bytes());
        }
        match rename_new(from, slot, dir, &beside) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
    Err(Errno::EXIST)
}

/// Removes an empty directory that cannot be renamed, after creating a copy of it in its slot for
/// an undo. The copy comes first, so that one of the two exists wherever this is interrupted.
fn remove_dir(dir: &OwnedFd, name: &[u8], old: &OwnedFd, slot: &[u8]) -> Result<(), Errno> {
    let stat = stat_at(dir.as_fd(), name)?;
    rustix::fs::mkdirat(old, slot, Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(old, slot, flags, Mode::empty()).and_then(|copy| {
        let (uid, gid) = (
            rustix::fs::Uid::from_raw(stat.st_uid),
            rustix::fs::Gid::from_raw(stat.st_gid),
        );
        let own = rustix::fs::fstat(&copy)?;
        if (own.st_uid, own.st_gid) != (stat.st_uid, stat.st_gid) {
            rustix::fs::fchown(&copy, Some(uid), Some(gid))?;
        }
        rustix::fs::fchmod(&copy, Mode::from_raw_mode(stat.st_mode & 0o7777))
    });
    // The kernel refuses to remove a directory that is not empty.
    made.and_then(|()| rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR))
        .inspect_err(|_| {
            let _ = rustix::fs::unlinkat(old, slot, AtFlags::REMOVEDIR);
        })
}

fn set_mode(dir: &OwnedFd, name: &[u8], expected: &Signature, mode: u32) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let Signature::Present { ino, .. } = expected else {
        return Err(Errno::NOENT);
    };
    if stat.st_ino != *ino {
        return Err(Errno::STALE);
    }
    // `fchmod(2)` needs a file open for reading or writing, and the owner may lack both
    // permissions.
    let mut path = b"/proc/self/fd/".to_vec();
    path.extend_from_slice(
        std::os::fd::AsRawFd::as_raw_fd(&file)
            .to_string()
            .as_bytes(),
    );
    rustix::fs::chmodat(
        rustix::fs::CWD,
        path.as_slice(),
        Mode::from_raw_mode(mode),
        AtFlags::empty(),
    )
}

fn inode(dir: &OwnedFd, name: &[u8]) -> Option<u64> {
    Some(stat_at(dir.as_fd(), name).ok()?.st_ino)
}

fn exists(dir: &OwnedFd, name: &[u8]) -> bool {
    stat_at(dir.as_fd(), name).is_ok()
}

fn is_same_inode(dir: &OwnedFd, name: &[u8], expected: &Signature) -> bool {
    matches!(expected, Signature::Present { ino, .. } if inode(dir, name) == Some(*ino))
}

/// Returns true if the object is the one seen before. Its `ctime` is not compared, because a rename
/// changes it; a directory is compared by inode number alone.
fn is_untouched(dir: &OwnedFd, name: &[u8], expected: &Signature) -> bool {
    let Ok(stat) = stat_at(dir.as_fd(), name) else {
        return false;
    };
    let mut now = Signature::from(&stat);
    if let (
        Signature::Present { ctime_ns: now, .. },
        Signature::Present {
            ctime_ns: before, ..
        },
    ) = (&mut now, expected)
    {
        *now = *before;
    }
    now == *expected || (is_dir(expected) && is_same_inode(dir, name, expected))
}

fn is_dir(signature: &Signature) -> bool {
    matches!(
        signature,
        Signature::Present {
            kind: Kind::Dir,
            ..
        }
    )
}

fn is_empty_dir(dir: &OwnedFd, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::openat(dir, name, flags, Mode::empty()) else {
        return false;
    };
    let mut is_empty = true;
    read_names(&opened, |_, _| {
        is_empty = false;
        Ok::<(), Errno>(())
    })
    .is_ok()
        && is_empty
}
