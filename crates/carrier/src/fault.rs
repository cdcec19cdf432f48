//! Faults of this machine.

use glovebox_proto::{Code, Fault};
use rustix::io::Errno;

/// Returns the fault for a system call that failed.
pub(crate) fn system_fault(step: &str, errno: Errno) -> Fault {
    Fault::failed(Code::Io, format!("cannot {step}: {errno}"))
}
