//! mount_setattr(2): read-only, no-setuid and id-mapped mounts.
#![expect(unsafe_code, reason = "mount_setattr(2) has no safe wrapper")]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// Attributes to set on a mount. No attribute is ever cleared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes<'a> {
    /// `MOUNT_ATTR_RDONLY`.
    pub(crate) is_read_only: bool,
    /// `MOUNT_ATTR_NODEV`.
    pub(crate) is_without_devices: bool,
    /// `MOUNT_ATTR_IDMAP` with the maps of this user namespace.
    pub(crate) idmap: Option<BorrowedFd<'a>>,
}

/// Sets `attributes`, and always `MOUNT_ATTR_NOSUID` and private propagation, on the mount that
/// `mount` refers to; with `is_recursive` also on all mounts below it.
pub(crate) fn set(
    mount: impl AsFd,
    attributes: Attributes<'_>,
    is_recursive: bool,
) -> Result<(), Errno> {
    let mut attr_set = libc::MOUNT_ATTR_NOSUID;
    if attributes.is_read_only {
        attr_set |= libc::MOUNT_ATTR_RDONLY;
    }
    if attributes.is_without_devices {
        attr_set |= libc::MOUNT_ATTR_NODEV;
    }
    if attributes.idmap.is_some() {
        attr_set |= libc::MOUNT_ATTR_IDMAP;
    }
    // SAFETY: `mount_attr` is a plain C struct of integers, for which all zeroes is a value.
    let mut attr: libc::mount_attr = unsafe { std::mem::zeroed() };
    attr.attr_set = attr_set;
    // A copy of a shared mount stays in its peer group, and under systemd every mount is shared:
    // without this, a mount on one side would appear on the other, on the host as well as inside.
    attr.propagation = libc::MS_PRIVATE;
    attr.userns_fd = attributes.idmap.map_or(0, |fd| fd.as_raw_fd() as u64);
    let flags = libc::AT_EMPTY_PATH | if is_recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a NUL-terminated literal, `attr` is initialised and its true size is
    // passed, and both outlive the call, which only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}
