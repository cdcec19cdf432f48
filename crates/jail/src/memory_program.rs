//! Programs in memory files: executable, without a path, and sealed against every change.

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::time::Duration;

/// Number of retries of sealing and the pause between them. Each try also waits a while in the
/// kernel.
const SEAL_TRIES: u32 = 50;
const SEAL_PAUSE: Duration = Duration::from_millis(20);

/// Creates an empty file. `name` only appears in lists of processes.
///
/// # Errors
/// `ACCESS` if `vm.memfd_noexec` or a security module forbids programs in memory.
pub fn create(name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // `MFD_EXEC` requests an executable file. Kernels from 6.3 on may require the flag; older ones
    // do not know it.
    match rustix::fs::memfd_create(name, flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        other => other,
    }
}

/// Forbids every change permanently. The kernel refuses (`EBUSY`) while one of the pages is in use.
/// On a busy machine the kernel itself may use one, for longer than it waits, so sealing is
/// retried.
///
/// # Errors
/// Those of `F_ADD_SEALS` in fcntl(2).
pub fn seal(file: &OwnedFd) -> Result<(), Errno> {
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    let mut tries = 0;
    loop {
        match rustix::fs::fcntl_add_seals(file, seals) {
            Err(Errno::BUSY) if tries < SEAL_TRIES => tries += 1,
            done => return done,
        }
        std::thread::sleep(SEAL_PAUSE);
    }
}
