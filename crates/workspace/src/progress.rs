//! How far a long operation is, and how its caller stops it.

use glovebox_proto::{Code, Fault};
use std::ops::ControlFlow;

/// How far an operation is. Reported every few dozen files and every few MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Finding out what changed.
    Collecting {
        /// Paths looked at.
        paths: u64,
        /// Bytes read.
        bytes: u64,
    },
    /// Copying contents to where they will be applied from.
    Staging {
        /// Files copied.
        files: u64,
        /// All of them.
        total_files: u64,
        /// Bytes copied.
        bytes: u64,
        /// All of them.
        total_bytes: u64,
    },
}

/// Hears how far an operation is; answers [`ControlFlow::Break`] to stop it, which undoes it.
pub type Watch<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Reports, and turns the wish to stop into a fault.
pub(crate) fn report(watch: &mut Watch<'_>, progress: Progress) -> Result<(), Fault> {
    match watch(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Fault::failed(Code::Cancelled, "it was cancelled")),
    }
}
