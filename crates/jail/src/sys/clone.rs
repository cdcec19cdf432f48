//! Creation of a child in new namespaces.
#![expect(
    unsafe_code,
    reason = "clone(2) with namespace flags has no safe wrapper"
)]

use rustix::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::process::Pid;

/// Side of [`clone_into`] on which the caller continues.
#[derive(Debug)]
pub(crate) enum Side {
    /// The new process.
    Child,
    /// The old process.
    Parent {
        /// Process id of the child as the parent sees it.
        pid: Pid,
        /// Pidfd of the child. It refers to the child alone, even if the pid is reused.
        pidfd: OwnedFd,
    },
}

/// Namespaces and parenthood of the child, as `CLONE_*` bits of clone(2).
pub(crate) type Flags = libc::c_int;

/// Flags that would make the child share memory or thread state with its parent. They are masked
/// out.
const OWNED_BY_PARENT: Flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_SETTLS;
/// `CLONE_INTO_CGROUP` of clone3(2).
const INTO_CGROUP: u64 = 1 << 33;

/// Argument of clone3(2), laid out as in linux/sched.h. Not every C library declares it.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Does the same as [`clone_into`], with the child created inside the version 2 control group whose
/// directory is `group`. Moving a living process takes milliseconds, because the kernel waits for
/// every fork and exit on the machine.
///
/// # Errors
/// Those of clone3(2): `ENOSYS` where a container host forbids it, `EACCES` where the caller may
/// not move processes to the group.
pub(crate) fn clone_into_group(flags: Flags, group: BorrowedFd<'_>) -> Result<Side, Errno> {
    let mut pidfd: libc::c_int = -1;
    // With CLONE_PARENT the kernel uses the exit signal of the caller and refuses another one.
    let is_sibling = flags & libc::CLONE_PARENT != 0;
    let wanted = (flags & !OWNED_BY_PARENT) | libc::CLONE_PIDFD;
    let args = CloneArgs {
        flags: u64::from(wanted.cast_unsigned()) | INTO_CGROUP,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: if is_sibling { 0 } else { libc::SIGCHLD as u64 },
        cgroup: group.as_raw_fd() as u64,
        ..CloneArgs::default()
    };
    // SAFETY: as in `clone_into`: no stack is given and CLONE_VM is masked out. `args` has the size
    // that is told, the kernel writes `pidfd` before returning, and both outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) };
    side(result, pidfd)
}

/// Continues in two processes, the child in the namespaces named by `flags`.
///
/// Uses clone(2), not clone3(2): container hosts commonly answer the latter with `ENOSYS`.
///
/// Preconditions: the process has one thread. Otherwise a lock held by another thread at this
/// moment would stay locked in the child for ever.
pub(crate) fn clone_into(flags: Flags) -> Result<Side, Errno> {
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
    side(result, pidfd)
}

/// Converts the result of a call that returns in two processes into the side of this one.
fn side(result: libc::c_long, pidfd: libc::c_int) -> Result<Side, Errno> {
    match result {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        0 => Ok(Side::Child),
        pid => {
            // SAFETY: the kernel has just created this descriptor for the caller, so nothing else
            // owns it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let pid = Pid::from_raw(pid as i32).ok_or(Errno::INVAL)?;
            Ok(Side::Parent { pid, pidfd })
        }
    }
}
