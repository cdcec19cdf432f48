//! Connections: many for authenticated clients, few and short ones for all others. Also the start
//! and the end of the server.

use crate::api::{self, Logins, McpServices, Previews, Shared};
use crate::config::{ServerConfig, Token};
use crate::log::millis;
use crate::peer::Peer;
use crate::tls::Tls;
use crate::work::{App, ConnectionPlace, MAX_CONNECTIONS};
use axum::{Extension, Router};
use glovebox_agent::Placement;
use glovebox_mcp::server::Connections;
use glovebox_proto::{Code, Fault};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// Maximum length of a request's head in bytes, and the time for it to arrive. A connection may be
/// idle between requests for the same time.
const MAX_HEADER_BYTES: usize = 32 << 10;
const HEADER_WAIT: Duration = Duration::from_secs(30);
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Minimum interval between log lines about connections that could not be accepted.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);
/// Interval of checks whether the certificate's files have changed.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(2);
/// Maximum time for cancelled sessions to end.
const CANCEL_WAIT: Duration = Duration::from_secs(20);
/// Interval at which their end is checked.
const LOOK: Duration = Duration::from_millis(50);

/// Facts about a server that accepts requests.
#[derive(Debug)]
pub struct Serving {
    /// Address that the server listens on.
    pub addr: SocketAddr,
    /// Code that logs one browser in, once.
    pub login_code: Token,
}

/// Serves on `listener` until a signal asks the server to end, and returns when no session runs any
/// more. Tries a sandbox first, and calls `ready` once connections are accepted.
///
/// # Errors
/// Fails if the state cannot be opened, if the sandbox does not work, or if no runtime can be
/// created.
pub fn serve(
    config: ServerConfig,
    listener: TcpListener,
    ready: impl FnOnce(&Serving),
) -> Result<(), Fault> {
    let broken = |error: std::io::Error| Fault::failed(Code::Io, format!("cannot serve: {error}"));
    let addr = listener.local_addr().map_err(broken)?;
    listener.set_nonblocking(true).map_err(broken)?;
    let drain = config.drain;
    let app = App::open(config)?;
    let probed = app
        .begin_environment()
        .map_err(glovebox_session::Error::into_fault)?;
    let logins = Arc::new(Logins::open(&app, addr)?);
    let previews = Arc::new(Previews::new(&app.config, addr));
    let login_code = logins.make_code()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(broken)?;
    let closing = CancellationToken::new();
    let mcp = Arc::new(McpServices::default());
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(broken)?;
        let mut asked = EndWish::new().map_err(broken)?;
        let shared = Shared {
            app: Arc::clone(&app),
            logins,
            mcp: Arc::clone(&mcp),
            previews,
            chats: Arc::default(),
        };
        tokio::spawn(Arc::clone(&app).stop_idle());
        tokio::spawn(Arc::clone(&app).end_old_sandboxes());
        tokio::spawn(Arc::clone(&app).expire_uploads());
        tokio::spawn(Arc::clone(&app).watch_environment());
        tokio::spawn(Arc::clone(&app).watch_health());
        tokio::spawn(Arc::clone(&app).watch_room());
        tokio::spawn(Arc::clone(&app).watch_networks());
        if let Some(tls) = app.config.tls.clone() {
            tokio::spawn(renew_certificate(tls, app.end.clone()));
        }
        let accepting = tokio::spawn(accept(listener, shared, closing.clone()));
        ready(&Serving { addr, login_code });
        let (placement, probe_ms) = (app.config.placement.as_str(), millis(probed));
        match app.config.placement {
            Placement::Sandbox if app.has_addresses() => info!(
                address = %addr, placement, probe_ms,
                "serving: the service on which sandboxes are was asked"
            ),
            Placement::Sandbox => info!(
                address = %addr, placement, probe_ms,
                "serving: a sandbox was started, tried and ended"
            ),
            Placement::Local => info!(
                address = %addr, placement, probe_ms,
                "serving without walls: tools work on this machine"
            ),
        }
        asked.wait().await;
        let (running, queued) = app.counts();
        info!(running, queued, "the server was asked to end");
        // Draining begins first: work accepted from here on would be cancelled a moment later.
        app.begin_drain();
        app.end_waiting();
        app.close_pool();
        tokio::select! {
            () = idle(&app, drain) => {}
            // A second signal ends the wait for running sessions.
            () = asked.wait() => {}
        }
        app.cut_all();
        idle(&app, CANCEL_WAIT).await;
        // After the sessions have ended: it closes event streams, which must deliver the last
        // events.
        app.end.cancel();
        closing.cancel();
        let _ = accepting.await;
        Ok(())
    });
    mcp.close();
    app.count_networks(true);
    app.sandboxes.close_all();
    runtime.shutdown_timeout(Duration::from_secs(2));
    info!("the server has ended");
    served
}

