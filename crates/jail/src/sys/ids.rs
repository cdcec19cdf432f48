//! getresuid(2) and getresgid(2): the ids that a process could return to, besides those it has.
#![expect(unsafe_code, reason = "the two calls have no safe wrapper")]

use rustix::io::Errno;

/// Real, effective and saved ids of a process.
pub(crate) type Triple = [u32; 3];

/// User ids and group ids of the calling process.
pub(crate) fn current() -> Result<(Triple, Triple), Errno> {
    Ok((read(libc::SYS_getresuid)?, read(libc::SYS_getresgid)?))
}

/// Precondition: `number` is one of the two calls.
fn read(number: libc::c_long) -> Result<Triple, Errno> {
    // No id is this number; it stays where the kernel has not written.
    let mut ids: Triple = [u32::MAX; 3];
    let [real, effective, saved] = &mut ids;
    // SAFETY: both calls write three ids of 32 bits to the addresses given, which are distinct and live.
    let result = unsafe {
        libc::syscall(
            number,
            std::ptr::from_mut(real),
            std::ptr::from_mut(effective),
            std::ptr::from_mut(saved),
        )
    };
    if result == 0 {
        Ok(ids)
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}
