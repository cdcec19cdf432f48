//! Server for one client at the other end of standard input and output. Only messages of the
//! protocol are written there.

use super::SessionFactory;
use super::handler::McpHandler;
use super::lines;
use super::pool::SessionPool;
use glovebox_proto::{Code, Fault};
use rmcp::service::{ServerInitializeError, serve_server_with_ct};
use rmcp::transport::io::stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Maximum time for closing the session.
const LEAVE_WAIT: Duration = Duration::from_mins(1);

/// Serves until the client closes its end or a signal (SIGINT, SIGTERM or SIGHUP) arrives. Returns
/// when the session is closed, after a minute at most.
///
/// # Errors
/// `io` and `busy` for failures of signals and threads; `protocol` if the client does not speak the
/// protocol.
pub fn serve(factory: Arc<dyn SessionFactory>) -> Result<(), Fault> {
    let runtime = runtime()?;
    let (pool, closing) = SessionPool::new(factory, 1)?;
    let gone = CancellationToken::new();
    let served = runtime.block_on(async {
        let asked = until_asked_to_end()?;
        let handler = McpHandler::new(Arc::clone(&pool), gone.clone());
        let (input, output) = stdio();
        let transport = lines::transport(input, output);
        let serving = async {
            let running = serve_server_with_ct(handler, transport, gone.clone()).await;
            match running {
                Ok(running) => {
                    let _ = running.waiting().await;
                    Ok(())
                }
                // A client may close the connection before it sends anything.
                Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
                Err(error) => Err(Fault::failed(
                    Code::Protocol,
                    format!("the client does not speak the protocol: {error}"),
                )),
            }
        };
        tokio::select! {
            served = serving => served,
            () = asked => Ok(()),
        }
    });
    // Order: the thread of the pool ends only after the handler and this handle are gone. The wait
    // would otherwise take its full time.
    gone.cancel();
    drop(pool);
    let _ = closing.wait(LEAVE_WAIT);
    // A thread is blocked in reading standard input, and nothing can wake it.
    runtime.shutdown_background();
    served
}

/// Creates the runtime that serves clients.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    /// Maximum number of blocking calls of all clients.
    const MAX_BLOCKED: usize = 512;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(MAX_BLOCKED)
        .thread_stack_size(512 << 10)
        .enable_all()
        .build()
        .map_err(|error| {
            Fault::failed(
                Code::Busy,
                format!("cannot start the server's threads: {error}"),
            )
        })
}

/// Returns a future that completes at the first SIGINT, SIGTERM or SIGHUP.
pub(super) fn until_asked_to_end() -> Result<impl Future<Output = ()>, Fault> {
    let heed = |kind| {
        signal(kind)
            .map_err(|error| Fault::failed(Code::Io, format!("cannot handle signals: {error}")))
    };
    let mut ends = (
        heed(SignalKind::interrupt())?,
        heed(SignalKind::terminate())?,
        heed(SignalKind::hangup())?,
    );
    Ok(async move {
        tokio::select! {
            _ = ends.0.recv() => {}
            _ = ends.1.recv() => {}
            _ = ends.2.recv() => {}
        }
    })
}
