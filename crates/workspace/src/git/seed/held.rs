//! Held objects: hard links to a repository's object files, which a garbage collection on the host
//! cannot remove.
//!
//! A link takes 16 µs, and changes only the `ctime` of the user's file. Before the sandbox is
//! ready, all packs and some loose objects are linked; the rest follows while it works.

use super::source::{as_path, child_files, entries, join};
use super::target::Target;
use super::{HELD, RepositoryRecord, read_seed_record};
use crate::beneath::Anchor;
use rustix::fs::{AtFlags, CWD, FileType};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of loose objects of all repositories that are linked before the sandbox is ready.
const EARLY_LOOSE: usize = 500;
/// Maximum number of bytes that are copied where links are not possible.
const MAX_COPIED_BYTES: u64 = 1 << 30;
/// Free space that a copy must leave on the file system, in bytes.
const MIN_FREE_BYTES: u64 = 1 << 30;
/// Name of the marker in a seed whose objects are all held.
const COMPLETE: &str = "held-complete";

/// Remaining number of links to be made before the sandbox is ready.
#[derive(Debug)]
pub(super) struct LinkBudget {
    loose: usize,
}

impl Default for LinkBudget {
    fn default() -> Self {
        Self { loose: EARLY_LOOSE }
    }
}

/// Held objects of one repository.
#[derive(Debug)]
pub(super) struct HeldObjects<'a> {
    common: &'a Anchor,
    target: &'a Target,
    dir: &'a Path,
}

/// Result of linking a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linked {
    Done,
    /// The file was removed.
    Gone,
    /// The file cannot be linked from here.
    Impossible,
}

impl<'a> HeldObjects<'a> {
    pub(super) fn new(common: &'a Anchor, target: &'a Target, dir: &'a Path) -> io::Result<Self> {
        target.make_dir(dir)?;
        Ok(Self {
            common,
            target,
            dir,
        })
    }

