//! The guest: embedded in this library, handed to the kernel as a file of its own. Beside it the program
//! that runs scripts, which is only carried.
//!
//! `/proc/PID/exe` of a guest is a way back to the file it runs from, and nothing inside may ever
//! write to it, now or after the guest has ended (the class of CVE-2019-5736). Usually that file is
//! one copy in the state directory that every start checks ([`kept`]); where there cannot be one,
//! it is a sealed memory file.

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

/// BLAKE3 of the embedded guest, in hex.
pub const GUEST_HASH: &str = GUEST.blake3();
/// SHA-256 of the embedded guest, in hex: what remote machines can compute.
pub const GUEST_SHA256: &str = env!("GLOVEBOX_GUEST_SHA256");
/// Name of the memory file, and so of the guest in process lists.
const NAME: &CStr = c"glovebox-guest";

/// The guest as an executable file that nothing inside can write to.
#[derive(Debug)]
pub struct GuestImage {
    fd: OwnedFd,
}

impl GuestImage {
    /// The copy kept in the directory `base`, or a memory file where there cannot be one: on a file
    /// system that is full, read-only or mounted `noexec`.
    pub(crate) fn shared(base: &Path) -> Result<Self, Fault> {
        match kept::open(base) {
            Some(fd) => Ok(Self { fd }),
            None => Self::new(),
        }
    }

    /// Makes the sealed memory file.
    ///
    /// # Errors
    /// `unavailable` when this kernel forbids executable memory files.
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

    /// Path that names it in this process and in a child about to execute it.
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
