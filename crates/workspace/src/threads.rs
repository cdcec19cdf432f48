//! Scoped threads that end with the call. Failing to start one is an ordinary error.

use glovebox_proto::{Code, Fault};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts a scoped thread. Fails with [`Code::Busy`] if no more can be started.
pub(crate) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Fault> {
    Builder::new().spawn_scoped(scope, work).map_err(|error| {
        Fault::failed(Code::Busy, format!("cannot start a thread: {error}")).retryable()
    })
}

/// Joins a thread. Fails with [`Code::Internal`] if it panicked.
pub(crate) fn end<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T, Fault> {
    thread
        .join()
        .map_err(|_| Fault::failed(Code::Internal, "a thread ended in the middle of its work"))
}
