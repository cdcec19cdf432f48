//! The MCP endpoint over streamable HTTP, for whichever server has let a request in.
//!
//! Bodies, sessions and waiting are bounded. A call ends with the connection that asked for it, and the command it
//! waited for goes on; a session ends when its client deletes it, or says nothing for a while.

use super::SessionFactory;
use super::accept::accepts;
use super::handler::{ClientPresence, McpHandler};
use super::pool::{Closing, SessionPool};
use crate::message::{ClientMessage, read_client};
use bytes::Bytes;
use glovebox_proto::Fault;
use http::header::{ACCEPT, ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use rmcp::model::{
    ClientRequest, ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage, ProtocolVersion,
};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Serialize;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longest body of a request, in bytes.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Bodies that are read at the same time.
const MAX_BODIES: usize = 16;
/// How long a body may take to arrive.
const BODY_WAIT: Duration = Duration::from_secs(30);
/// How long a session may take to introduce itself.
const INTRODUCTION_WAIT: Duration = Duration::from_secs(30);

const SESSION_ID: &str = "mcp-session-id";

/// The two forms of an answer: one message, or a stream of them.
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// What the endpoint answers: a message, or a stream of them.
pub type HttpAnswer = Response<BoxBody<Bytes, Infallible>>;
type Mcp = StreamableHttpService<McpHandler, LocalSessionManager>;

/// How the endpoint is served.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// Names by which it may be called, with their ports.
    pub allowed_hosts: Vec<String>,
    /// Web origins that may call it; none unless named.
    pub allowed_origins: Vec<String>,
    /// Clients at the same time.
    pub max_sessions: usize,
    /// A session without a word for so long has ended.
    pub idle: Duration,
}

/// Answers the requests of clients that have been let in. Whoever has one of its sessions' names can use that
/// session: users that must not meet need a service each.
pub struct HttpService {
    /// For clients of this version and later ones, which know events without data.
    current: Dialect,
    /// For clients of versions before.
    earlier: Dialect,
    pool: Arc<SessionPool>,
    max_sessions: usize,
    bodies: Semaphore,
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService")
            .field("pool", &self.pool)
            .field("max_sessions", &self.max_sessions)
            .finish_non_exhaustive()
    }
}

/// The SDK's service for clients of some versions of the protocol, and its sessions.
struct Dialect {
    mcp: Mcp,
    sessions: Arc<LocalSessionManager>,
}

impl Dialect {
    /// Events without data tell a client when to connect again. Clients of versions before 2025-11-25 read each
    /// event's data as a message, and fail on them.
    fn new(
        pool: &Arc<SessionPool>,
        options: &EndpointOptions,
        end: &CancellationToken,
        has_empty_events: bool,
    ) -> Self {
        let mut session_config = SessionConfig::default();
        session_config.keep_alive = Some(options.idle);
        session_config.init_timeout = Some(INTRODUCTION_WAIT);
        let mut config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(options.allowed_hosts.iter().cloned())
            .with_allowed_origins(options.allowed_origins.iter().cloned())
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_BODY_BYTES)
            .with_cancellation_token(end.clone());
        if !has_empty_events {
            session_config.sse_retry = None;
            config = config.with_sse_retry(None);
        }
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = session_config;
        let sessions = Arc::new(sessions);
        let make = {
            let (pool, end) = (Arc::clone(pool), end.clone());
            move || Ok(McpHandler::new(Arc::clone(&pool), end.child_token()))
        };
        Self {
            mcp: Mcp::new(make, Arc::clone(&sessions), config),
            sessions,
        }
    }

    async fn count_sessions(&self) -> usize {
        self.sessions.sessions.read().await.len()
    }

    async fn has_session(&self, id: &str) -> bool {
        self.sessions.sessions.read().await.contains_key(id)
    }
}

