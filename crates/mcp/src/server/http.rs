//! A server of its own for many clients, over streamable HTTP at `/mcp`.
//!
//! What does not show the token is answered 401 before anything else of it is looked at. Connections, headers and
//! waiting for them are bounded.

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

/// The path of the MCP endpoint.
const PATH: &str = "/mcp";
/// Connections of clients at the same time.
const MAX_CLIENT_CONNECTIONS: usize = 256;
/// Bytes of a request's head, and how long it may take to arrive.
const MAX_HEADER_BYTES: usize = 32 << 10;
/// What is read ahead. Less than a whole head would bound that instead, and less exactly.
const MAX_BUFFER_BYTES: usize = 2 * MAX_HEADER_BYTES;
const HEADER_WAIT: Duration = Duration::from_secs(10);
/// How long closing the sessions may take.
const LEAVE_WAIT: Duration = Duration::from_mins(1);
/// How long a refused connection rests before the next one is accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How the endpoint is served.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// What clients must show; without one, anybody who reaches the address comes in.
    pub token: Option<Token>,
    /// Names by which the server may be called besides those of the address itself.
    pub allowed_hosts: Vec<String>,
    /// Web origins that may call it; none unless named.
    pub allowed_origins: Vec<String>,
    /// Clients at the same time.
    pub max_sessions: usize,
    /// A session without a word for so long has ended.
    pub idle: Duration,
}

/// Serves on `listener` until a signal asks for the end, and returns when all sessions are closed.
/// `ready` hears the address.
///
/// # Errors
/// A refusal to serve beyond this machine without a token; when there can be no runtime.
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
    end.cancel();
    drop(site);
    let _ = closing.wait(LEAVE_WAIT);
    runtime.shutdown_background();
    served
}

/// A server that others can reach must ask who they are.
///
/// # Errors
/// A refusal.
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
            // No descriptors, for instance: others end, and then there are some again.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Without it small answers wait for the client's acknowledgement.
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
                // However a connection ends is its client's business.
                _ = served => {}
                () = connection.unauthenticated_end() => {}
                () = site.end.cancelled() => {}
            }
        });
    }
}

/// What every request of a client meets: the token, a place for its connection, then the endpoint.
struct HttpSite {
    endpoint: HttpService,
    token: Option<Token>,
    end: CancellationToken,
}

impl HttpSite {
    async fn answer(&self, mut request: Request<Incoming>, connection: &Connection) -> HttpAnswer {
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
        // A page of somebody else's can lead here; one of this machine is a client like any other. With a token it
        // has shown that, and where none is asked for every program of this machine may call.
        if guard::has_local_origin(request.headers()) {
            request.headers_mut().remove(ORIGIN);
        }
        if request.uri().path() != PATH {
            return say(StatusCode::NOT_FOUND, "not found; the MCP endpoint is /mcp");
        }
        self.endpoint.answer(request).await
    }
}
