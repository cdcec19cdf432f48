//! What a file of the host has beside content and mode, kept when a pull replaces it: extended
//! attributes of its user and its access control list.
//!
//! They are the host's own words about its own file, so nothing of the sandbox is in them. Where the
//! file system or our rights do not allow it, the replacement goes without.

use crate::RelPath;
use crate::beneath::Anchor;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use std::fs::File;

/// Longest list of names, and longest value, that Linux knows (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MAX_BYTES: usize = 64 << 10;
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Gives a staged file the attributes of the one it replaces. To be done before its mode is set: a
/// list brings its own.
pub(super) fn keep(anchor: &Anchor, path: &RelPath, staged: &File) {
    let Ok((replaced, _)) = anchor.file(path.as_bytes()) else {
        return;
    };
    let mut names = vec![0_u8; MAX_BYTES];
    let Ok(length) = flistxattr(&replaced, &mut names[..]) else {
        return;
    };
    let mut value = vec![0_u8; MAX_BYTES];
    let is_kept = |name: &&[u8]| name.starts_with(b"user.") || *name == ACCESS_LIST;
    for name in names[..length].split(|byte| *byte == 0).filter(is_kept) {
        if let Ok(length) = fgetxattr(&replaced, name, &mut value[..]) {
            let _ = fsetxattr(staged, name, &value[..length], XattrFlags::empty());
        }
    }
}
