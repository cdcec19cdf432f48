//! Relays standard input, or keys of the terminal, to a command.

use super::terminal;
use crate::exit::CommandError;
use glovebox_proto::Fault;
use glovebox_sandbox::Input;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Ctrl-\ as a terminal in raw mode sends it.
const DETACH: u8 = 0x1c;
/// Time within which a second Ctrl-\ turns both into one for the program.
const SECOND_KEY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 300_000_000,
};
/// Interval at which a background process checks whether it owns the terminal again.
const FOREGROUND_CHECK: Duration = Duration::from_millis(200);

/// Thread that relays input. Dropping this stops it from reading a terminal: keys typed from then
/// on belong to the next reader.
#[derive(Debug)]
pub(super) struct Pump {
    asked: Arc<AtomicBool>,
    /// Becomes readable when the thread must end. None if the input is no terminal, which has no
    /// next reader.
    over: Option<Arc<OwnedFd>>,
}

impl Pump {
    /// Returns true if the user pressed Ctrl-\.
    pub(super) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        if let Some(over) = &self.over {
            // Fails only if the counter is full, and then it is readable already.
            let _ = rustix::io::write(over, &1_u64.to_ne_bytes());
        }
    }
}

/// Detaches from the command when the user presses Ctrl-\.
pub(super) type Leave = Box<dyn Fn() -> Result<(), Fault> + Send>;

/// Starts a thread that relays `source`. It ends with its input, on a terminal with the [`Pump`],
/// else with the process. If there is a `leave`, Ctrl-\ calls it; Ctrl-\ twice sends one to the
/// program.
///
/// # Errors
/// No thread can be started, or no event descriptor can be opened.
pub(super) fn pass(
    input: Input,
    source: BorrowedFd<'static>,
    leave: Option<Leave>,
) -> Result<Pump, CommandError> {
    let asked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&asked);
    let over = if rustix::termios::isatty(source) {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Some(Arc::new(made.map_err(|errno| {
            CommandError::io("watch the terminal", &errno.into())
        })?))
    } else {
        None
    };
    let stop = over.clone();
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .stack_size(64 << 10)
        .spawn(move || {
            // An error means that the command or its sandbox has ended, which the main thread
            // reports.
            let leave = leave.map(|leave| {
                move || {
                    flag.store(true, Ordering::Release);
                    leave()
                }
            });
            let _ = copy(&input, source, leave.as_ref(), stop.as_deref());
        })
        .map_err(|error| CommandError::io("start a thread", &error))?;
    Ok(Pump { asked, over })
}

fn copy(
    input: &Input,
    stdin: BorrowedFd<'_>,
    leave: Option<&impl Fn() -> Result<(), Fault>>,
    over: Option<&OwnedFd>,
) -> Result<(), Fault> {
    let mut buffer = vec![0u8; 32 << 10];
    let mut keys = DetachKeys::default();
    loop {
        if let Some(over) = over
            && !wait_for_keys(stdin, over)
        {
            return Ok(());
        }
        let read = match rustix::io::read(stdin, &mut buffer) {
            Ok(0) => return input.finish(),
            Ok(read) => read,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None);
                continue;
            }
            // A terminal that has hung up, or an invalid descriptor: the command sees the end of
            // its input.
            Err(_) => return input.finish(),
        };
        let bytes = &buffer[..read];
        let Some(leave) = leave else {
            input.send(bytes)?;
            continue;
        };
        let (typed, is_left) = keys.filter(bytes);
        if !typed.is_empty() {
            input.send(&typed)?;
        }
        // A second Ctrl-\ may still follow.
        let is_alone = keys.is_waiting && !is_typed_soon(stdin);
        if is_left || is_alone {
            return leave();
        }
    }
}

/// Returns true if another key follows at once.
fn is_typed_soon(terminal: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(terminal, PollFlags::IN)];
    poll(&mut fds, Some(&SECOND_KEY)).is_ok_and(|count| count > 0)
}

/// Filter that finds Ctrl-\ among keys.
#[derive(Debug, Default)]
struct DetachKeys {
    /// True after a Ctrl-\ that no key has followed yet.
    is_waiting: bool,
}

impl DetachKeys {
    /// Returns the keys for the program, and true if one Ctrl-\ was followed by another key; that
    /// key and the rest are dropped.
    fn filter(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut typed = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            match (self.is_waiting, byte) {
                (true, DETACH) => {
                    self.is_waiting = false;
                    typed.push(DETACH);
                }
                (true, _) => return (typed, true),
                (false, DETACH) => self.is_waiting = true,
                (false, _) => typed.push(byte),
            }
        }
        (typed, false)
    }
}

/// Waits until the user types while this process is in the foreground. Returns false if the relay
/// must end.
fn wait_for_keys(terminal: BorrowedFd<'_>, over: &OwnedFd) -> bool {
    wait_for_foreground(terminal);
    let mut fds = [
        PollFd::new(over, PollFlags::IN),
        PollFd::from_borrowed_fd(terminal, PollFlags::IN),
    ];
    loop {
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            // A terminal that cannot be polled is read like any other input.
            Err(_) => return true,
            Ok(_) => return fds[0].revents().is_empty(),
        }
    }
}

/// Waits until this process is in the foreground of the terminal. The kernel stops a background
/// process that reads its terminal (SIGTTIN); a command that never reads must not be stopped for
/// our read.
fn wait_for_foreground(terminal: BorrowedFd<'_>) {
    let mut has_waited = false;
    while let Ok(owner) = rustix::termios::tcgetpgrp(terminal)
        && owner != rustix::process::getpgrp()
    {
        has_waited = true;
        std::thread::sleep(FOREGROUND_CHECK);
    }
    if has_waited {
        // A shell that moves a running job to the foreground sends no signal, so raw mode is set
        // here.
        terminal::renew();
    }
}

/// Returns true if standard input is closed or `/dev/null`; then no thread is needed to read it.
pub(crate) fn is_null_device() -> bool {
    let Ok(stat) = rustix::fs::fstat(rustix::stdio::stdin()) else {
        return true;
    };
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::CharacterDevice
        && stat.st_rdev == null
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ctrl_backslash_leaves_and_two_are_one_for_the_program() {
        let mut keys = DetachKeys::default();
        assert_eq!(keys.filter(b"ab"), (b"ab".to_vec(), false));
        assert_eq!(keys.filter(b"a\x1c\x1cb"), (b"a\x1cb".to_vec(), false));
        assert!(!keys.is_waiting);
        assert_eq!(keys.filter(b"a\x1cb"), (b"a".to_vec(), true));
        let mut keys = DetachKeys::default();
        // In two pieces.
        assert_eq!(keys.filter(b"a\x1c"), (b"a".to_vec(), false));
        assert!(keys.is_waiting);
        assert_eq!(keys.filter(b"\x1cb"), (b"\x1cb".to_vec(), false));
    }
}
