//! One operation of a commit: how it is done, how to see whether it was done, and how it is undone.
//!
//! Every operation is one `renameat2(2)`, `mkdirat(2)` or `fchmod(2)`, so it was done or it was not,
//! and which of the two can be told from inode numbers afterwards, whenever the commit stopped.

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
    /// Gives what the host has another name.
    Move {
        path: RelPath,
        to: RelPath,
        expected: Signature,
    },
    /// Takes a file, link or empty directory out.
    TakeOut {
        path: RelPath,
        slot: u32,
        expected: Signature,
    },
    /// Makes a directory, with an owner if there is a choice.
    MakeDir {
        path: RelPath,
        owner: Option<(u32, u32)>,
    },
    /// Puts a staged file or link where nothing is.
    PutIn {
        path: RelPath,
        slot: u32,
        made: Signature,
    },
    /// Exchanges a staged file or link with what is there.
    Exchange {
        path: RelPath,
        slot: u32,
        made: Signature,
        expected: Signature,
    },
    /// Gives a file other permissions.
    SetMode {
        path: RelPath,
        mode: u32,
        expected: Signature,
    },
}

/// How many names are tried for a version that cannot go back to its place.
const MAX_NAMES: u32 = 100;

/// Where operations take place.
pub(super) struct OperationDirs<'a> {
    anchor: &'a Anchor,
    staging: &'a Staging,
    /// Files that operations of this commit have changed, by inode number: a rename changes the
    /// time of the file, which its other hard links show as well.
    own_changes: RefCell<BTreeMap<u64, OwnChange>>,
}

/// What operations of this commit have made of the attributes of a file.
struct OwnChange {
    /// Attributes that the plan saw.
    planned: Signature,
    /// Attributes after the last of the operations.
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

    /// Does one operation. When it fails, it was not done.
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
                // A file system without owners may refuse even what is so already.
                let is_given = stat_at(dir.as_fd(), name)
                    .is_ok_and(|stat| (stat.st_uid, stat.st_gid) == (uid.as_raw(), gid.as_raw()));
                if is_given {
                    return Ok(());
                }
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(&dir, name, Some(uid), Some(gid), flags).map_err(|errno| {
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

    /// Remembers what an operation has made of a file that the plan saw as `planned`; it is `name`
    /// in `dir` now.
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

    /// Returns the attributes that a file has if nobody but this commit has changed it since the
    /// plan saw it as `planned`.
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
        self.expect(&dir, name, path, expected)?;
        let current = self.current(expected);
        let slot = slot.to_string();
        let old = &self.staging.old;
        match rename_new(&dir, name, old, slot.as_bytes()) {
            // An overlay does not rename a directory of the layers below it.
            Err(Errno::XDEV) if is_dir(expected) => {
                return remove_dir(&dir, name, old, slot.as_bytes())
                    .map_err(|errno| self.cannot("remove", path, errno));
            }
            renamed => renamed.map_err(|errno| self.cannot("remove", path, errno))?,
        }
        // What was taken may be another one than was looked at, or a directory that got content.
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
        self.expect(&dir, name, path, expected)?;
        let current = self.current(expected);
        let slot = slot.to_string();
        let new = &self.staging.new;
        let swap = || {
            let flags = RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(new, slot.as_bytes(), &dir, name, flags)
        };
        swap().map_err(|errno| self.cannot("replace", path, errno))?;
        if is_untouched(new, slot.as_bytes(), &current) {
            self.note_own_change(new, slot.as_bytes(), expected);
            return Ok(());
        }
        swap().map_err(|errno| self.cannot("put back", path, errno))?;
        Err(self.changed(path))
    }

    /// Undoes one operation, if it was done. What the host did to the result meanwhile stays, and the
    /// earlier version is put beside it.
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
                            // Only its copy was made ([`remove_dir`]), which goes with the staging directory.
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
                    // The host has put something into it, or something else in its place.
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
            // The host may have removed the directory, and with it what was put there.
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

    /// What is at a path that an undone operation found unchanged by the host, if it is that again.
    pub(super) fn restored(&self, operation: &Operation) -> Option<(RelPath, Signature)> {
        let (Operation::TakeOut { path, expected, .. }
        | Operation::Exchange { path, expected, .. }
        | Operation::SetMode { path, expected, .. }) = operation
        else {
            // The others made something new, or moved what the host had changed.
            return None;
        };
        let (dir, name) = self.open_parent(path).ok()?;
        let now = Signature::from(&stat_at(dir.as_fd(), name).ok()?);
        is_untouched(&dir, name, expected).then(|| (path.clone(), now))
    }

    /// Acts on a path in its directory.
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

    /// Compares what is there with what the plan saw, and with what this commit has made of it.
    fn expect(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        path: &RelPath,
        expected: &Signature,
    ) -> Result<(), Fault> {
        let now = match stat_at(dir.as_fd(), name) {
            Ok(stat) => Signature::from(&stat),
            Err(Errno::NOENT) => Signature::Absent,
            Err(errno) => return Err(self.cannot("inspect", path, errno)),
        };
        if now.is_same(&self.current(expected)) {
            Ok(())
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

/// Renames to a name that nothing has.
fn rename_new(from: &OwnedFd, name: &[u8], to: &OwnedFd, new: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // A file system that does not know the flag: look first.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if exists(to, new) {
                return Err(Errno::EXIST);
            }
            rustix::fs::renameat(from, name, to, new)
        }
        other => other,
    }
}

/// Renames back to the old name, or to one beside it when the host has put something there.
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

/// Removes an empty directory that cannot be renamed, with a copy of it in its slot, which an undo puts back. The copy
/// comes first: whenever this stops, one of the two is there.
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
    // The kernel refuses one that is not empty.
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
    // `fchmod` needs an open file, and the host's owner need not be allowed to read its own file.
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

/// Whether it is what was seen before, but for the time at which it was renamed.
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
