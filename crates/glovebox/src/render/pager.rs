//! Long texts for a person, through the user's pager.
//!
//! A text that fits the terminal is written directly. A longer one goes through `$PAGER`, or
//! `less -R` without one; an empty `PAGER`, or `cat`, means no pager. Leaving the pager early is no
//! failure.

use crate::streams::{Signals, StopWatch, terminal_size};
use glovebox_settings::Surroundings;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

const DEFAULT: &str = "less -R";

/// Stream on which the text is displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screen {
    /// Standard output: results.
    Stdout,
    /// Standard error: text next to a question.
    Stderr,
}

impl Screen {
    fn is_terminal(self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        }
    }

    fn write(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().lock().write_all(bytes),
            Self::Stderr => io::stderr().lock().write_all(bytes),
        }
    }
}

/// Writer that starts a pager when the text exceeds the lines of the terminal.
pub(crate) struct Pager<'a> {
    screen: Screen,
    signals: &'a Signals,
    /// Command of the pager. None if there is no person or no pager, or if the pager already runs.
    command: Option<Command>,
    pending: Vec<u8>,
    running: Option<(Child, Option<ChildStdin>)>,
}

impl<'a> Pager<'a> {
    /// Creates a writer to `screen`.
    pub(crate) fn new(host: &Surroundings, screen: Screen, signals: &'a Signals) -> Self {
        let is_person = screen.is_terminal() && io::stdin().is_terminal();
        Self {
            screen,
            signals,
            command: is_person.then(|| command(host)).flatten(),
            pending: Vec::new(),
            running: None,
        }
    }

    /// Writes the rest, and blocks until the user has left the pager.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some((mut child, input)) = self.running.take() else {
            let pending = std::mem::take(&mut self.pending);
            return self.screen.write(&pending);
        };
        // Close the pipe first: the pager waits for the end of its input.
        drop(input);
        let ended = child.wait();
        self.signals.rest();
        ended.map(drop)
    }

    /// Returns true if the pending text exceeds the lines of the terminal.
    fn is_long(&self) -> bool {
        let size = terminal_size();
        let columns = usize::from(size.cols).max(1);
        let rows = self
            .pending
            .split(|byte| *byte == b'\n')
            .map(|line| line.len().div_ceil(columns).max(1));
        // The text after the last line break counts as a row: the prompt needs that one.
        rows.sum::<usize>() > usize::from(size.rows)
    }

    fn start(&mut self) -> io::Result<()> {
        let Some(mut command) = self.command.take() else {
            return Ok(());
        };
        let output = match self.screen {
            Screen::Stdout => Stdio::inherit(),
            Screen::Stderr => {
                Stdio::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?)
            }
        };
        match command.stdin(Stdio::piped()).stdout(output).spawn() {
            Ok(mut child) => {
                // Ctrl-C is the pager's while it runs.
                self.signals.work(StopWatch(Box::new(|_| {})));
                let input = child.stdin.take();
                self.running = Some((child, input));
            }
            Err(_) => return Ok(()),
        }
        let pending = std::mem::take(&mut self.pending);
        self.feed(&pending)
    }

    /// Writes text to the pager. After the user has left it, text is discarded.
    fn feed(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some((_, input)) = &mut self.running else {
            return self.screen.write(bytes);
        };
        let Some(pipe) = input else {
            return Ok(());
        };
        match pipe.write_all(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                *input = None;
                Ok(())
            }
            written => written,
        }
    }
}

impl Write for Pager<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.running.is_some() {
            self.feed(bytes)?;
        } else if self.command.is_some() {
            self.pending.extend_from_slice(bytes);
            if self.is_long() {
                self.start()?;
            }
        } else {
            let pending = std::mem::take(&mut self.pending);
            self.screen.write(&pending)?;
            self.screen.write(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Pager<'_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Returns the command of the user's pager. None if the user wants none, or if `PAGER` is unset and
/// `less` is not installed.
fn command(host: &Surroundings) -> Option<Command> {
    let pager = match host.exact_var(OsStr::new("PAGER")) {
        Some(pager) if pager.is_empty() || pager == "cat" => return None,
        Some(pager) => pager,
        None if has_less(host) => OsStr::new(DEFAULT),
        None => return None,
    };
    let mut command = Command::new("sh");
    command.arg("-c").arg(pager);
    if host.var("LESS").is_none() {
        // less must pass colours through; every other control character is escaped already.
        command.env("LESS", "R");
    }
    Some(command)
}

fn has_less(host: &Surroundings) -> bool {
    let path = host.var("PATH").unwrap_or_default();
    std::env::split_paths(path).any(|dir| dir.join("less").is_file())
}
