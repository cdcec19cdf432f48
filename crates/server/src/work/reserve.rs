//! Space that is kept free for deleting: on a full disk a database needs some to forget a session.

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Bytes that are kept.
const RESERVED_BYTES: u64 = 8 << 20;
/// Free bytes from which on they are kept at the start, and again later.
const FIRST_FREE_BYTES: u64 = 2 * RESERVED_BYTES;
const AGAIN_FREE_BYTES: u64 = 64 << 20;

/// A file that is removed where nothing fits any more.
#[derive(Debug)]
pub(super) struct Reserve(PathBuf);

impl Reserve {
    /// Keeps space in `dir`, if there is some.
    pub(super) fn open(dir: &Path) -> Self {
        let reserve = Self(dir.join("reserve"));
        reserve.keep_at(FIRST_FREE_BYTES);
        reserve
    }

    /// Keeps space again after it was released, once the disk has room.
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
        // Half a reserve is none, and a file system without `fallocate` has none.
        if !kept {
            let _ = fs::remove_file(&self.0);
        }
    }

    /// Gives the space back. False if there was none.
    pub(super) fn release(&self) -> bool {
        fs::remove_file(&self.0).is_ok()
    }
}
