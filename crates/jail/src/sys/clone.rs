//! A child in new namespaces.
#![expect(
    unsafe_code,
    reason = "clone(2) with namespace flags has no safe wrapper"
)]

use rustix::fd::{FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;

/// Which side of [`clone_into`] this is.
#[derive(Debug)]
pub(crate) enum Side {
    /// The new process.
    Child,
    /// The old process.
    Parent {
        /// Process id of the child as the parent sees it.
        pid: Pid,
        /// Refers to the child and nothing else, whatever happens to its pid.
        pidfd: OwnedFd,
    },
}

/// Namespaces and parenthood of the child, as `CLONE_*` bits of clone(2).
pub(crate) type Flags = libc::c_int;

/// Continues in two processes, the child in the namespaces named by `flags`.
///
/// Uses clone(2), not clone3(2): container hosts commonly answer the latter with `ENOSYS`.
///
/// Preconditions: the process has one thread. Otherwise a lock held by another thread at this
/// moment would stay locked in the child for ever.
pub(crate) fn clone_into(flags: Flags) -> Result<Side, Errno> {
    const OWNED_BY_PARENT: Flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_SETTLS;
    let flags = (flags & !OWNED_BY_PARENT) | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut pidfd: libc::c_int = -1;
    // SAFETY: no stack is given and CLONE_VM is masked out, so the child runs on its own copy of
    // this stack and address space exactly as after fork(2). The kernel writes `pidfd` (it travels
    // in the parent_tid argument, the third on every architecture Linux has this call on) before
    // returning, and the variable outlives the call. CLONE_SETTLS and the child_tid flags are
    // absent, so the last two arguments, whose order differs between architectures, are not read.
    let result = unsafe {
        libc::syscall(
            libc::SYS_clone,
            flags,
            0_usize,
            &raw mut pidfd,
            0_usize,
            0_usize,
        )
    };
    match result {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        0 => Ok(Side::Child),
        pid => {
            // SAFETY: the kernel has just created this descriptor for us and nobody else owns it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let pid = Pid::from_raw(pid as i32).ok_or(Errno::INVAL)?;
            Ok(Side::Parent { pid, pidfd })
        }
    }
}
