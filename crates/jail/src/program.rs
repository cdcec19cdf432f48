//! Start of the guest program as a process of this machine, for each of its purposes.
//!
//! No process of a sandbox may be able to write to the program (CVE-2019-5736). The result is a
//! child, and for stage 0 and similar processes the other end of its standard input.

use crate::sys::starter::StartedProgram;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Starts the program with an empty environment and a socket as its standard input. Returns the
/// other end of the socket. Errors of loading the program are known later
/// ([`StartedProgram::failure`]).
pub(crate) fn start(program: &Path, args: &[&str]) -> io::Result<(StartedProgram, OwnedFd)> {
    let (link, theirs) = socket_pair()?;
    let process = StartedProgram::new(program, args, theirs)?;
    Ok((process, link))
}

/// Returns two connected stream sockets, both close-on-exec.
///
/// # Errors
/// Those of socketpair(2).
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Reads once, at most `max` bytes, and appends them to `bytes`. Returns the number of bytes read.
/// The reserved capacity is not zeroed first.
///
/// # Errors
/// Those of read(2); `bytes` is then unchanged.
pub fn read_more(link: impl AsFd, bytes: &mut Vec<u8>, max: usize) -> Result<usize, Errno> {
    crate::sys::append::append(link, bytes, max)
}

/// Starts a command whose program may have been written a moment ago. A child that another thread
/// is starting may still hold it open for writing (`ETXTBSY`), until that child's own exec. Retries
/// for at most a second.
///
/// # Errors
/// Those of [`Command::spawn`].
pub fn spawn_when_closed(command: &mut Command) -> io::Result<Child> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let begun = Instant::now();
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && begun.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            spawned => return spawned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_program_that_is_still_open_for_writing_is_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let program = temp.path().join("program");
        fs::copy("/bin/true", &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let writer = File::options().write(true).open(&program).unwrap();
        let busy = Command::new(&program).spawn().unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ExecutableFileBusy);
        let closing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(writer);
        });
        let mut child = spawn_when_closed(&mut Command::new(&program)).unwrap();
        assert!(child.wait().unwrap().success());
        closing.join().unwrap();
    }
}
