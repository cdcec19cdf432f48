//! Descriptors that this process inherited, referred to by number.
#![expect(unsafe_code, reason = "a number is no descriptor to the type system")]

use rustix::fd::{FromRawFd as _, OwnedFd};
use rustix::io::Errno;

/// Lowest number of a duplicate. Shells use the lower numbers for themselves.
const FIRST_DUPLICATE: i32 = 256;

fn errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::BADF)
}

/// Sets the descriptor with this number to close-on-exec. Does nothing if there is none.
pub(crate) fn close_on_exec(number: i32) {
    // SAFETY: fcntl(2) with integers; it changes a flag of a descriptor and closes none.
    let _ = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// Returns a duplicate of the descriptor with this number.
pub(crate) fn duplicate(number: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: fcntl(2) with integers; it makes a descriptor and closes none.
    let made = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, FIRST_DUPLICATE) };
    if made < 0 {
        return Err(errno());
    }
    // SAFETY: the kernel has just made this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}
