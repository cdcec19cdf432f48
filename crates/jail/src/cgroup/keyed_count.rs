//! A count that the kernel keeps for a group: one number of a file of `key number` lines.
//!
//! It is asked for after every command or some times a second, so the file is opened once and read with one call; to
//! open, read to the end and close it each time took four times as long.

use super::hierarchy::{open_for_reading, value_of};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// How much of the file is read. Such files have a few lines of some twenty bytes, or what is looked for in the first.
const FILE_BYTES: usize = 512;

/// The file, once it has been asked for.
#[derive(Debug, Default)]
pub(super) struct KeyedCount {
    file: OnceLock<OwnedFd>,
}

impl KeyedCount {
    /// The number behind `key` in `file` of the group's directory `dir`; `None` when the kernel does not tell.
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
