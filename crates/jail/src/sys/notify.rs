//! seccomp_unotify(2): a filter with a listener that answers some system calls in place of the
//! kernel.
#![expect(
    unsafe_code,
    reason = "neither the listener nor its ioctls have a safe wrapper"
)]

use rustix::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use rustix::io::Errno;
use std::io;

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER` and `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`. With the
/// latter, after a call was received only a fatal signal ends the caller's wait. Otherwise a
/// handled signal would restart a call whose work is already done.
const LISTENER_FLAGS: libc::c_ulong = (1 << 3) | (1 << 5);

/// A system call that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notification {
    /// Cookie of the call.
    pub(crate) id: u64,
    /// Id of the thread that made the call.
    pub(crate) thread: i32,
    /// Number of the system call.
    pub(crate) number: i64,
    /// Arguments of the call.
    pub(crate) args: [u64; 6],
}

/// Installs `program` on the calling thread. Returns its listener (close-on-exec).
pub(crate) fn install(program: &'static [libc::sock_filter]) -> io::Result<OwnedFd> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: `program` and the `len` instructions it points to are valid for the whole call, which
    // copies and never writes them. The filter changes no memory of this process.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            LISTENER_FLAGS,
            &raw const program,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor for us, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// Receives the next call. Blocks until there is one.
///
/// # Errors
/// `NOENT` if the calling thread was killed meanwhile; `INTR`.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> Result<Notification, Errno> {
    // SAFETY: all fields are integers, for which zero is a value; the kernel wants it zeroed.
    let mut request: libc::seccomp_notif = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one `seccomp_notif`, which lives.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV as _,
            &raw mut request,
        )
    };
    check(result)?;
    Ok(Notification {
        id: request.id,
        thread: request.pid as i32,
        number: i64::from(request.data.nr),
        args: request.data.args,
    })
}

/// Returns true if the thread that made the call still waits for its answer. While it waits, its
/// thread id cannot be reused.
pub(crate) fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one integer of 64 bits, which lives.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _,
            &raw const id,
        )
    };
    result == 0
}

/// Answers a call: 0 or the errno. Never tells the kernel to execute the call itself, because the
/// memory that its pointers refer to may have changed since it was examined.
pub(crate) fn answer(
    listener: BorrowedFd<'_>,
    id: u64,
    result: Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut response: libc::seccomp_notif_resp = unsafe { core::mem::zeroed() };
    response.id = id;
    response.error = result.err().map_or(0, |errno| -errno.raw_os_error());
    // SAFETY: the kernel reads one `seccomp_notif_resp`, which lives.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND as _,
            &raw const response,
        )
    };
    check(result)
}

/// Answers a call with a new descriptor of the caller for the open file of `fd`. The caller has it
/// when its call returns, or the call fails.
///
/// # Errors
/// `MFILE` if the caller has too many descriptors; `NOENT` if it has ended. The call still waits
/// for its answer then.
pub(crate) fn give(
    listener: BorrowedFd<'_>,
    id: u64,
    fd: BorrowedFd<'_>,
    is_close_on_exec: bool,
) -> Result<(), Errno> {
    let close_on_exec = if is_close_on_exec { libc::O_CLOEXEC } else { 0 };
    let addition = libc::seccomp_notif_addfd {
        id,
        flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
        srcfd: fd.as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: close_on_exec as u32,
    };
    // SAFETY: the kernel reads one `seccomp_notif_addfd`, which lives, and takes a reference of its
    // own to the open file of `fd`.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ADDFD as _,
            &raw const addition,
        )
    };
    check(result)
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result < 0 {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(())
    }
}
