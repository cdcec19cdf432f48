//! MCP endpoint over streamable HTTP. The caller has authenticated the requests.
//!
//! Bodies, sessions and waits are bounded. A call is cancelled when the connection that made it
//! ends, and its command goes on. A session ends when its client deletes it or is idle for too
//! long.

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

/// Maximum size of a request's body, in bytes.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Maximum number of bodies that are read at the same time.
const MAX_BODIES: usize = 16;
/// Maximum time for a body to arrive.
const BODY_WAIT: Duration = Duration::from_secs(30);
/// Maximum time for a new session to send `initialize`.
const INTRODUCTION_WAIT: Duration = Duration::from_secs(30);

const SESSION_ID: &str = "mcp-session-id";

/// Content types of a reply: one message, or a stream of messages.
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// Reply of the endpoint: a message, or a stream of messages.
pub type HttpAnswer = Response<BoxBody<Bytes, Infallible>>;
type Mcp = StreamableHttpService<McpHandler, LocalSessionManager>;

/// Options of the endpoint.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// Permitted values of the `Host` header, with port.
    pub allowed_hosts: Vec<String>,
    /// Permitted web origins. Empty permits none.
    pub allowed_origins: Vec<String>,
    /// Maximum number of sessions at the same time.
    pub max_sessions: usize,
    /// Time without a message after which a session is closed.
    pub idle: Duration,
}

/// MCP service for authenticated clients. A client that knows the id of a session can use that
/// session, so users that must not share sessions need a service each.
pub struct HttpService {
    /// For protocol version 2025-11-25 and later, whose clients accept events without data.
    current: Dialect,
    /// For clients of earlier versions.
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

/// The SDK's service and sessions for clients of some protocol versions.
struct Dialect {
    mcp: Mcp,
    sessions: Arc<LocalSessionManager>,
}

impl Dialect {
    /// Creates the service of a dialect. Events without data tell a client when to reconnect.
    /// Clients of versions before 2025-11-25 parse the data of every event as a message, and fail
    /// on them.
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
    /// Creates a service whose sessions are opened by `factory`. It serves until `end` is
    /// cancelled. After the service was dropped, [`Closing`] waits until all its sessions are
    /// closed.
    ///
    /// # Errors
    /// `busy` if no thread can be started.
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

    /// Replies to one request, regardless of its path.
    pub async fn answer<B>(&self, request: Request<B>) -> HttpAnswer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let is_new = !request.headers().contains_key(SESSION_ID);
        // Before the body is read: a client that is refused must not cost one of the places for
        // bodies.
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
        // The SDK understands neither ranges nor an absent header.
        let both = HeaderValue::from_static("application/json, text/event-stream");
        parts.headers.insert(ACCEPT, both);
        parts.extensions.insert(ClientPresence(presence.clone()));
        let mut answer = dialect
            .mcp
            .handle(Request::from_parts(parts, Full::new(body)))
            .await;
        // Clients take status 202 for a failed deletion.
        if is_delete && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        // The reply to a call is a stream. Dropping the stream tells the call that its client has
        // gone.
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

    // TRUST: the client chooses the size of the body and its speed.
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

/// Body that cancels a token when it is dropped, because its client stopped reading.
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

/// Replies to a message that is not understood.
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

/// Replies with `message` as JSON.
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

/// Marks the connection to be closed after the reply, so that the rest of the request is not read.
pub(super) fn close(mut answer: HttpAnswer) -> HttpAnswer {
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
