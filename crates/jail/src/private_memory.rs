//! Memory of this process that must reach neither the disk nor another process of the same user.

use crate::sys::memory_lock;
use rustix::process::DumpableBehavior;
use std::io;

/// Keeps these bytes out of swap while they are mapped. Whole pages are locked, and they stay
/// locked after the bytes are freed and the memory is reused.
///
/// # Errors
/// The limit on locked memory (RLIMIT_MEMLOCK) does not allow it.
pub fn keep_in_memory(bytes: &[u8]) -> io::Result<()> {
    memory_lock::lock(bytes).map_err(Into::into)
}

/// Makes this process undumpable (PR_SET_DUMPABLE): no other process of the same user can trace it
/// or read its memory, and a crash writes no core file.
///
/// # Errors
/// The kernel refuses, for which there is no known cause.
pub fn hide_from_others() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Into::into)
}