impl HttpService {
    /// For clients whose sessions `factory` opens, until `end` is cancelled. Once the service is dropped, the second
    /// value waits until all of its sessions are closed.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn new(
        factory: Arc<dyn SessionFactory>,
        options: &EndpointOptions,
        end: &CancellationToken,
    ) -> Result<(Self, Closing), Fault> {
        let (pool, closing) = SessionPool::new(factory, options.max_sessions)?;
        let service = Self {
            current: Dialect::new(&pool, options, end, true),
            earlier: Dialect::new(&pool, options, end, false),
            pool,
            max_sessions: options.max_sessions,
            bodies: Semaphore::new(MAX_BODIES),
        };
        Ok((service, closing))
    }

    /// Answers one request, whatever its path is.
    pub async fn answer<B>(&self, request: Request<B>) -> HttpAnswer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let is_new = !request.headers().contains_key(SESSION_ID);
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
        let mut body = match self.read(body).await {
            Ok(body) => body,
            Err(answer) => return answer,
        };
        let mut id = None;
        let mut dialect = self.find_dialect(&parts.headers).await;
        if parts.method == Method::POST {
            match read_client(&body) {
                ClientMessage::Decoded(message, json) => {
                    if let JsonRpcMessage::Request(request) = *message {
                        if is_new && is_of_earlier_version(&request.request) {
                            dialect = &self.earlier;
                        }
                        id = Some(request.id);
                    }
                    body = Bytes::from(json.to_string());
                }
                ClientMessage::Refused(answers) => return refuse(answers),
            }
        }
        let takes_stream = accepts(&parts.headers, EVENT_STREAM);
        let is_acceptable = match parts.method {
            Method::POST => takes_stream && accepts(&parts.headers, JSON),
            Method::GET => takes_stream,
            _ => true,
        };
        if !is_acceptable {
            let text = format!("answers are {JSON} and {EVENT_STREAM}: accept both");
            let error = JsonRpcError::new(id, ErrorData::invalid_request(text, None));
            return say_json(StatusCode::NOT_ACCEPTABLE, &error);
        }
        // The SDK knows neither ranges nor a request without the header.
        let both = HeaderValue::from_static("application/json, text/event-stream");
        parts.headers.insert(ACCEPT, both);
        parts.extensions.insert(ClientPresence(presence.clone()));
        let mut answer = dialect
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
        let sessions = self.current.count_sessions().await + self.earlier.count_sessions().await;
        self.pool.free() == 0 || sessions >= self.max_sessions
    }

    /// Returns the service that has the session of a request.
    async fn find_dialect(&self, headers: &HeaderMap) -> &Dialect {
        let id = headers.get(SESSION_ID).and_then(|id| id.to_str().ok());
        match id {
            Some(id) if self.earlier.has_session(id).await => &self.earlier,
            _ => &self.current,
        }
    }

    // TRUST: a body is of any size and comes as slowly as its sender likes.
    async fn read<B>(&self, body: B) -> Result<Bytes, HttpAnswer>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
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

fn is_of_earlier_version(request: &ClientRequest) -> bool {
    matches!(request, ClientRequest::InitializeRequest(request)
        if request.params.protocol_version < ProtocolVersion::V_2025_11_25)
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

pub(super) fn say(status: StatusCode, text: &'static str) -> HttpAnswer {
    let body = Full::new(Bytes::from_static(text.as_bytes()));
    let mut answer = Response::new(BoxBody::new(body));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer
}

/// Answers a message that is not understood.
fn refuse(mut answers: Vec<JsonRpcError>) -> HttpAnswer {
    let status = match answers.first() {
        None => StatusCode::ACCEPTED,
        Some(answer) if answer.error.code == ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        Some(_) => StatusCode::BAD_REQUEST,
    };
    match (answers.len(), answers.pop()) {
        (1, Some(answer)) => say_json(status, &answer),
        (_, None) => say(status, ""),
        (_, Some(last)) => {
            answers.push(last);
            say_json(status, &answers)
        }
    }
}

/// Answers with `message` as JSON.
fn say_json(status: StatusCode, message: &impl Serialize) -> HttpAnswer {
    let mut answer = say(status, "");
    match serde_json::to_vec(message) {
        Ok(text) => *answer.body_mut() = BoxBody::new(Full::new(Bytes::from(text))),
        Err(_) => *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    answer
}

/// What is still to come of the request is not waited for.
pub(super) fn close(mut answer: HttpAnswer) -> HttpAnswer {
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
