//! User and group ids of the calling thread: those of getresuid(2) and getresgid(2), and the one
//! for file operations (setfsuid(2)).
#![expect(unsafe_code, reason = "none of these calls has a safe wrapper")]

use rustix::io::Errno;

/// Real, effective and saved ids of a process.
pub(crate) type IdTriple = [u32; 3];

/// Returns the user ids and group ids of the calling thread.
pub(crate) fn current() -> Result<(IdTriple, IdTriple), Errno> {
    Ok((read(libc::SYS_getresuid)?, read(libc::SYS_getresgid)?))
}

/// Returns the real, effective, saved and file-system user id of the calling thread. An id that
/// cannot be read is `u32::MAX`, which no user has.
pub(crate) fn user_ids() -> [u32; 4] {
    let [real, effective, saved] = read(libc::SYS_getresuid).unwrap_or([u32::MAX; 3]);
    [real, effective, saved, file_user_id()]
}

/// Reads three ids. Precondition: `number` is getresuid(2) or getresgid(2).
fn read(number: libc::c_long) -> Result<IdTriple, Errno> {
    // `u32::MAX` is no valid id. It remains where the kernel writes nothing.
    let mut ids: IdTriple = [u32::MAX; 3];
    let [real, effective, saved] = &mut ids;
    // SAFETY: both calls write three ids of 32 bits to the addresses given, which are distinct and
    // live.
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

fn file_user_id() -> u32 {
    // SAFETY: setfsuid(2) takes an integer. This one is no id, so nothing changes and the present
    // one comes back, which is the only way to read it.
    let present = unsafe { libc::setfsuid(u32::MAX) };
    present.cast_unsigned()
}

/// Sets the user id for file operations of the calling thread. It has to be one of the thread's
/// other ids. Returns false if the kernel refused.
pub(crate) fn set_file_user_id(uid: u32) -> bool {
    // SAFETY: setfsuid(2) takes an integer and changes nothing but credentials of this thread.
    unsafe { libc::setfsuid(uid) };
    file_user_id() == uid
}
