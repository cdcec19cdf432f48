//! Pages that stay in memory, which has no safe wrapper.
#![expect(unsafe_code, reason = "mlock(2) has no safe wrapper")]

use rustix::io::Errno;

/// Locks the pages that these bytes lie in.
pub(crate) fn lock(bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the range is that of a live slice, so it is mapped; locking reads and changes none of it.
    unsafe { rustix::mm::mlock(bytes.as_ptr().cast_mut().cast(), bytes.len()) }
}
