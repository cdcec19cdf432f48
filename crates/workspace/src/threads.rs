//! Threads that live no longer than one call. Where there can be no more of them, that is an error
//! like any other.

use glovebox_proto::{Code, Fault};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts a thread.
pub(crate) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Fault> {
    Builder::new().spawn_scoped(scope, work).map_err(|error| {
        Fault::failed(Code::Busy, format!("cannot start a thread: {error}")).retryable()
    })
}

/// Waits for its end.
pub(crate) fn end<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T, Fault> {
    thread
        .join()
        .map_err(|_| Fault::failed(Code::Internal, "a thread ended in the middle of its work"))
}
