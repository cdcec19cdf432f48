//! Destinations of a command's output.

use super::terminal;
use crate::render;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::{Map, Value};
use std::io;
use std::os::fd::BorrowedFd;

/// Receiver of a command's output.
pub(crate) trait OutputSink {
    /// Handles a piece of output.
    ///
    /// # Errors
    /// The sink accepts no further output; the caller then cancels the command.
    fn data(&mut self, is_stderr: bool, bytes: &[u8]) -> io::Result<()>;
}

/// Sink that copies output unchanged to standard output and error of this process.
#[derive(Debug, Default)]
pub(crate) struct Passthrough {
    is_stderr_closed: bool,
    /// Stream that shows the command's terminal: true for standard error, None for neither. Changes
    /// that a program makes to our terminal are undone when it ends.
    screen: Option<bool>,
}

impl Passthrough {
    /// Creates the sink for a program with a terminal. `screen` is true if standard error shows
    /// that terminal, false if standard output does, None if neither does.
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
        // A closed standard error does not end the command.
        if !self.is_stderr_closed && write_all(rustix::stdio::stderr(), bytes).is_err() {
            self.is_stderr_closed = true;
        }
        Ok(())
    }
}

/// Writes everything; polls a descriptor that its owner left in non-blocking mode.
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

/// Sink that keeps output in memory, up to a maximum per stream.
#[derive(Debug)]
pub(crate) struct Capture {
    /// Standard output, or the output of a terminal.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// True if bytes were dropped.
    pub is_truncated: bool,
    max_bytes: usize,
}

impl Capture {
    /// Creates a sink that keeps at most `max_bytes` of each stream.
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

/// Sink that prints one JSON object per piece of output, as it arrives.
#[derive(Debug, Default)]
pub(crate) struct JsonLines {
    stdout: PartialChar,
    stderr: PartialChar,
}

/// Start of a UTF-8 character whose rest has not arrived yet.
#[derive(Debug, Default)]
struct PartialChar(Vec<u8>);

impl PartialChar {
    /// Returns the bytes to print now: those held back, then `bytes` up to the last complete
    /// character.
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
    /// Prints the incomplete characters that were held back.
    ///
    /// # Errors
    /// The reader of standard output has closed it.
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
