//! The one thread of this process that waits for the service; callers block on its results.

use glovebox_proto::{Code, Fault};
use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc;
use tokio::runtime::{Builder, Handle};

static RUNTIME: OnceLock<Result<Handle, String>> = OnceLock::new();

/// Returns the runtime, which starts with the first call and lives as long as the process.
pub(crate) fn handle() -> Result<&'static Handle, Fault> {
    RUNTIME.get_or_init(start).as_ref().map_err(|error| {
        Fault::failed(
            Code::Io,
            format!("cannot start a thread for the service: {error}"),
        )
    })
}

fn start() -> Result<Handle, String> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("sprites".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .map_err(|error| error.to_string())?;
    Ok(handle)
}

/// Runs a future on that thread and blocks until it has finished. The future keeps its own
/// deadline.
pub(crate) fn run<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, Fault> {
    let (sender, receiver) = mpsc::sync_channel(1);
    handle()?.spawn(async move {
        // The caller waits for exactly this value; it cannot have gone.
        let _ = sender.send(future.await);
    });
    receiver
        .recv()
        .map_err(|_| Fault::failed(Code::Internal, "a request to the service was abandoned"))
}
