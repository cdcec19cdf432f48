//! Programs in files of memory: executable, without a name, and sealed against every change.

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::time::Duration;

/// How often sealing is tried again, and how long after; each try waits a while in the kernel too.
const SEAL_TRIES: u32 = 50;
const SEAL_PAUSE: Duration = Duration::from_millis(20);

/// Makes an empty one; the name is shown in process lists and means nothing.
///
/// # Errors
/// `ACCESS` where `vm.memfd_noexec` or a security module forbids programs in memory.
pub fn create(name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // `MFD_EXEC` says that execution is meant, which kernels from 6.3 on may insist upon and older
    // ones do not know.
    match rustix::fs::memfd_create(name, flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        other => other,
    }
}

/// Forbids every change, for good. The kernel refuses (`EBUSY`) while anybody holds one of its pages,
/// which on a busy machine may be the kernel itself, for a moment longer than it waits by itself.
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