    /// Links all packs, and as many loose objects as the budget allows. Stops at the first file
    /// that cannot be linked.
    pub(super) fn link(&self, budget: &mut LinkBudget) -> io::Result<()> {
        for (dir, name) in self.packs() {
            if self.link_one(&dir, &name)? == Linked::Impossible {
                return Ok(());
            }
        }
        for dir in self.fan_out() {
            for name in self.loose_in(&dir) {
                if budget.loose == 0 {
                    return Ok(());
                }
                budget.loose -= 1;
                if self.link_one(&dir, &name)? == Linked::Impossible {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Links or copies all objects that are not held yet. Returns false if one could not be held,
    /// or if `is_stopped` returned true.
    fn complete(&self, room: &mut u64, is_stopped: &dyn Fn() -> bool) -> io::Result<bool> {
        let mut is_whole = true;
        let packs = self.packs().into_iter();
        let loose = self.fan_out().into_iter().flat_map(|dir| {
            let names = self.loose_in(&dir);
            names.into_iter().map(move |name| (dir.clone(), name))
        });
        for (dir, name) in packs.chain(loose) {
            if is_stopped() {
                return Ok(false);
            }
            let is_held = match self.link_one(&dir, &name)? {
                Linked::Done | Linked::Gone => true,
                Linked::Impossible => self.copy_one(&dir, &name, room)?,
            };
            is_whole &= is_held;
        }
        Ok(is_whole)
    }

    /// Returns the files of packs, each pack before its index: git opens the pack that an index
    /// names.
    fn packs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let dir = b"objects/pack".to_vec();
        let names = child_files(self.common, &dir).into_iter();
        let mut names: Vec<_> = names.filter(|name| !name.starts_with(b"tmp_")).collect();
        let rank = |name: &[u8]| !name.ends_with(b".pack");
        names.sort_by_key(|name| rank(name));
        names.into_iter().map(|name| (dir.clone(), name)).collect()
    }

    /// Returns the directories of loose objects.
    fn fan_out(&self) -> Vec<Vec<u8>> {
        let found = entries(self.common, b"objects").into_iter();
        found
            .filter(|(name, kind)| *kind == FileType::Directory && is_hex(name, 2..=2))
            .map(|(name, _)| join(b"objects", &name))
            .collect()
    }

    fn loose_in(&self, dir: &[u8]) -> Vec<Vec<u8>> {
        let names = child_files(self.common, dir).into_iter();
        names.filter(|name| is_hex(name, 38..=62)).collect()
    }

    fn place(&self, dir: &[u8], name: &[u8]) -> io::Result<PathBuf> {
        let below = dir.strip_prefix(b"objects/").unwrap_or(dir);
        let place = self.dir.join(as_path(below));
        self.target.make_dir(&place)?;
        Ok(place.join(as_path(name)))
    }

    fn link_one(&self, dir: &[u8], name: &[u8]) -> io::Result<Linked> {
        let place = self.place(dir, name)?;
        let Ok(from) = self.common.dir(dir) else {
            return Ok(Linked::Gone);
        };
        match rustix::fs::linkat(&from, name, CWD, &place, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => Ok(Linked::Done),
            Err(Errno::NOENT) => Ok(Linked::Gone),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(Errno::NOSPC.into()),
            // The file is on another file system, or on one without links, or `protected_hardlinks`
            // forbids the link.
            Err(_) => Ok(Linked::Impossible),
        }
    }

    /// Clones a file's blocks, or copies it while there is space. Returns false if there is too
    /// little.
    fn copy_one(&self, dir: &[u8], name: &[u8], room: &mut u64) -> io::Result<bool> {
        let place = self.place(dir, name)?;
        let Ok((mut from, stat)) = self.common.file(&join(dir, name)) else {
            return Ok(true);
        };
        let draft = place.with_extension("new");
        let mut to = match File::create_new(&draft) {
            Ok(to) => to,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // An earlier start was interrupted while it wrote this copy.
                fs::remove_file(&draft)?;
                File::create_new(&draft)?
            }
            Err(error) => return Err(error),
        };
        let bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        let is_shared = rustix::fs::ioctl_ficlone(&to, &from).is_ok();
        if !is_shared {
            let free = rustix::fs::fstatvfs(&to)?;
            let free = free.f_bavail.saturating_mul(free.f_frsize);
            if *room < bytes || free < MIN_FREE_BYTES.saturating_add(bytes) {
                drop(to);
                fs::remove_file(&draft)?;
                return Ok(false);
            }
            *room -= bytes;
            io::copy(&mut from, &mut to)?;
        }
        to.set_permissions(fs::Permissions::from_mode(0o444))?;
        fs::rename(&draft, &place)?;
        Ok(true)
    }
}

fn is_hex(name: &[u8], length: std::ops::RangeInclusive<usize>) -> bool {
    length.contains(&name.len())
        && name
            .iter()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
}

/// Holds the remaining objects of the seed in the directory `layer`, while its sandbox works
/// already. Returns true if all existing objects are held; false if `is_stopped` returned true, or
/// if there was too little space.
pub fn complete_held(layer: &Path, is_stopped: &dyn Fn() -> bool) -> bool {
    let marker = layer.join(COMPLETE);
    if marker.exists() {
        return true;
    }
    let Some(record) = read_seed_record(layer) else {
        return false;
    };
    let mut room = MAX_COPIED_BYTES;
    let mut is_whole = true;
    for (number, repository) in record.repositories.iter().enumerate() {
        if repository.problem.is_none() {
            let dir = layer.join(HELD).join(number.to_string());
            let held = complete_one(repository, &dir, &mut room, is_stopped);
            is_whole &= held.unwrap_or(false);
        }
    }
    is_whole && fs::write(&marker, b"").is_ok()
}

fn complete_one(
    repository: &RepositoryRecord,
    dir: &Path,
    room: &mut u64,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<bool> {
    let Ok(common) = Anchor::open(&repository.common_dir) else {
        return Ok(false);
    };
    let target = Target::like(dir)?;
    HeldObjects::new(&common, &target, dir)?.complete(room, is_stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_told_apart() {
        assert!(is_hex(b"ab", 2..=2) && !is_hex(b"aB", 2..=2) && !is_hex(b"info", 2..=2));
        assert!(is_hex(&[b'0'; 38], 38..=62) && !is_hex(b"tmp_obj_x", 38..=62));
    }
}
