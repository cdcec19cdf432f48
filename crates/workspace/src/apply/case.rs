//! Detects whether a directory treats names that differ only in case as one.
//!
//! The type and the flags of the file system are checked first. If they do not decide, existing
//! names are looked up in the other case. Nothing is written.

use crate::beneath::{Anchor, read_names, stat_at};
use crate::collect::RESERVED_PREFIX;
use rustix::fd::AsFd as _;
use rustix::io::Errno;
use std::collections::HashSet;

/// Flag of a directory that folds case (`FS_CASEFOLD_FL`), set per directory on ext4, f2fs and
/// tmpfs.
const CASEFOLD: u32 = 0x4000_0000;
/// Types of file systems that fold case everywhere, or if their server does: FAT, exFAT, HFS+, SMB.
const FOLDING: &[u64] = &[0x4d44, 0x2011_bab0, 0x482b, 0xff53_4d42, 0xfe53_4d42];
/// Maximum number of names that are read; a few suffice.
const MAX_NAMES: usize = 1000;

/// Returns true if a destination is known to fold case.
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
                // A name that can be looked up but is not listed exists under another name. Inode
                // numbers alone do not decide, because FUSE file systems may invent them per name.
                inode(&other).is_some() && (is_complete || inode(&other) == inode(name))
            })
}

/// Returns the name with the case of its ASCII letters inverted.
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
