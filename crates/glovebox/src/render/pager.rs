//! Long texts for a person, through the user's pager.
//!
//! What fits the terminal is written as it is. More goes through `$PAGER`, or `less -R` without one; an
//! empty `PAGER`, or `cat`, means none. Whoever leaves the pager has seen enough, which is no failure.

use crate::streams::{Signals, StopWatch, terminal_size};
use glovebox_settings::Surroundings;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

const DEFAULT: &str = "less -R";

/// Where the text goes in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screen {
    /// Results.
    Stdout,
    /// What is shown beside a question.
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

/// A writer that starts a pager when there is more than the terminal has lines.
pub(crate) struct Pager<'a> {
    screen: Screen,
    signals: &'a Signals,
    /// `None`: nobody is to page, or the pager runs already.
    command: Option<Command>,
    pending: Vec<u8>,
    running: Option<(Child, Option<ChildStdin>)>,
}

impl<'a> Pager<'a> {
    /// A writer to `screen`.
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

    /// Shows what is left, and waits until the person has seen it.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some((mut child, input)) = self.running.take() else {
            let pending = std::mem::take(&mut self.pending);
            return self.screen.write(&pending);
        };
        drop(input);
        let ended = child.wait();
        self.signals.rest();
        ended.map(drop)
    }

    /// Whether what is pending takes more lines than there are.
    fn is_long(&self) -> bool {
        let size = terminal_size();
        let columns = usize::from(size.cols).max(1);
        let rows = self
            .pending
            .split(|byte| *byte == b'\n')
            .map(|line| line.len().div_ceil(columns).max(1));
        // The last part is what follows the last line break; the prompt needs a line too.
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
                // Ctrl-C is for the pager as long as it runs.
                self.signals.work(StopWatch(Box::new(|_| {})));
                let input = child.stdin.take();
                self.running = Some((child, input));
            }
            Err(_) => return Ok(()),
        }
        let pending = std::mem::take(&mut self.pending);
        self.feed(&pending)
    }

    /// Hands text to the pager; one that was left takes no more.
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

/// The user's pager; `None` when there is to be none, or there is no program of the default.
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
        // Colours come through; everything else is escaped.
        command.env("LESS", "R");
    }
    Some(command)
}

fn has_less(host: &Surroundings) -> bool {
    let path = host.var("PATH").unwrap_or_default();
    std::env::split_paths(path).any(|dir| dir.join("less").is_file())
}
