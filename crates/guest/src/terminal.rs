//! Pseudo-terminals of the sandbox's own devpts.

use glovebox_jail::confine::MonitorClient;
use glovebox_proto::WindowSize;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::{InputModes, OptionalActions, SpecialCodeIndex, Winsize};

/// Both ends of a terminal: the guest keeps the master, the command gets the slave.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) master: OwnedFd,
    pub(crate) slave: OwnedFd,
}

/// Opens both ends of a terminal.
pub(crate) fn open_ends() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&master)?;
    // By ioctl and not by name, because the name depends on where which devpts is mounted.
    let slave = peer(&master, flags)?;
    Ok((master, slave))
}

/// Opens a terminal of this size, through the monitor if there is one.
pub(crate) fn open(size: WindowSize, monitor: Option<&MonitorClient>) -> Result<Terminal, Errno> {
    let (master, slave) = monitor.map_or_else(open_ends, MonitorClient::open_terminal)?;
    resize(&master, size)?;
    let mut modes = rustix::termios::tcgetattr(&slave)?;
    // Makes the kernel's line editing erase whole characters, not bytes.
    modes.input_modes |= InputModes::IUTF8;
    rustix::termios::tcsetattr(&slave, OptionalActions::Now, &modes)?;
    rustix::fs::fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK)?;
    Ok(Terminal { master, slave })
}

/// Opens the slave end. On a busy machine the kernel sometimes returns EAGAIN.
fn peer(master: &OwnedFd, flags: OpenptFlags) -> Result<OwnedFd, Errno> {
    const TRIES: u32 = 10;
    for _ in 1..TRIES {
        match rustix::pty::ioctl_tiocgptpeer(master, flags) {
            Err(Errno::AGAIN | Errno::INTR) => std::thread::yield_now(),
            other => return other,
        }
    }
    rustix::pty::ioctl_tiocgptpeer(master, flags)
}

/// Sets the size; the kernel sends SIGWINCH to the foreground process group.
pub(crate) fn resize(master: impl AsFd, size: WindowSize) -> Result<(), Errno> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(master, size)
}

/// Returns the character that means end of input at the start of a line.
pub(crate) fn end_of_input(master: impl AsFd) -> u8 {
    rustix::termios::tcgetattr(master)
        .map_or(4, |modes| modes.special_codes[SpecialCodeIndex::VEOF])
}
