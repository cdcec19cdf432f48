//! Counter of a group: one number of a file of `key number` lines.
//!
//! It is read after every command or a few times a second. So the file is opened once and read with
//! one call; opening, reading and closing it each time took four times as long.

use super::hierarchy::{open_for_reading, value_of};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// Number of bytes that are read. Such a file is shorter, or has the key in its first line.
const FILE_BYTES: usize = 512;

/// The file, opened at the first read.
#[derive(Debug, Default)]
pub(super) struct KeyedCount {
    file: OnceLock<OwnedFd>,
}

impl KeyedCount {
    /// Returns the number after `key` in `file` of the group's directory `dir`. `None` if the file
    /// or the key is missing.
    pub(super) fn read(&self, dir: BorrowedFd<'_>, file: &str, key: &str) -> Option<u64> {
        let fd = if let Some(fd) = self.file.get() {
            fd
        } else {
            let opened = open_for_reading(dir, file).ok()?;
            self.file.get_or_init(|| opened)
        };
        let mut buffer = [0; FILE_BYTES];
        let length = rustix::io::pread(fd, &mut buffer, 0).ok()?;
        value_of(std::str::from_utf8(buffer.get(..length)?).ok()?, key)
    }
}
