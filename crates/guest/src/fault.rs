//! Converts errno values to faults.

use glovebox_proto::{Code, Fault};
use rustix::io::Errno;

/// Returns the fault for a failed file operation. `what` names the operation and the path.
pub(crate) fn file(errno: Errno, what: &str) -> Fault {
    let (code, why) = match errno {
        Errno::NOENT => (Code::NotFound, "it does not exist"),
        Errno::EXIST => (Code::AlreadyExists, "something exists there already"),
        Errno::ACCESS | Errno::PERM => (Code::PermissionDenied, "permission denied"),
        Errno::ISDIR => (Code::IsDirectory, "it is a directory"),
        Errno::NOTDIR => (Code::NotDirectory, "part of the path is not a directory"),
        Errno::NOTEMPTY => (Code::NotEmpty, "the directory is not empty"),
        Errno::NOSPC | Errno::DQUOT => (Code::NoSpace, "no space is left"),
        Errno::ROFS => (Code::ReadOnly, "the file system is read-only there"),
        Errno::NAMETOOLONG => (Code::TooLarge, "the name is too long"),
        Errno::FBIG => (Code::TooLarge, "the file would exceed the size limit"),
        Errno::NXIO | Errno::NODEV => (Code::SpecialFile, "it is not a regular file"),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
            return Fault::failed(Code::Busy, format!("{what}: {errno}")).retryable();
        }
        Errno::LOOP => (Code::Io, "too many levels of symbolic links"),
        Errno::XDEV => (Code::Io, "source and target are on different file systems"),
        Errno::BUSY => (Code::Io, "it is in use"),
        other => return Fault::failed(Code::Io, format!("{what}: {other}")),
    };
    Fault::failed(code, format!("{what}: {why}"))
}

/// Returns the fault for a bug or an unexpected error of the kernel. `step` names what failed.
pub(crate) fn system(errno: Errno, step: &str) -> Fault {
    match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
            Fault::failed(Code::Busy, format!("{step}: {errno}")).retryable()
        }
        _ => Fault::failed(Code::Io, format!("{step}: {errno}")),
    }
}

/// Returns the fault for a request that its caller cancelled.
pub(crate) fn cancelled() -> Fault {
    Fault::failed(Code::Cancelled, "the request was cancelled")
}
