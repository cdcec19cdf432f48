//! What becomes of a command's output.

use super::terminal;
use crate::render;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::{Map, Value};
use std::io;
use std::os::fd::BorrowedFd;

/// Takes a command's output.
pub(crate) trait OutputSink {
    /// Takes some bytes.
    ///
    /// # Errors
    /// When there is no point in sending more; the command is then cancelled.
    fn data(&mut self, is_stderr: bool, bytes: &[u8]) -> io::Result<()>;
}

/// Byte for byte to our own standard output and error.
#[derive(Debug, Default)]
pub(crate) struct Passthrough {
    is_stderr_closed: bool,
    /// The stream that shows the command's terminal, true for standard error. What a program changes about ours is
    /// undone when it ends.
    screen: Option<bool>,
}

impl Passthrough {
    /// The output of a program that has a terminal, which standard output shows, standard error (true), or neither.
    pub(crate) fn on_terminal(screen: Option<bool>) -> Self {
        terminal::begin_observing();
        Self {
            screen,
            ..Self::default()
        }
    }
}

impl OutputSink for Passthrough {
    fn data(&mut self, is_stderr: bool, bytes: &[u8]) -> io::Result<()> {
        if self.screen == Some(is_stderr) {
            terminal::observe(bytes);
        }
        if !is_stderr {
            return write_all(rustix::stdio::stdout(), bytes);
        }
        // A command goes on when nobody reads its complaints.
        if !self.is_stderr_closed && write_all(rustix::stdio::stderr(), bytes).is_err() {
            self.is_stderr_closed = true;
        }
        Ok(())
    }
}

/// Writes everything, waiting where a descriptor was left in non-blocking mode by its owner.
pub(super) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Kept in memory up to a cap per stream.
#[derive(Debug)]
pub(crate) struct Capture {
    /// Standard output, or what a terminal showed.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Whether something was left out.
    pub is_truncated: bool,
    max_bytes: usize,
}

impl Capture {
    /// Keeps at most `max_bytes` of each stream.
    pub(crate) const fn new(max_bytes: usize) -> Self {
        Self {
            stdout: Vec::new(),
            stderr: Vec::new(),
            is_truncated: false,
            max_bytes,
        }
    }
}

impl OutputSink for Capture {
    fn data(&mut self, is_stderr: bool, bytes: &[u8]) -> io::Result<()> {
        let kept = if is_stderr {
            &mut self.stderr
        } else {
            &mut self.stdout
        };
        let room = self.max_bytes - kept.len();
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.is_truncated |= bytes.len() > room;
        Ok(())
    }
}

/// One JSON object per piece of output, as it arrives.
#[derive(Debug, Default)]
pub(crate) struct JsonLines {
    stdout: PartialChar,
    stderr: PartialChar,
}

/// The start of a character whose rest has not arrived yet.
#[derive(Debug, Default)]
struct PartialChar(Vec<u8>);

impl PartialChar {
    /// Bytes to show now: what was held back, then `bytes` up to the last whole character.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut ready = std::mem::take(&mut self.0);
        ready.extend_from_slice(bytes);
        if let Err(error) = std::str::from_utf8(&ready)
            && error.error_len().is_none()
        {
            self.0 = ready.split_off(error.valid_up_to());
        }
        ready
    }
}

impl JsonLines {
    /// Prints what was held back for want of the rest of a character.
    ///
    /// # Errors
    /// When nobody reads it.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        for is_stderr in [false, true] {
            let tail = if is_stderr {
                &mut self.stderr
            } else {
                &mut self.stdout
            };
            let rest = std::mem::take(&mut tail.0);
            if !rest.is_empty() {
                Self::line(is_stderr, &rest)?;
            }
        }
        Ok(())
    }

    fn line(is_stderr: bool, bytes: &[u8]) -> io::Result<()> {
        let mut object = Map::new();
        object.insert("version".to_owned(), render::VERSION.into());
        object.insert(
            "event".to_owned(),
            if is_stderr { "stderr" } else { "stdout" }.into(),
        );
        render::output_fields(&mut object, "data", bytes);
        write_all(
            rustix::stdio::stdout(),
            format!("{}\n", Value::Object(object)).as_bytes(),
        )
    }
}

impl OutputSink for JsonLines {
    fn data(&mut self, is_stderr: bool, bytes: &[u8]) -> io::Result<()> {
        let ready = if is_stderr {
            self.stderr.take(bytes)
        } else {
            self.stdout.take(bytes)
        };
        if ready.is_empty() {
            Ok(())
        } else {
            Self::line(is_stderr, &ready)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_stops_at_its_cap_and_says_so() {
        let mut capture = Capture::new(4);
        capture.data(false, b"abc").unwrap();
        assert!(!capture.is_truncated);
        capture.data(false, b"def").unwrap();
        capture.data(true, b"x").unwrap();
        assert_eq!(
            (capture.stdout.as_slice(), capture.stderr.as_slice()),
            (&b"abcd"[..], &b"x"[..])
        );
        assert!(capture.is_truncated);
    }

    #[test]
    fn a_character_split_over_two_pieces_stays_whole() {
        let mut tail = PartialChar::default();
        assert_eq!(tail.take(b"a\xc3"), b"a");
        assert_eq!(tail.take(b"\xa4b"), "äb".as_bytes());
        assert_eq!(tail.take(b"\xff\xfe"), b"\xff\xfe");
    }
}
