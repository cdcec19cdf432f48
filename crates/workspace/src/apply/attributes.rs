//! Keeps the extended attributes in the `user` namespace and the access control list of a host file
//! that a pull replaces.
//!
//! The host set these attributes on its own file, so they contain nothing of the sandbox. They are
//! lost without an error if the file system or the permissions do not allow to copy them.

use crate::RelPath;
use crate::beneath::Anchor;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use std::fs::File;

/// Maximum size of a list of names and of a value on Linux, in bytes (`XATTR_LIST_MAX`,
/// `XATTR_SIZE_MAX`).
const MAX_BYTES: usize = 64 << 10;
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Copies the attributes of a file to the staged file that replaces it. Must be called before the
/// mode is set, because an access control list changes the mode.
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
