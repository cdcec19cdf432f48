//! Disk space that is reserved for deleting: on a full disk the database needs some to delete a
//! session.

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Size of the reserve, in bytes.
const RESERVED_BYTES: u64 = 8 << 20;
/// Free bytes from which the reserve is made when the server starts, and again after it was
/// released.
const FIRST_FREE_BYTES: u64 = 2 * RESERVED_BYTES;
const AGAIN_FREE_BYTES: u64 = 64 << 20;

/// File that occupies the reserved space and is removed when the disk is full.
#[derive(Debug)]
pub(super) struct Reserve(PathBuf);

impl Reserve {
    /// Reserves space in `dir` if the disk has enough.
    pub(super) fn open(dir: &Path) -> Self {
        let reserve = Self(dir.join("reserve"));
        reserve.keep_at(FIRST_FREE_BYTES);
        reserve
    }

    /// Reserves space again after it was released, once the disk has room.
    pub(super) fn keep(&self) {
        self.keep_at(AGAIN_FREE_BYTES);
    }

    fn keep_at(&self, free_bytes: u64) {
        let is_kept = fs::metadata(&self.0).is_ok_and(|file| file.len() >= RESERVED_BYTES);
        let has_room = || {
            let dir = self.0.parent().unwrap_or(&self.0);
            statvfs(dir).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= free_bytes)
        };
        if is_kept || !has_room() {
            return;
        }
        let kept = File::create(&self.0)
            .is_ok_and(|file| fallocate(&file, FallocateFlags::empty(), 0, RESERVED_BYTES).is_ok());
        // A partial reserve would not be enough. Also reached on file systems without `fallocate`.
        if !kept {
            let _ = fs::remove_file(&self.0);
        }
    }

    /// Releases the reserved space. Returns false if there was none.
    pub(super) fn release(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}