/// Reloads the certificate when its files change, until the server ends.
async fn renew_certificate(tls: Tls, end: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(CERTIFICATE_LOOK) => {}
            () = end.cancelled() => return,
        }
        let files = tls.clone();
        match tokio::task::spawn_blocking(move || files.renew()).await {
            Ok(Ok(true)) => info!("the certificate was renewed"),
            Ok(Err(fault)) => warn!(
                problem = fault.message,
                "the renewed certificate is not used"
            ),
            Ok(Ok(false)) | Err(_) => {}
        }
    }
}

/// Signals that ask the server to end: SIGINT and SIGTERM.
struct EndWish {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl EndWish {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Waits until no session waits or runs, at most for `most`.
async fn idle(app: &App, most: Duration) {
    let begun = Instant::now();
    while app.counts() != (0, 0) && begun.elapsed() < most {
        tokio::time::sleep(LOOK).await;
    }
}

async fn accept(listener: tokio::net::TcpListener, shared: Shared, closing: CancellationToken) {
    let connections = Connections::new(MAX_CONNECTIONS);
    let tls = shared.app.config.tls.clone();
    let proxies = Arc::clone(&shared.app.config.trusted_proxies);
    let router = api::router(shared);
    let mut last_refusal = None;
    loop {
        let accepted = tokio::select! {
            accepted = async {
                connections.wait_for_room().await;
                listener.accept().await
            } => accepted,
            () = closing.cancelled() => return,
        };
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, Peer::new(peer.ip(), tls.is_some())),
            Err(error) => {
                // Out of descriptors, for instance: some become free when other connections end.
                if last_refusal.is_none_or(|last: Instant| last.elapsed() > REFUSAL_PAUSE) {
                    last_refusal = Some(Instant::now());
                    error!(problem = %error, "a connection cannot be accepted");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Without TCP_NODELAY small responses wait for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        // Many clients share the loopback address or that of a proxy: the limit per address does
        // not apply.
        let is_shared = peer.address.is_loopback() || proxies.contain(peer.address);
        let Some(place) = connections.admit((!is_shared).then_some(peer.address)) else {
            continue;
        };
        let of_user = Arc::new(ConnectionPlace::default());
        let router = router
            .clone()
            .layer(Extension(Arc::clone(&place)))
            .layer(Extension(of_user))
            .layer(Extension(peer));
        let (tls, closing) = (tls.clone(), closing.clone());
        tokio::spawn(async move {
            let served = async {
                match tls {
                    None => serve_connection(stream, router).await,
                    Some(tls) => {
                        let acceptor = tls.acceptor();
                        // In the connection's own task and with a deadline, so that a slow
                        // handshake holds up only itself.
                        let greeting = acceptor.accept(stream);
                        if let Ok(Ok(stream)) = tokio::time::timeout(HEADER_WAIT, greeting).await {
                            serve_connection(stream, router).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = served => {}
                // A client without a token must not hold a slot that an authenticated client could
                // use.
                () = place.unauthenticated_end() => {}
                () = closing.cancelled() => {}
            }
        });
    }
}

/// Serves requests until the connection ends. Errors of the connection are not reported.
pub(crate) async fn serve_connection<S>(stream: S, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WAIT)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(2 * MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}
