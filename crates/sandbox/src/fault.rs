//! Constructors for the faults that this crate raises itself, so that one situation has one
//! wording.

use glovebox_proto::{Code, Fault};
use rustix::io::Errno;
use std::fmt::Display;
use std::path::Path;

/// Returns the fault for an operating-system error while doing `what` to `path`.
pub(crate) fn io(what: &str, path: &Path, error: impl Into<std::io::Error>) -> Fault {
    plain_io(format!("cannot {what} {}", path.display()), error)
}

/// Returns the fault for an operating-system error, with a sentence of its own.
pub(crate) fn plain_io(sentence: impl Display, error: impl Into<std::io::Error>) -> Fault {
    let error = error.into();
    let code = match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => Code::NotFound,
        Some(Errno::ACCESS | Errno::PERM) => Code::PermissionDenied,
        Some(Errno::NOSPC | Errno::DQUOT) => Code::NoSpace,
        Some(Errno::ROFS) => Code::ReadOnly,
        Some(Errno::EXIST) => Code::AlreadyExists,
        _ => Code::Io,
    };
    Fault::failed(code, format!("{sentence}: {error}"))
}

/// Returns the fault for a missing sandbox.
pub(crate) fn not_found(name: impl Display) -> Fault {
    Fault::failed(
        Code::SandboxNotFound,
        format!("there is no sandbox `{name}`"),
    )
    .remedy("`glovebox list` shows what there is; `glovebox start NAME` makes one")
}

/// Returns the fault for a defect of Glovebox itself.
pub(crate) fn internal(message: impl Into<String>) -> Fault {
    Fault::failed(Code::Internal, message)
}
