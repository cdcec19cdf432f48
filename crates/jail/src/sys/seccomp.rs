//! seccomp(2) with thread synchronisation, for filters that are constants of this program.
#![expect(unsafe_code, reason = "seccomp(2) has no safe wrapper")]

use std::io;

/// Result of an attempt to install a filter.
pub(crate) enum InstallOutcome {
    /// Every thread of the process runs under it.
    Everywhere,
    /// This thread (by its id) has filters of its own, so no thread was changed.
    Diverged(i32),
}

/// Installs `program` on every thread of the process (`SECCOMP_FILTER_FLAG_TSYNC`).
pub(crate) fn install_everywhere(
    program: &'static [libc::sock_filter],
) -> io::Result<InstallOutcome> {
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
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    match result {
        0 => Ok(InstallOutcome::Everywhere),
        thread if thread > 0 => Ok(InstallOutcome::Diverged(thread as i32)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
