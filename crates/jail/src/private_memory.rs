//! Memory of this process that neither the disk nor another process of the same user is to see.

use crate::sys::memory_lock;
use rustix::process::DumpableBehavior;
use std::io;

/// Keeps these bytes out of swap for as long as they are mapped. Pages are locked as a whole, and stay locked when
/// the bytes are freed and others take their place.
///
/// # Errors
/// Where the limit on locked memory (RLIMIT_MEMLOCK) does not allow it.
pub fn keep_in_memory(bytes: &[u8]) -> io::Result<()> {
    memory_lock::lock(bytes).map_err(Into::into)
}

/// Lets no process of the same user trace this one or read its memory, and no crash write it to a file
/// (PR_SET_DUMPABLE).
///
/// # Errors
/// Where the kernel refuses; none is known to.
pub fn hide_from_others() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Into::into)
}
