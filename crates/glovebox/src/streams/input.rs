//! Standard input or keys on their way to a command.

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
/// Time within which a second Ctrl-\ makes both one for the program.
const SECOND_KEY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 300_000_000,
};
/// How often a background process looks whether it owns the terminal again.
const FOREGROUND_CHECK: Duration = Duration::from_millis(200);

/// A thread that passes standard input on. Dropped, it takes nothing more from a terminal: what is
/// typed from then on is meant for whoever asks next.
#[derive(Debug)]
pub(super) struct Pump {
    asked: Arc<AtomicBool>,
    /// Becomes readable when the thread is to end; where input is no terminal, nobody comes after it.
    over: Option<Arc<OwnedFd>>,
}

impl Pump {
    /// Whether Ctrl-\ was pressed.
    pub(super) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        if let Some(over) = &self.over {
            // Fails only when it has been told very often already.
            let _ = rustix::io::write(over, &1_u64.to_ne_bytes());
        }
    }
}

/// Lets go of a command when Ctrl-\ is pressed.
pub(super) type Leave = Box<dyn Fn() -> Result<(), Fault> + Send>;

/// Starts passing on what `source` brings, in a thread that ends with its input, on a terminal with the
/// [`Pump`], or with the process. Where there is a `leave`, Ctrl-\ calls it; typed twice, it is one for the program.
///
/// # Errors
/// When no thread can be started.
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
            // An error means that the command or its sandbox has ended: whoever waits for that says so.
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
            // A terminal that went away, or a descriptor that is none: the command sees the end.
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
        // The second one may be on its way.
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

/// Ctrl-\ among keys.
#[derive(Debug, Default)]
struct DetachKeys {
    /// Set when one was typed and nothing has followed yet.
    is_waiting: bool,
}

impl DetachKeys {
    /// Returns the keys that are for the program, and true if one Ctrl-\ was followed by another key: what was typed
    /// after it is for nobody.
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

/// Waits until something was typed on a terminal that is ours; false when nobody wants it any more.
fn wait_for_keys(terminal: BorrowedFd<'_>, over: &OwnedFd) -> bool {
    wait_for_foreground(terminal);
    let mut fds = [
        PollFd::new(over, PollFlags::IN),
        PollFd::from_borrowed_fd(terminal, PollFlags::IN),
    ];
    loop {
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            // What cannot be watched is read, as any other input.
            Err(_) => return true,
            Ok(_) => return fds[0].revents().is_empty(),
        }
    }
}

/// A background process that reads its terminal is stopped by the kernel (SIGTTIN). A command that
/// never reads should not be stopped for our curiosity, so we wait until the terminal is ours.
fn wait_for_foreground(terminal: BorrowedFd<'_>) {
    let mut has_waited = false;
    while let Ok(owner) = rustix::termios::tcgetpgrp(terminal)
        && owner != rustix::process::getpgrp()
    {
        has_waited = true;
        std::thread::sleep(FOREGROUND_CHECK);
    }
    if has_waited {
        // A shell that brings a running job to the foreground sends no signal.
        terminal::renew();
    }
}

/// Whether standard input can deliver nothing: then no thread is needed to read it.
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
