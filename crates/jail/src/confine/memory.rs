//! Memory of a process whose system call waits for its answer.
//!
//! Each argument is read once and with a bound; what the process writes afterwards has no effect.

use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Memory of a waiting thread.
#[derive(Debug)]
pub(super) struct Memory(File);

impl Memory {
    /// Opens the memory.
    ///
    /// # Errors
    /// `ACCESS` if it cannot be read.
    pub(super) fn open(thread: i32) -> Result<Self, Errno> {
        // The memory of a program that may be executed but not read cannot be read either.
        File::open(format!("/proc/{thread}/mem"))
            .map(Self)
            .map_err(|_| Errno::ACCESS)
    }

    /// Reads a string that ends with a NUL within `max` bytes. `too_long` is the error if it does
    /// not.
    pub(super) fn string(&self, at: u64, max: usize, too_long: Errno) -> Result<Vec<u8>, Errno> {
        let mut text = vec![0; max];
        // Read page by page, because the string may lie at the end of a mapping.
        let mut have = 0;
        while have < max && !text[..have].contains(&0) {
            let page_left = 4096 - ((at + have as u64) % 4096) as usize;
            let end = max.min(have + page_left);
            match self.0.read_at(&mut text[have..end], at + have as u64) {
                Ok(count) if count > 0 => have += count,
                _ => return Err(Errno::FAULT),
            }
        }
        let len = text[..have].iter().position(|byte| *byte == 0);
        text.truncate(len.ok_or(too_long)?);
        Ok(text)
    }

    /// Reads `len` bytes.
    pub(super) fn bytes(&self, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len];
        self.0
            .read_exact_at(&mut bytes, at)
            .map_err(|_| Errno::FAULT)?;
        Ok(bytes)
    }

    /// Reads `count` words of 64 bits.
    pub(super) fn words(&self, at: u64, count: usize) -> Result<Vec<i64>, Errno> {
        let bytes = self.bytes(at, count * 8)?;
        let word = |chunk: &[u8]| chunk.try_into().map_or(0, i64::from_ne_bytes);
        Ok(bytes.chunks(8).map(word).collect())
    }
}
