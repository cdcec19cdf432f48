//! Standard error of a child process, kept in a memory file of fixed size. No thread has to read it
//! while it is written, and the child cannot make it grow.

use crate::fault;
use glovebox_proto::Fault;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;

/// Size of the file in bytes. Writes beyond it fail (`F_SEAL_GROW`, fcntl(2)). Pages use memory
/// only after they are written.
const KEPT_BYTES: usize = 64 << 10;
/// Maximum number of bytes at the end that are used in a message.
const SHOWN_BYTES: usize = 600;

/// Standard error of one child.
#[derive(Debug)]
pub(super) struct StderrTail {
    file: File,
}

impl StderrTail {
    pub(super) fn new() -> Result<Self, Fault> {
        let make = || {
            let fd = memfd_create(
                "glovebox-stderr",
                MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
            )?;
            ftruncate(&fd, KEPT_BYTES as u64)?;
            fcntl_add_seals(&fd, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
            Ok(fd)
        };
        let fd: OwnedFd = make().map_err(|errno: rustix::io::Errno| {
            fault::plain_io("cannot make a memory file for error output", errno)
        })?;
        Ok(Self {
            file: File::from(fd),
        })
    }

    /// Returns a standard error for a child.
    pub(super) fn stdio(&self) -> Result<Stdio, Fault> {
        let copy = self.file.try_clone();
        copy.map(Stdio::from)
            .map_err(|error| fault::plain_io("cannot copy a file descriptor", error))
    }

    /// Returns the end of the output on one line, safe for a message. Empty if there is none.
    pub(super) fn tail(&self) -> String {
        let mut bytes = vec![0; KEPT_BYTES];
        let read = self.file.read_at(&mut bytes, 0).unwrap_or(0);
        bytes.truncate(read);
        // Nothing was written after the last byte that is not NUL.
        let said = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let from = said.saturating_sub(SHOWN_BYTES);
        // TRUST: the text may come from inside, and control characters could drive a terminal.
        let text = String::from_utf8_lossy(&bytes[from..said]);
        let lines: Vec<_> = text
            .split(['\n', '\r'])
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        lines
            .join("; ")
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_tail_is_kept_and_bounded() {
        let words = StderrTail::new().unwrap();
        let run = |script: &str| {
            Command::new("sh")
                .args(["-c", script])
                .stderr(words.stdio().unwrap())
                .status()
                .unwrap()
        };
        assert_eq!(words.tail(), "");
        run("printf 'first\\nsecond \\033[1m' >&2");
        assert_eq!(words.tail(), "first; second ?[1m");
        run("yes 2>/dev/null | head -c 1000000 >&2; true");
        assert!(words.tail().len() <= 2 * SHOWN_BYTES);
    }
}
