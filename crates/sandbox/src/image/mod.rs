//! The guest, which is embedded in this library and executed from a file of its own. The program
//! that runs scripts is only embedded.
//!
//! `/proc/PID/exe` of a guest leads to the file that it runs from, and nothing inside may ever
//! write to that file, even after the guest has ended (the class of CVE-2019-5736). Usually the
//! file is one copy in the state directory that every start checks ([`kept`]); if that is
//! impossible, it is a sealed memory file.

mod carried;
pub(crate) mod kept;

pub use carried::{CarriedProgram, GUEST, SCRIPTS};

use crate::fault;
use glovebox_jail::memory_program;
use glovebox_proto::Fault;
use std::ffi::CStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// BLAKE3 hash of the embedded guest, in hexadecimal.
pub const GUEST_HASH: &str = GUEST.blake3();
/// SHA-256 hash of the embedded guest, in hexadecimal, for checks on remote machines.
pub const GUEST_SHA256: &str = env!("GLOVEBOX_GUEST_SHA256");
/// Name of the memory file, and of the guest in process lists.
const NAME: &CStr = c"glovebox-guest";

/// Guest as an executable file that nothing inside can write to.
#[derive(Debug)]
pub struct GuestImage {
    fd: OwnedFd,
}

impl GuestImage {
    /// Opens the copy kept in the directory `base`. Creates a memory file if that is impossible,
    /// such as on a file system that is full, read-only or mounted `noexec`.
    pub(crate) fn shared(base: &Path) -> Result<Self, Fault> {
        match kept::open(base) {
            Some(fd) => Ok(Self { fd }),
            None => Self::new(),
        }
    }

    /// Creates a sealed memory file.
    ///
    /// # Errors
    /// `unavailable` if this kernel forbids executable memory files.
    pub fn new() -> Result<Self, Fault> {
        let fd = memory_program::create(NAME).map_err(|errno| {
            fault::plain_io("cannot make a memory file for the guest", errno)
                .remedy("if `sysctl vm.memfd_noexec` is 2, set it to 1 or 0")
        })?;
        let mut file = File::from(fd);
        file.write_all(&GUEST.unpack()?)
            .map_err(|error| fault::plain_io("cannot fill the memory file for the guest", error))?;
        let fd = OwnedFd::from(file);
        memory_program::seal(&fd)
            .map_err(|errno| fault::plain_io("cannot seal the memory file of the guest", errno))?;
        Ok(Self { fd })
    }

    /// Returns a path to the file, valid in this process and in a child that is about to execute
    /// it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }
}

impl AsFd for GuestImage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn the_image_cannot_be_changed() {
        let image = GuestImage::new().unwrap();
        assert_eq!(rustix::io::write(&image, b"x"), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&image, 0), Err(Errno::PERM));
    }
}
