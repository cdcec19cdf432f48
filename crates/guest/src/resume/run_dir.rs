//! Run directory of a serving guest: a socket, and a lock that the process holds.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect as dial,
    listen, socket_with, sockopt,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 8;
/// Time for which a link waits for a guest that may be starting.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// Interval between attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Run directory of this guest. Dropping it removes the directory.
#[derive(Debug)]
pub(super) struct RunDir {
    path: PathBuf,
    listener: OwnedFd,
    /// Lock held while this process lives, which marks a directory without it as abandoned.
    _lock: OwnedFd,
}

impl RunDir {
    /// Creates the directory, which must not exist, and listens in it.
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        let at = |step: &'static str| {
            move |errno: Errno| format!("cannot {step} {}: {errno}", path.display())
        };
        rustix::fs::mkdir(path, Mode::RWXU).map_err(at("make the directory"))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let lock = rustix::fs::open(lock_path(path), flags, Mode::RUSR | Mode::WUSR)
            .map_err(at("make a lock in"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(at("lock the directory"))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(at("make a socket for"))?;
        let place = socket_path(path);
        let address = SocketAddrUnix::new(&place).map_err(at("name a socket in"))?;
        bind(&listener, &address).map_err(at("make a socket in"))?;
        // bind(2) takes no mode. No connection is accepted before listen(2), so there is no race.
        rustix::fs::chmod(&place, Mode::RUSR | Mode::WUSR).map_err(at("close the socket in"))?;
        listen(&listener, BACKLOG).map_err(at("listen in"))?;
        Ok(Self {
            path: path.to_owned(),
            listener,
            _lock: lock,
        })
    }

    /// Returns the listening socket, which is readable when a connection can be accepted.
    pub(super) fn listener(&self) -> &OwnedFd {
        &self.listener
    }

    /// Accepts a connection of a process with this process's user id. `None` if there is none.
    pub(super) fn accept(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = accept_with(&self.listener, flags).ok()?;
        is_own_peer(&socket).then_some(socket)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        for file in [socket_path(&self.path), lock_path(&self.path)] {
            let _ = rustix::fs::unlink(file);
        }
        let _ = rustix::fs::rmdir(&self.path);
    }
}

fn socket_path(run_dir: &Path) -> PathBuf {
    run_dir.join("socket")
}

fn lock_path(run_dir: &Path) -> PathBuf {
    run_dir.join("lock")
}

/// True if the process at the other end had this process's user id when it connected or listened.
fn is_own_peer(socket: impl AsFd) -> bool {
    // TRUST: the directory's mode already keeps other users out; this check also holds if another
    // user replaced the directory.
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Connects to the guest that serves at `run_dir`.
///
/// # Errors
/// No guest serves there, even after `CONNECT_WAIT`; `PERM` if the listener belongs to another
/// user.
pub(super) fn connect(run_dir: &Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(socket_path(run_dir))?;
    let until = Instant::now() + CONNECT_WAIT;
    loop {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match dial(&socket, &address) {
            Ok(()) if is_own_peer(&socket) => return Ok(socket),
            Ok(()) => return Err(Errno::PERM),
            // The first exec session may still be starting the guest.
            Err(Errno::NOENT | Errno::CONNREFUSED) if Instant::now() < until => {
                std::thread::sleep(CONNECT_PAUSE);
            }
            Err(errno) => return Err(errno),
        }
    }
}
