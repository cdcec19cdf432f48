//! The user's terminal: raw while a command has it, and always given back as it was.
//!
//! The settings to return to live in one place that the guard, the panic hook and the signal thread
//! can all reach; whoever comes first restores, the others find nothing to do. What programs inside changed by
//! control sequences is undone with them.

use super::terminal_modes::TerminalModes;
use crate::exit::CommandError;
use glovebox_proto::WindowSize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::IsTerminal as _;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

/// Settings of the terminal before it became raw.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);
/// What was changed since, where standard output is a terminal.
static CHANGED: Mutex<Option<TerminalModes>> = Mutex::new(None);
/// How long a terminal that takes nothing may keep us from ending.
const UNDO_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// Whether standard input, output and error are terminals, and this process may use the first.
pub(crate) fn is_interactive() -> bool {
    let stdin = rustix::stdio::stdin();
    // A background job that changes its terminal is stopped (tcsetattr(3)).
    let is_in_foreground =
        || rustix::termios::tcgetpgrp(stdin).is_ok_and(|group| group == rustix::process::getpgrp());
    std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && std::io::stderr().is_terminal()
        && is_in_foreground()
}

/// A terminal in raw mode; dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct RawMode(());

impl RawMode {
    /// Puts the terminal on standard input into raw mode.
    ///
    /// # Errors
    /// A usage error when standard input is no terminal.
    pub(crate) fn enter() -> Result<Self, CommandError> {
        let stdin = rustix::stdio::stdin();
        let saved = tcgetattr(stdin).map_err(|_| {
            CommandError::usage(
                "standard input is not a terminal",
                "run it from a terminal, or leave --tty out",
            )
        })?;
        let mut raw = saved.clone();
        raw.make_raw();
        *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(saved);
        *CHANGED.lock().unwrap_or_else(PoisonError::into_inner) =
            isatty(rustix::stdio::stdout()).then(TerminalModes::new);
        let guard = Self(());
        tcsetattr(stdin, OptionalActions::Drain, &raw)
            .map_err(|error| CommandError::io("set the terminal to raw mode", &error.into()))?;
        Ok(guard)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back as it was. Harmless when it was never changed.
pub(crate) fn restore() {
    undo_changes();
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(saved) = saved {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &saved);
    }
}

/// Takes note of what a program writes to the terminal.
pub(super) fn observe(bytes: &[u8]) {
    if let Some(modes) = &mut *CHANGED.lock().unwrap_or_else(PoisonError::into_inner) {
        modes.observe(bytes);
    }
}

/// Undoes what programs changed about the terminal and left like that.
fn undo_changes() {
    // A thread that panicked while it held the lock must not wait for itself.
    let Some(changed) = CHANGED.try_lock().ok().and_then(|mut modes| modes.take()) else {
        return;
    };
    let text = changed.undo();
    let stdout = rustix::stdio::stdout();
    if !text.is_empty()
        && poll(
            &mut [PollFd::new(&stdout, PollFlags::OUT)],
            Some(&UNDO_WAIT),
        ) == Ok(1)
    {
        let _ = rustix::io::write(stdout, text.as_bytes());
    }
}

/// Makes the terminal raw again after the process was stopped and continued.
pub(super) fn renew() {
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(saved) = saved.as_ref() {
        let mut raw = saved.clone();
        raw.make_raw();
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &raw);
    }
}

/// Size of the terminal, or the classical one when it does not know.
pub(crate) fn size() -> WindowSize {
    let of = |fd: std::os::fd::BorrowedFd<'_>| {
        tcgetwinsize(fd)
            .ok()
            .filter(|size| size.ws_row > 0 && size.ws_col > 0)
    };
    let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    match of(stdin.as_fd()).or_else(|| of(stdout.as_fd())) {
        Some(size) => WindowSize {
            rows: size.ws_row,
            cols: size.ws_col,
        },
        None => WindowSize { rows: 24, cols: 80 },
    }
}
