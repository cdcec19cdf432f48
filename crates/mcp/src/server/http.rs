//! HTTP server for many clients, with streamable HTTP at `/mcp`.
//!
//! A request without the token is answered with 401 before anything else of it is examined.
//! Connections, headers and waits are bounded.

use super::SessionFactory;
use super::connections::{Connection, Connections};
use super::endpoint::{EndpointOptions, HttpAnswer, HttpService, close, say};
use super::guard::{self, Token};
use super::stdio::{runtime, until_asked_to_end};
use glovebox_proto::{Code, Fault, Setting};
use http::header::{ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Path of the MCP endpoint.
const PATH: &str = "/mcp";
/// Maximum number of authenticated connections at the same time.
const MAX_CLIENT_CONNECTIONS: usize = 256;
/// Maximum size of a request's head, in bytes. `HEADER_WAIT` is the maximum time for it to arrive.
const MAX_HEADER_BYTES: usize = 32 << 10;
/// Read buffer, in bytes. If it were smaller than a head, it would be the effective limit.
const MAX_BUFFER_BYTES: usize = 2 * MAX_HEADER_BYTES;
const HEADER_WAIT: Duration = Duration::from_secs(10);
/// Maximum time for closing all sessions.
const LEAVE_WAIT: Duration = Duration::from_mins(1);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Options of the server.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Token that clients must show. `None` admits every program that reaches the address.
    pub token: Option<Token>,
    /// Permitted values of the `Host` header, in addition to those of the address.
    pub allowed_hosts: Vec<String>,
    /// Permitted web origins. Empty permits none except those of this machine.
    pub allowed_origins: Vec<String>,
    /// Maximum number of sessions at the same time.
    pub max_sessions: usize,
    /// Time without a message after which a session is closed.
    pub idle: Duration,
}

/// Serves on `listener` until a signal (SIGINT, SIGTERM or SIGHUP) arrives. Returns when all
/// sessions are closed, after a minute at most. Calls `ready` with the address before the first
/// connection.
///
/// # Errors
/// `permission-denied` for an address that other machines reach, without a token; `io` and `busy`
/// for failures of sockets and threads.
pub fn serve(
    factory: Arc<dyn SessionFactory>,
    listener: TcpListener,
    options: &HttpOptions,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), Fault> {
    let broken = |error: std::io::Error| Fault::failed(Code::Io, format!("cannot serve: {error}"));
    let addr = listener.local_addr().map_err(broken)?;
    check_reach(addr, options)?;
    listener.set_nonblocking(true).map_err(broken)?;
    let runtime = runtime()?;
    let end = CancellationToken::new();
    let mut hosts = guard::usual_hosts(addr);
    hosts.extend(options.allowed_hosts.iter().cloned());
    let endpoint = EndpointOptions {
        allowed_hosts: hosts,
        allowed_origins: options.allowed_origins.clone(),
        max_sessions: options.max_sessions,
        idle: options.idle,
    };
    let (endpoint, closing) = HttpService::new(factory, &endpoint, &end)?;
    let site = Arc::new(HttpSite {
        endpoint,
        token: options.token.clone(),
        end: end.clone(),
    });
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(broken)?;
        let asked = until_asked_to_end()?;
        ready(addr);
        tokio::select! {
            () = accept(&listener, &site) => {}
            () = asked => {}
        }
        Ok(())
    });
    // Order: ending the connections and dropping the site release the pool of sessions, whose
    // thread ends only then. The wait would otherwise take its full time.
    end.cancel();
    drop(site);
    let _ = closing.wait(LEAVE_WAIT);
    runtime.shutdown_background();
    served
}

/// Checks that a server which other machines can reach requires a token.
///
/// # Errors
/// `permission-denied`.
pub fn check_reach(addr: SocketAddr, options: &HttpOptions) -> Result<(), Fault> {
    if addr.ip().is_loopback() || options.token.is_some() {
        return Ok(());
    }
    Err(Fault::refused(
        Code::PermissionDenied,
        format!("{addr} can be reached from other machines, and there is no token"),
    )
    .remedy([
        "set a token (GLOVEBOX_MCP_TOKEN or ".into(),
        Setting::TokenFile.into(),
        "), or serve on 127.0.0.1".into(),
    ]))
}

async fn accept(listener: &tokio::net::TcpListener, site: &Arc<HttpSite>) {
    let connections = Connections::new(MAX_CLIENT_CONNECTIONS);
    loop {
        connections.wait_for_room().await;
        let Ok((stream, peer)) = listener.accept().await else {
            // For example, no file descriptors are left. They are freed when other connections end.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Otherwise Nagle's algorithm delays small replies until the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let site = Arc::clone(site);
        let address = Some(peer.ip()).filter(|address| !address.to_canonical().is_loopback());
        let Some(connection) = connections.admit(address) else {
            continue;
        };
        tokio::spawn(async move {
            let handle_request = service_fn(|request| {
                let site = Arc::clone(&site);
                let connection = Arc::clone(&connection);
                async move { Ok::<_, Infallible>(site.answer(request, &connection).await) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_WAIT)
                .max_header_size(MAX_HEADER_BYTES)
                .max_buf_size(MAX_BUFFER_BYTES)
                .serve_connection(TokioIo::new(stream), handle_request);
            tokio::select! {
                // Errors of a connection concern only its client.
                _ = served => {}
                () = connection.unauthenticated_end() => {}
                () = site.end.cancelled() => {}
            }
        });
    }
}

/// Handler of every request: checks the token and takes a place, then calls the endpoint.
struct HttpSite {
    endpoint: HttpService,
    token: Option<Token>,
    end: CancellationToken,
}

impl HttpSite {
    async fn answer(&self, mut request: Request<Incoming>, connection: &Connection) -> HttpAnswer {
        // The token comes before the place: peers without it must not take the places of clients.
        if let Some(token) = &self.token
            && !token.is_shown(request.headers())
        {
            let mut answer = say(StatusCode::UNAUTHORIZED, "a bearer token is needed");
            answer
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return close(answer);
        }
        if !connection.authenticate() {
            let mut answer = say(StatusCode::SERVICE_UNAVAILABLE, "too many connections");
            answer
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("10"));
            return close(answer);
        }
        if !guard::has_one_host(&request) {
            return close(say(
                StatusCode::BAD_REQUEST,
                "a request names one host, once",
            ));
        }
        // A page of another site could make a browser send this request, but a page of this machine
        // is a client like any other. If there is a token, it was shown; without one, every program
        // of this machine may call.
        if guard::has_local_origin(request.headers()) {
            request.headers_mut().remove(ORIGIN);
        }
        if request.uri().path() != PATH {
            return say(StatusCode::NOT_FOUND, "not found; the MCP endpoint is /mcp");
        }
        self.endpoint.answer(request).await
    }
}
