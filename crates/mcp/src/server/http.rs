//! Many clients over streamable HTTP at `/mcp`.
//!
//! What does not show the token is answered 401 before anything else of it is looked at. Connections,
//! headers, bodies, sessions and waiting are bounded. A call ends with the connection that asked for it, and the
//! command it waited for goes on; a session ends when its client deletes it, or says nothing for a while.

use super::SessionFactory;
use super::connections::{Connection, Connections};
use super::guard::{self, Token};
use super::handler::{ClientPresence, McpHandler};
use super::pool::SessionPool;
use super::stdio::{runtime, until_asked_to_end};
use bytes::Bytes;
use glovebox_proto::{Code, Fault, Setting};
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The path of the MCP endpoint.
const PATH: &str = "/mcp";
/// Connections of clients at the same time.
const MAX_CLIENT_CONNECTIONS: usize = 256;
/// Longest body of a request, in bytes.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Bodies that are read at the same time.
const MAX_BODIES: usize = 16;
/// Bytes of a request's head, and how long it may take to arrive.
const MAX_HEADER_BYTES: usize = 32 << 10;
/// What is read ahead. Less than a whole head would bound that instead, and less exactly.
const MAX_BUFFER_BYTES: usize = 2 * MAX_HEADER_BYTES;
const HEADER_WAIT: Duration = Duration::from_secs(10);
/// How long a body may take to arrive.
const BODY_WAIT: Duration = Duration::from_secs(30);
/// How long a session may take to introduce itself.
const INTRODUCTION_WAIT: Duration = Duration::from_secs(30);
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

type Answer = Response<BoxBody<Bytes, Infallible>>;
type Mcp = StreamableHttpService<McpHandler, LocalSessionManager>;

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
    let (pool, closing) = SessionPool::new(factory, options.max_sessions)?;
    let end = CancellationToken::new();
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(broken)?;
        let asked = until_asked_to_end()?;
        let service = Arc::new(HttpService::new(Arc::clone(&pool), options, addr, &end));
        ready(addr);
        tokio::select! {
            () = accept(&listener, &service) => {}
            () = asked => {}
        }
        Ok(())
    });
    end.cancel();
    drop(pool);
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

async fn accept(listener: &tokio::net::TcpListener, service: &Arc<HttpService>) {
    let connections = Connections::new(MAX_CLIENT_CONNECTIONS);
    loop {
        connections.wait_for_room().await;
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptors, for instance: others end, and then there are some again.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Without it small answers wait for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let service = Arc::clone(service);
        let connection = connections.admit();
        tokio::spawn(async move {
            let handle_request = service_fn(|request| {
                let service = Arc::clone(&service);
                let connection = Arc::clone(&connection);
                async move { Ok::<_, Infallible>(service.answer(request, &connection).await) }
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
                () = service.end.cancelled() => {}
            }
        });
    }
}

/// What every request meets.
struct HttpService {
    mcp: Mcp,
    sessions: Arc<LocalSessionManager>,
    token: Option<Token>,
    pool: Arc<SessionPool>,
    max_sessions: usize,
    bodies: Semaphore,
    end: CancellationToken,
}

impl HttpService {
    fn new(
        pool: Arc<SessionPool>,
        options: &HttpOptions,
        addr: SocketAddr,
        end: &CancellationToken,
    ) -> Self {
        let mut config = SessionConfig::default();
        config.keep_alive = Some(options.idle);
        config.init_timeout = Some(INTRODUCTION_WAIT);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = config;
        let sessions = Arc::new(sessions);
        let mut hosts = guard::usual_hosts(addr);
        hosts.extend(options.allowed_hosts.iter().cloned());
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .with_allowed_origins(options.allowed_origins.iter().cloned())
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_BODY_BYTES)
            .with_cancellation_token(end.clone());
        let make = {
            let (pool, end) = (Arc::clone(&pool), end.clone());
            move || Ok(McpHandler::new(Arc::clone(&pool), end.child_token()))
        };
        Self {
            mcp: Mcp::new(make, Arc::clone(&sessions), config),
            sessions,
            token: options.token.clone(),
            pool,
            max_sessions: options.max_sessions,
            bodies: Semaphore::new(MAX_BODIES),
            end: end.clone(),
        }
    }

    async fn answer(&self, mut request: Request<Incoming>, connection: &Connection) -> Answer {
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
        let is_new = !request.headers().contains_key("mcp-session-id");
        if request.method() == Method::POST && is_new && self.is_full().await {
            let mut answer = say(StatusCode::SERVICE_UNAVAILABLE, "too many clients are here");
            answer
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("10"));
            return answer;
        }
        if ![Method::POST, Method::GET, Method::DELETE].contains(request.method()) {
            let mut answer = say(StatusCode::METHOD_NOT_ALLOWED, "POST, GET or DELETE");
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
            return answer;
        }
        let is_delete = request.method() == Method::DELETE;
        let presence = CancellationToken::new();
        let (mut parts, body) = request.into_parts();
        let body = match self.read(body).await {
            Ok(body) => body,
            Err(answer) => return answer,
        };
        parts.extensions.insert(ClientPresence(presence.clone()));
        let mut answer = self
            .mcp
            .handle(Request::from_parts(parts, Full::new(body)))
            .await;
        // What is gone needs no words; clients take "accepted" for a failure here.
        if is_delete && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        // The answer to a call is a stream; whoever stops reading it has gone.
        answer.map(|body| {
            BoxBody::new(WatchedBody {
                body,
                _reader: presence.drop_guard(),
            })
        })
    }

    async fn is_full(&self) -> bool {
        self.pool.free() == 0 || self.sessions.sessions.read().await.len() >= self.max_sessions
    }

    // TRUST: a body is of any size and comes as slowly as its sender likes.
    async fn read(&self, body: Incoming) -> Result<Bytes, Answer> {
        let reading = async {
            let _turn = self.bodies.acquire().await;
            Limited::new(body, MAX_BODY_BYTES).collect().await
        };
        match tokio::time::timeout(BODY_WAIT, reading).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(close(say(
                StatusCode::PAYLOAD_TOO_LARGE,
                "a message has at most 8 MiB",
            ))),
            Ok(Err(_)) => Err(close(say(
                StatusCode::BAD_REQUEST,
                "the body did not arrive",
            ))),
            Err(_) => Err(close(say(
                StatusCode::REQUEST_TIMEOUT,
                "the body took too long",
            ))),
        }
    }
}

/// A body that tells when nobody reads it any more.
struct WatchedBody {
    body: BoxBody<Bytes, Infallible>,
    _reader: DropGuard,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn say(status: StatusCode, text: &'static str) -> Answer {
    let body = Full::new(Bytes::from_static(text.as_bytes()));
    let mut answer = Response::new(BoxBody::new(body));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer
}

/// What is still to come of the request is not waited for.
fn close(mut answer: Answer) -> Answer {
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
