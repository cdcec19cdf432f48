//! Progress of a long operation, and its cancellation by the caller.

use glovebox_proto::{Code, Fault};
use std::ops::ControlFlow;

/// Progress of an operation. Reported every few dozen files and every few MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Determining the changes.
    Collecting {
        /// Number of paths inspected.
        paths: u64,
        /// Number of bytes read.
        bytes: u64,
    },
    /// Copying contents into the staging directory.
    Staging {
        /// Number of files copied.
        files: u64,
        /// Total number of files.
        total_files: u64,
        /// Number of bytes copied.
        bytes: u64,
        /// Total number of bytes.
        total_bytes: u64,
    },
}

/// Callback for progress. It returns [`ControlFlow::Break`] to stop the operation, which is then
/// undone.
pub type Watch<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Reports progress. Fails with [`Code::Cancelled`] if the callback asks to stop.
pub(crate) fn report(watch: &mut Watch<'_>, progress: Progress) -> Result<(), Fault> {
    match watch(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Fault::failed(Code::Cancelled, "it was cancelled")),
    }
}
