//! Locking of pages in memory.
#![expect(unsafe_code, reason = "mlock(2) has no safe wrapper")]

use rustix::io::Errno;

/// Locks the pages that contain these bytes, so that they are not swapped out.
pub(crate) fn lock(bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the range is that of a live slice, so it is mapped; locking reads and changes none of
    // it.
    unsafe { rustix::mm::mlock(bytes.as_ptr().cast_mut().cast(), bytes.len()) }
}
