//! The user's terminal: raw while a command has it, and always restored.
//!
//! The original settings live in one place that the guard, the panic hook and the signal thread can
//! all reach; the first of them restores, the others find nothing to do. Changes that programs made
//! by control sequences are undone with them.

use super::terminal_modes::TerminalModes;
use crate::exit::CommandError;
use glovebox_proto::WindowSize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Controlling terminal, opened at first use. None inside if there is none.
static DEVICE: OnceLock<Option<OwnedFd>> = OnceLock::new();
/// Mode of the terminal.
static MODE: Mutex<ModeState> = Mutex::new(ModeState {
    saved: None,
    is_wanted: false,
    is_raw: false,
});
/// Changes that programs made to the terminal. None unless the screen is a terminal.
static CHANGED: Mutex<Option<TerminalModes>> = Mutex::new(None);
/// Longest time that a terminal that accepts no output may delay our exit.
const UNDO_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};
/// Device number of `/dev/tty`, which names the controlling terminal of any process.
const CONTROLLING: (u32, u32) = (5, 0);

/// Mode of the terminal.
#[derive(Debug)]
struct ModeState {
    /// Settings before raw mode.
    saved: Option<Termios>,
    /// True while a command has the terminal.
    is_wanted: bool,
    /// True while the terminal is raw: a command has it, and this process has been neither
    /// suspended nor in the background since.
    is_raw: bool,
}

impl ModeState {
    /// Sets raw mode if a command has the terminal. Does nothing in the background, where the
    /// kernel would stop a process that tries (tcsetattr(3)).
    fn apply(&mut self) -> Result<(), rustix::io::Errno> {
        if !self.is_wanted || is_background() {
            return Ok(());
        }
        let device = device();
        // Only while it is not raw: a second read would replace the user's settings by raw ones.
        if !self.is_raw {
            self.saved = Some(tcgetattr(device)?);
        }
        if let Some(saved) = &self.saved {
            let mut raw = saved.clone();
            raw.make_raw();
            tcsetattr(device, OptionalActions::Drain, &raw)?;
            self.is_raw = true;
        }
        Ok(())
    }

    /// Restores the settings from before raw mode.
    fn undo(&mut self) {
        if let Some(saved) = self.saved.take()
            && self.is_raw
            && !is_background()
        {
            let _ = tcsetattr(device(), OptionalActions::Drain, &saved);
        }
        self.is_raw = false;
    }
}

fn lock_mode() -> std::sync::MutexGuard<'static, ModeState> {
    MODE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the terminal of a command: the controlling one, or standard input if there is none.
pub(super) fn device() -> BorrowedFd<'static> {
    let open = || {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(c"/dev/tty", flags, Mode::empty()).ok()
    };
    let device = DEVICE.get_or_init(open).as_ref();
    device.map_or_else(rustix::stdio::stdin, AsFd::as_fd)
}

/// Returns true if another process group is in the foreground of the terminal.
pub(super) fn is_background() -> bool {
    rustix::termios::tcgetpgrp(device()).is_ok_and(|group| group != rustix::process::getpgrp())
}

