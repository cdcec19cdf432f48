//! Standard input on its way to a command.

use crate::exit::CommandError;
use glovebox_sandbox::Input;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Ctrl-\ as a terminal in raw mode sends it.
const DETACH: u8 = 0x1c;
/// How often a background process looks whether it owns the terminal again.
const FOREGROUND_CHECK: Duration = Duration::from_millis(200);

/// Whether the user asked to leave.
#[derive(Debug)]
pub(super) struct Detach(Arc<AtomicBool>);

impl Detach {
    /// Whether Ctrl-\ was pressed.
    pub(super) fn was_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Starts passing standard input on, in a thread that ends with its input or with the process.
///
/// # Errors
/// When no thread can be started.
pub(super) fn pass(input: Input, has_detach: bool) -> Result<Detach, CommandError> {
    let asked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&asked);
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .stack_size(64 << 10)
        .spawn(move || {
            // An error means that the command or its sandbox has ended: whoever waits for that says so.
            let _ = copy(&input, has_detach.then_some(&flag));
        })
        .map_err(|error| CommandError::io("start a thread", &error))?;
    Ok(Detach(asked))
}

fn copy(input: &Input, detach: Option<&Arc<AtomicBool>>) -> Result<(), glovebox_proto::Fault> {
    let stdin = rustix::stdio::stdin();
    let is_terminal = rustix::termios::isatty(stdin);
    let mut buffer = vec![0u8; 32 << 10];
    loop {
        if is_terminal {
            wait_for_foreground(stdin);
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
        if let Some(asked) = detach
            && let Some(at) = bytes.iter().position(|&byte| byte == DETACH)
        {
            input.send(&bytes[..at])?;
            asked.store(true, Ordering::Release);
            return input.cancel();
        }
        input.send(bytes)?;
    }
}

/// A background process that reads its terminal is stopped by the kernel (SIGTTIN). A command that
/// never reads should not be stopped for our curiosity, so we wait until the terminal is ours.
fn wait_for_foreground(terminal: BorrowedFd<'_>) {
    while let Ok(owner) = rustix::termios::tcgetpgrp(terminal)
        && owner != rustix::process::getpgrp()
    {
        std::thread::sleep(FOREGROUND_CHECK);
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
