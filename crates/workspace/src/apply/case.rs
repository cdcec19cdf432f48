//! Whether a directory takes names that differ only in case for one.
//!
//! What the file system says of itself comes first; where it says nothing, names that are there are
//! tried in the other case. Nothing is written.

use crate::beneath::{Anchor, read_names, stat_at};
use crate::collect::RESERVED_PREFIX;
use rustix::fd::AsFd as _;
use rustix::io::Errno;
use std::collections::HashSet;

/// The directory folds case (`FS_CASEFOLD_FL`): a choice per directory on ext4, f2fs and tmpfs.
const CASEFOLD: u32 = 0x4000_0000;
/// File systems that fold case everywhere, or do where their server does: FAT, exFAT, HFS+, SMB.
const FOLDING: &[u64] = &[0x4d44, 0x2011_bab0, 0x482b, 0xff53_4d42, 0xfe53_4d42];
/// A handful of names tells as much as all of them.
const MAX_NAMES: usize = 1000;

/// Whether a destination folds case, as far as that can be seen.
pub(super) fn folds(anchor: &Anchor) -> bool {
    let is_marked =
        rustix::fs::ioctl_getflags(anchor).is_ok_and(|flags| flags.bits() & CASEFOLD != 0);
    let is_known = rustix::fs::fstatfs(anchor)
        .is_ok_and(|found| FOLDING.contains(&(found.f_type as u64 & 0xffff_ffff)));
    is_marked || is_known || folds_names(anchor)
}

fn folds_names(anchor: &Anchor) -> bool {
    let mut names = HashSet::new();
    let Ok(dir) = anchor.dir(b"") else {
        return false;
    };
    let mut is_complete = true;
    let read = read_names(&dir, |name, _| {
        if names.len() >= MAX_NAMES {
            is_complete = false;
        } else if !name.starts_with(RESERVED_PREFIX) {
            names.insert(name.to_vec());
        }
        Ok::<(), Errno>(())
    });
    read.is_ok()
        && names
            .iter()
            .map(|name| (name, other_case(name)))
            .find(|(name, other)| *name != other && !names.contains(other))
            .is_some_and(|(name, other)| {
                let inode = |name: &[u8]| stat_at(dir.as_fd(), name).ok().map(|stat| stat.st_ino);
                // What is found although no list has it is there under another name. (Inode numbers
                // alone do not tell: in user space, file systems make them up name by name.)
                inode(&other).is_some() && (is_complete || inode(&other) == inode(name))
            })
}

/// The same name with small letters for capitals and the reverse.
pub(super) fn other_case(name: &[u8]) -> Vec<u8> {
    let flip = |byte: &u8| {
        if byte.is_ascii_lowercase() {
            byte.to_ascii_uppercase()
        } else {
            byte.to_ascii_lowercase()
        }
    };
    name.iter().map(flip).collect()
}