/// Returns true if this process's group is in the foreground of the terminal.
pub(super) fn is_foreground() -> bool {
    rustix::termios::tcgetpgrp(device()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Terminal that a command gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminalPlan {
    /// No terminal.
    Without,
    /// A terminal that is all three standard streams, and the command's from the start.
    Whole,
    /// The controlling terminal of this process, with true for each standard stream of the command
    /// that is it. The command gets the keys when it first asks for them.
    Beside([bool; 3]),
}

impl TerminalPlan {
    /// Chooses the terminal from the streams of this process, or from a flag.
    pub(crate) fn resolve(is_forced: bool, is_refused: bool) -> Self {
        if is_refused {
            return Self::Without;
        }
        let streams = standard_terminals();
        match streams {
            _ if is_forced => Self::Whole,
            [false, false, false] => Self::Without,
            [true, true, true] if !is_background() => Self::Whole,
            _ => Self::Beside(streams),
        }
    }
}

/// Returns true for each standard stream that is the controlling terminal.
fn standard_terminals() -> [bool; 3] {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let own = controlling_terminal(&text);
    let is_own = |fd: BorrowedFd<'_>| {
        let Ok(stat) = rustix::fs::fstat(fd) else {
            return false;
        };
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
        let number = (
            rustix::fs::major(stat.st_rdev),
            rustix::fs::minor(stat.st_rdev),
        );
        is_device && own.is_some_and(|own| number == own || number == CONTROLLING) && isatty(fd)
    };
    let stdin = rustix::stdio::stdin();
    [stdin, rustix::stdio::stdout(), rustix::stdio::stderr()].map(is_own)
}

/// Returns major and minor number of the controlling terminal, from the text of `/proc/self/stat`
/// (proc_pid_stat(5)).
fn controlling_terminal(stat: &str) -> Option<(u32, u32)> {
    // tty_nr is field 7. Field 2, the name of the program, may contain spaces and parentheses, so
    // count from the last parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    let number: i32 = fields.split_whitespace().nth(4)?.parse().ok()?;
    let number = number.cast_unsigned();
    let minor = number & 0xff | number >> 12 & 0xf_ff00;
    (number != 0).then_some((number >> 8 & 0xfff, minor))
}

/// Terminal in raw mode; dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct RawMode(());

impl RawMode {
    /// Sets raw mode; if this process is in the background, as soon as it is in the foreground.
    ///
    /// # Errors
    /// A usage error if there is no terminal.
    pub(crate) fn enter() -> Result<Self, CommandError> {
        let guard = Self(());
        let mut mode = lock_mode();
        if tcgetattr(device()).is_err() {
            return Err(CommandError::usage(
                "standard input is not a terminal",
                "run it from a terminal, or leave --tty out",
            ));
        }
        mode.is_wanted = true;
        mode.apply()
            .map_err(|error| CommandError::io("set the terminal to raw mode", &error.into()))?;
        drop(mode);
        Ok(guard)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal. Does nothing if it was never changed.
pub(crate) fn restore() {
    undo_changes();
    let mut mode = lock_mode();
    mode.is_wanted = false;
    mode.undo();
}

/// Restores the terminal's mode for as long as this process is stopped. The screen keeps its
/// content, as with any stopped program.
pub(super) fn suspend() {
    lock_mode().undo();
}

/// Sets raw mode again after this process was stopped and continued, if a command has the terminal.
pub(super) fn renew() {
    let _ = lock_mode().apply();
}

/// Starts to record changes that programs make to the terminal.
pub(super) fn begin_observing() {
    *CHANGED.lock().unwrap_or_else(PoisonError::into_inner) = Some(TerminalModes::new());
}

/// Records the changes in output to the terminal.
pub(super) fn observe(bytes: &[u8]) {
    if let Some(modes) = &mut *CHANGED.lock().unwrap_or_else(PoisonError::into_inner) {
        modes.observe(bytes);
    }
}

/// Undoes the changes that programs made to the terminal and did not undo themselves.
pub(super) fn undo_changes() {
    // `try_lock`: a thread that panicked while it held the lock would deadlock in the panic hook.
    let Some(changed) = CHANGED.try_lock().ok().and_then(|mut modes| modes.take()) else {
        return;
    };
    let text = changed.undo();
    let screen = device();
    if !text.is_empty()
        && poll(
            &mut [PollFd::new(&screen, PollFlags::OUT)],
            Some(&UNDO_WAIT),
        ) == Ok(1)
    {
        let _ = rustix::io::write(screen, text.as_bytes());
    }
}

/// Returns the size of the terminal, or 24 rows and 80 columns if it is unknown.
pub(crate) fn size() -> WindowSize {
    let of = |fd: BorrowedFd<'_>| {
        tcgetwinsize(fd)
            .ok()
            .filter(|size| size.ws_row > 0 && size.ws_col > 0)
    };
    match of(device()).or_else(|| of(rustix::stdio::stdout())) {
        Some(size) => WindowSize {
            rows: size.ws_row,
            cols: size.ws_col,
        },
        None => WindowSize { rows: 24, cols: 80 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controlling_terminal_is_read_behind_any_name() {
        let stat = "12 (a) R 1) S 1 12 12 34817 12 4194304";
        assert_eq!(controlling_terminal(stat), Some((136, 1)));
        // Minor numbers above 255 lie apart.
        let number = 136 << 8 | 0x2c | 0x1 << 20;
        let stat = format!("12 (sh) S 1 12 12 {number} 12");
        assert_eq!(controlling_terminal(&stat), Some((136, 0x12c)));
        assert_eq!(controlling_terminal("12 (sh) S 1 12 12 0 -1"), None);
        assert_eq!(controlling_terminal(""), None);
    }
}
