//! Keeps file operations away from the parts of `/proc` that describe the guest itself.
//!
//! The kernel lets a process read its own memory map, environment and descriptors, and refuses them
//! to other processes of its user id. The guest performs file operations, so it could read what a
//! command cannot. Such a path is refused here, under any name or link that leads to it. Links of
//! `/proc` that lead directly to an open file (`fd/3`, `cwd`, `exe`) are not followed,
//! except by kernels without openat2(2).

use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Files of a process directory that the kernel shows to every process alike.
const FOR_EVERYBODY: [&[u8]; 14] = [
    b"cgroup",
    b"cmdline",
    b"comm",
    b"gid_map",
    b"limits",
    b"mountinfo",
    b"mounts",
    b"mountstats",
    b"net",
    b"oom_score",
    b"oom_score_adj",
    b"statm",
    b"status",
    b"uid_map",
];
/// Maximum number of attempts of an open during which another process renames a directory.
const ATTEMPTS: usize = 16;

/// Opens a path, unless it leads to private parts of the guest.
///
/// # Errors
/// Those of open(2); `ACCESS` for a private part of the guest, `LOOP` for a link of `/proc` that
/// leads to an open file.
pub(crate) fn open(path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let file = open_without_magic(path, flags, mode)?;
    refuse(&file)?;
    Ok(file)
}

/// Returns `ACCESS` if the open file is a private part of the guest.
pub(crate) fn refuse(file: impl AsFd) -> Result<(), Errno> {
    if is_of_proc(&file) && is_private(file.as_fd(), None) {
        return Err(Errno::ACCESS);
    }
    Ok(())
}

/// Returns true if an open file lies in `/proc`.
pub(super) fn is_of_proc(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|facts| facts.f_type == PROC_SUPER_MAGIC)
}

/// Returns `ACCESS` if the last name of a path is a private part of the guest.
pub(crate) fn refuse_parent(path: &[u8]) -> Result<(), Errno> {
    let Some((parent, name)) = super::split(path) else {
        return Ok(());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(dir) = rustix::fs::open(parent, flags, Mode::empty()) else {
        // The operation on the path then fails with the same error.
        return Ok(());
    };
    if is_of_proc(&dir) && is_private(dir.as_fd(), Some(name)) {
        return Err(Errno::ACCESS);
    }
    Ok(())
}

fn open_without_magic(path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        match rustix::fs::openat2(CWD, path, flags, mode, resolve) {
            Err(Errno::AGAIN) => {}
            // Kernels before 5.6 lack openat2(2), and the seccomp profile of an old container
            // runtime may refuse it. Then such links are followed; the caller still checks whether
            // the opened file lies in /proc.
            Err(Errno::NOSYS | Errno::PERM) => return rustix::fs::open(path, flags, mode),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Returns true if a file of `/proc`, or `name` in it, belongs to the guest and is not readable by
/// every process. Also true if its path cannot be read.
fn is_private(file: BorrowedFd<'_>, name: Option<&[u8]>) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Ok(path) = rustix::fs::readlink(link, Vec::new()) else {
        return true;
    };
    let path = path.as_bytes();
    let mut rest = path
        .split(|byte| *byte == b'/')
        .chain(name)
        .skip_while(|part| part.is_empty() || !part.iter().all(u8::is_ascii_digit));
    let Some(number) = rest.next() else {
        return false;
    };
    // A path may also name a thread of the guest, whose directory /proc does not list.
    let task = Path::new("/proc/self/task").join(OsStr::from_bytes(number));
    if matches!(rustix::fs::lstat(&task), Err(Errno::NOENT)) {
        return false;
    }
    let part = match rest.next() {
        Some(b"task") => rest.nth(1),
        part => part,
    };
    part.is_some_and(|part| !FOR_EVERYBODY.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Option<Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        open(path.as_bytes(), flags, Mode::empty()).err()
    }

    #[test]
    fn what_is_the_guests_own_is_refused_by_every_name() {
        let pid = std::process::id();
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("/proc/self/maps", &link).unwrap();
        let own = |name: &str| {
            [
                format!("/proc/self/{name}"),
                format!("/proc/thread-self/{name}"),
                format!("/proc/{pid}/{name}"),
                format!("/proc/{pid}/task/{pid}/{name}"),
                format!("/proc/../proc/self/task/{pid}/{name}"),
            ]
        };
        for name in ["maps", "environ", "auxv", "stat", "mem", "fd", "fdinfo/0"] {
            for path in own(name) {
                assert_eq!(read(&path), Some(Errno::ACCESS), "{path}");
            }
        }
        assert_eq!(read(link.to_str().unwrap()), Some(Errno::ACCESS));
        for name in ["exe", "root/etc/hostname", "cwd/x", "fd/0"] {
            for path in own(name) {
                assert!(read(&path).is_some(), "{path}");
            }
        }
        let thread = std::thread::spawn(|| {
            let own = rustix::thread::gettid().as_raw_nonzero();
            read(&format!("/proc/{own}/maps"))
        });
        assert_eq!(thread.join().unwrap(), Some(Errno::ACCESS));
    }

    #[test]
    fn what_everybody_sees_is_read() {
        for path in [
            "/proc/cpuinfo",
            "/proc/self/status",
            "/proc/self/task",
            "/proc/mounts",
            "/proc/net/dev",
            "/proc",
            "/proc/self",
            "/dev/null",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
        let mut other = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert_eq!(read(&format!("/proc/{}/maps", other.id())), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn links_of_the_guest_are_not_read() {
        for path in ["/proc/self/exe", "/proc/self/fd/0", "/proc/self/cwd"] {
            assert_eq!(refuse_parent(path.as_bytes()), Err(Errno::ACCESS), "{path}");
        }
        for path in ["/proc/self", "/proc/mounts", "/etc/mtab", "/proc/self/net"] {
            assert_eq!(refuse_parent(path.as_bytes()), Ok(()), "{path}");
        }
    }
}
