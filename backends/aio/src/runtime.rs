//! One thread of the process waits for all services; callers block.

use glovebox_proto::{Code, Fault};
use std::future::{Future, pending};
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::time::Instant;
use tokio::runtime::{Builder, Handle};

/// Returns the handle of the thread, which is started by the first call.
pub(crate) fn handle() -> Result<&'static Handle, Fault> {
    static HANDLE: OnceLock<Result<Handle, String>> = OnceLock::new();
    let started = HANDLE.get_or_init(|| start().map_err(|error| error.to_string()));
    started.as_ref().map_err(|error| {
        Fault::failed(
            Code::Io,
            format!("cannot start the thread for connections: {error}"),
        )
    })
}

fn start() -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("glovebox-aio".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

/// Runs `future` on that thread and blocks until it is done, at most until `deadline`. None: it was
/// given up.
pub(crate) fn block<T: Send + 'static>(
    deadline: Instant,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<Option<T>, Fault> {
    let (sender, receiver) = sync_channel(1);
    let task = handle()?.spawn(async move {
        // Nobody receives it after the deadline.
        let _ = sender.send(future.await);
    });
    let left = deadline.saturating_duration_since(Instant::now());
    let done = receiver.recv_timeout(left).ok();
    if done.is_none() {
        task.abort();
    }
    Ok(done)
}
