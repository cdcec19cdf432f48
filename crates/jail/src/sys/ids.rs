//! The ids of the calling thread: those that getresuid(2) and getresgid(2) tell, and the one of file
//! operations (setfsuid(2)).
#![expect(unsafe_code, reason = "none of these calls has a safe wrapper")]

use rustix::io::Errno;

/// Real, effective and saved ids of a process.
pub(crate) type IdTriple = [u32; 3];

/// User ids and group ids of the calling thread.
pub(crate) fn current() -> Result<(IdTriple, IdTriple), Errno> {
    Ok((read(libc::SYS_getresuid)?, read(libc::SYS_getresgid)?))
}

/// Real, effective, saved and file-system user id of the calling thread; what cannot be read is no valid id.
pub(crate) fn user_ids() -> [u32; 4] {
    let [real, effective, saved] = read(libc::SYS_getresuid).unwrap_or([u32::MAX; 3]);
    [real, effective, saved, file_user_id()]
}

/// Precondition: `number` is one of the two calls.
fn read(number: libc::c_long) -> Result<IdTriple, Errno> {
    // No id is this number; it stays where the kernel has not written.
    let mut ids: IdTriple = [u32::MAX; 3];
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

fn file_user_id() -> u32 {
    // SAFETY: setfsuid(2) takes an integer. This one is no id, so nothing changes and the present one comes
    // back, which is the only way to read it.
    let present = unsafe { libc::setfsuid(u32::MAX) };
    present.cast_unsigned()
}

/// Has the calling thread do its file operations as `uid`; `false` when the kernel refused. It has to be one
/// of the thread's other ids.
pub(crate) fn set_file_user_id(uid: u32) -> bool {
    // SAFETY: setfsuid(2) takes an integer and changes nothing but credentials of this thread.
    unsafe { libc::setfsuid(uid) };
    file_user_id() == uid
}
