//! unshare(2) for processes that only try whether it works, and a check whether clone3(2) is
//! filtered.
#![expect(
    unsafe_code,
    reason = "unshare(2) and a raw clone3(2) have no safe wrapper"
)]

use rustix::io::Errno;
use rustix::thread::UnshareFlags;

/// Moves the calling process into new namespaces. It must have a single thread.
pub(crate) fn unshare(namespaces: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the hazard of unshare is a descriptor table that other threads no longer share;
    // CLONE_FILES is masked out, and namespaces leave memory and descriptors as they are.
    unsafe { rustix::thread::unshare_unsafe(namespaces - UnshareFlags::FILES) }
}

/// Returns true if clone3(2) is available. With a size of zero, an available clone3 returns EINVAL.
pub(crate) fn has_clone3() -> bool {
    // SAFETY: with a size of zero the kernel refuses the call before it looks at the pointer.
    let result = unsafe { libc::syscall(libc::SYS_clone3, 0_usize, 0_usize) };
    result == -1 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}
