//! The only thread of this process that waits for services. Callers block on its results.

use glovebox_proto::{Code, Fault};
use std::future::{Future, pending};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

/// Returns the handle of the thread. The first call starts it, and it lives as long as the process.
///
/// # Errors
/// `io` if it cannot be started.
pub fn handle() -> Result<&'static Handle, Fault> {
    static HANDLE: OnceLock<Result<Handle, String>> = OnceLock::new();
    let started = HANDLE.get_or_init(|| start().map_err(|error| error.to_string()));
    started.as_ref().map_err(|error| {
        Fault::failed(
            Code::Io,
            format!("cannot start a thread for services: {error}"),
        )
    })
}

fn start() -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("services".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<(JoinHandle<()>, Receiver<T>), Fault> {
    let (sender, receiver) = sync_channel(1);
    let task = handle()?.spawn(async move {
        // After a deadline, the receiver is gone.
        let _ = sender.send(future.await);
    });
    Ok((task, receiver))
}

/// Runs a future on that thread and blocks until it has finished. The future must have a deadline
/// of its own.
///
/// # Errors
/// `io` if the thread cannot be started, `internal` if the future panicked.
pub fn run<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, Fault> {
    let (_, receiver) = spawn(future)?;
    receiver
        .recv()
        .map_err(|_| Fault::failed(Code::Internal, "a request to the service was abandoned"))
}

/// Runs a future on that thread and blocks until it has finished, at most until `deadline`. Returns
/// `None` if the future was aborted at the deadline.
///
/// # Errors
/// `io` if the thread cannot be started.
pub fn run_until<T: Send + 'static>(
    deadline: Instant,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<Option<T>, Fault> {
    let (task, receiver) = spawn(future)?;
    let left = deadline.saturating_duration_since(Instant::now());
    let done = receiver.recv_timeout(left).ok();
    if done.is_none() {
        task.abort();
    }
    Ok(done)
}
