//! HTTP client for a server over streamable HTTP, between the SDK and reqwest.
//!
//! Bodies are read by [`crate::message`] before the SDK sees them. A request that fails (a status,
//! a redirect, a body that is not a message) fails by itself: it becomes an error under its id, and
//! the connection goes on.

use super::{MAX_MESSAGE_BYTES, link};
use crate::message::read_server;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use http::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use http::{Method, StatusCode};
use reqwest::{RequestBuilder, Response, Url};
use rmcp::model::{
    ClientJsonRpcMessage, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sdk_sse_stream::Sse;
use sse_stream::SseByteStream;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Code of a request that failed before it had an effect. Errors of servers never have it
/// ([`read_server`]).
pub(super) const NO_EFFECT: ErrorCode = ErrorCode(i32::MIN);
/// Code of a request that failed and may have had an effect.
pub(super) const UNKNOWN_EFFECT: ErrorCode = ErrorCode(i32::MIN + 1);

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Maximum number of redirects that are followed for one request.
const MAX_REDIRECTS: usize = 5;
/// Maximum size of the body of a failure, in bytes.
const MAX_FAILURE_BYTES: usize = 64 << 10;
/// Maximum number of quoted characters of a header.
const MAX_QUOTED_CHARS: usize = 64;

type Events = BoxStream<'static, Result<Sse, SseError>>;
type Failure = StreamableHttpError<HttpFailure>;

/// Description of an HTTP failure.
#[derive(Debug)]
pub(super) struct HttpFailure(String);

impl fmt::Display for HttpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HttpFailure {}

/// HTTP client. Clones share the redirect that was found.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    client: reqwest::Client,
    /// Address to which the server redirected, on the same origin.
    moved: Arc<Mutex<Option<Url>>>,
}

/// Failed request. The code tells whether it can have had an effect.
struct FailedRequest {
    code: ErrorCode,
    words: String,
}

impl FailedRequest {
    const fn without_effect(words: String) -> Self {
        let code = NO_EFFECT;
        Self { code, words }
    }

    const fn of_unknown_effect(words: String) -> Self {
        let code = UNKNOWN_EFFECT;
        Self { code, words }
    }
}

impl HttpClient {
    pub(super) fn new(client: reqwest::Client) -> Self {
        Self {
            client,
            moved: Arc::default(),
        }
    }

    fn address(&self, given: &str) -> Result<Url, FailedRequest> {
        let moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(url) = &*moved {
            return Ok(url.clone());
        }
        given
            .parse()
            .map_err(|_| FailedRequest::without_effect("its address cannot be read".to_owned()))
    }

    /// Sends a request, and follows redirects on the same origin.
    async fn send(
        &self,
        given: &str,
        build: impl Fn(Url) -> RequestBuilder,
    ) -> Result<Response, FailedRequest> {
        let mut url = self.address(given)?;
        for _ in 0..=MAX_REDIRECTS {
            let sent = build(url.clone()).send().await;
            let response = sent.map_err(|error| {
                let words = deepest(&error);
                if error.is_connect() {
                    let words = format!("it cannot be reached: {words}");
                    return FailedRequest::without_effect(words);
                }
                FailedRequest::of_unknown_effect(format!("the connection failed: {words}"))
            })?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let target = location(&url, response.headers());
            let is_kept = matches!(
                response.status(),
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
            );
            match target {
                // The request carries credentials, so it must not go to another origin.
                Some(target) if is_kept && target.origin() == url.origin() => {
                    *self.moved.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(target.clone());
                    url = target;
                }
                target => return Err(elsewhere(response.status(), target)),
            }
        }
        let words = format!("it leads to another address more than {MAX_REDIRECTS} times");
        Err(FailedRequest::without_effect(words))
    }

    async fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session: Option<&str>,
        headers: &HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let id = match message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let build = |url| {
            let request = self.client.request(Method::POST, url);
            with_headers(request, session, headers)
                .header(ACCEPT, format!("{EVENT_STREAM}, {JSON}"))
                .json(message)
        };
        let response = match self.send(uri, build).await {
            Ok(response) => response,
            Err(failed) => return Ok(fail(id, failed)),
        };
        let status = response.status();
        if status == StatusCode::NOT_FOUND && session.is_some() {
            // The SDK then initializes again and repeats the request.
            return Err(StreamableHttpError::SessionExpired);
        }
        let session = header(response.headers(), &SESSION);
        if !status.is_success() {
            return Ok(self.refused(response, id).await);
        }
        let Some(id) = id else {
            // A notification has no reply.
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        if header(response.headers(), &CONTENT_TYPE).is_some_and(|kind| is(&kind, EVENT_STREAM)) {
            let events = events(response.bytes_stream(), Some(id));
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        // Also if the server declares another content type or none.
        let body = match read_body(response, MAX_MESSAGE_BYTES).await {
            Ok(body) => body,
            Err(failed) => return Ok(fail(Some(id), failed)),
        };
        let mut messages = VecDeque::from(correlated(read_server(&body), Some(&id)));
        match (messages.len(), messages.pop_front()) {
            (_, None) => {
                let quote = link::quote(&String::from_utf8_lossy(&body));
                let words = if quote.is_empty() {
                    format!("HTTP {}, and no answer", status.as_u16())
                } else {
                    format!("what it sent is no answer: {quote}")
                };
                Ok(fail(Some(id), FailedRequest::of_unknown_effect(words)))
            }
            (1, Some(message)) => Ok(StreamableHttpPostResponse::Json(message, session)),
            (_, Some(message)) => {
                messages.push_front(message);
                let events = messages.into_iter().map(|message| Ok(event(&message)));
                let events = stream::iter(events.collect::<Vec<_>>()).boxed();
                Ok(StreamableHttpPostResponse::Sse(events, session))
            }
        }
    }

    /// Returns the result of a request whose status is not a success.
    async fn refused(
        &self,
        response: Response,
        id: Option<RequestId>,
    ) -> StreamableHttpPostResponse {
        let status = response.status();
        let wait = header(response.headers(), &RETRY_AFTER).map_or_else(String::new, |wait| {
            let wait: String = wait.chars().take(MAX_QUOTED_CHARS).collect();
            let unit = if wait.bytes().all(|byte| byte.is_ascii_digit()) {
                " s"
            } else {
                ""
            };
            format!("; it asks to wait: {}{unit}", link::quote(&wait))
        });
        let code = status.as_u16();
        let words = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let words = format!(
                    "it does not accept the key (HTTP {code}): set `bearer_env` or `headers_env`"
                );
                return fail(id, FailedRequest::without_effect(words));
            }
            StatusCode::TOO_MANY_REQUESTS => {
                let words = format!("it has too many requests (HTTP {code}){wait}");
                return fail(id, FailedRequest::without_effect(words));
            }
            _ => {
                let body = read_body(response, MAX_FAILURE_BYTES).await;
                let body = body.unwrap_or_default();
                let errors = correlated(read_server(&body), id.as_ref());
                let told = errors
                    .into_iter()
                    .find(|message| matches!(message, JsonRpcMessage::Error(_)));
                if let (Some(told), true) = (told, id.is_some()) {
                    return StreamableHttpPostResponse::Json(told, None);
                }
                let quote = link::quote(&String::from_utf8_lossy(&body));
                let colon = if quote.is_empty() { "" } else { ": " };
                format!("it failed with HTTP {code}{colon}{quote}{wait}")
            }
        };
        let failed = if status.is_client_error() {
            FailedRequest::without_effect(words)
        } else {
            FailedRequest::of_unknown_effect(words)
        };
        fail(id, failed)
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = HttpFailure;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.post(&uri, &message, session_id.as_deref(), &custom_headers)
            .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let build = |url| {
            let request = self.client.request(Method::DELETE, url);
            with_headers(request, Some(&session_id), &custom_headers)
        };
        // A server may refuse to delete sessions, so errors are ignored.
        let _ = self.send(&uri, build).await;
        Ok(())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Failure> {
        let build = |url| {
            let request = self.client.request(Method::GET, url);
            let request = with_headers(request, session_id.as_deref(), &custom_headers)
                .header(ACCEPT, EVENT_STREAM);
            match &last_event_id {
                Some(id) => request.header(LAST_EVENT, id),
                None => request,
            }
        };
        let opened = self.send(&uri, build).await;
        let is_stream = |response: &Response| {
            response.status().is_success()
                && header(response.headers(), &CONTENT_TYPE)
                    .is_some_and(|kind| is(&kind, EVENT_STREAM))
        };
        match opened {
            Ok(response) if is_stream(&response) => Ok(events(response.bytes_stream(), None)),
            // Without an event id the stream would carry only unsolicited messages, which are not
            // needed. With one it carries the rest of a reply.
            _ if last_event_id.is_none() => Err(StreamableHttpError::ServerDoesNotSupportSse),
            Ok(response) => Err(StreamableHttpError::Client(HttpFailure(format!(
                "HTTP {}",
                response.status().as_u16()
            )))),
            Err(failed) => Err(StreamableHttpError::Client(HttpFailure(failed.words))),
        }
    }
}

fn with_headers(
    mut request: RequestBuilder,
    session: Option<&str>,
    headers: &HashMap<HeaderName, HeaderValue>,
) -> RequestBuilder {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    match session {
        Some(session) => request.header(SESSION, session),
        None => request,
    }
}

fn header(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.as_bytes();
    Some(String::from_utf8_lossy(value).trim().to_owned())
}

/// Returns true if a content type is `media_type`, regardless of parameters.
fn is(content_type: &str, media_type: &str) -> bool {
    let name = content_type.split(';').next().unwrap_or_default();
    name.trim().eq_ignore_ascii_case(media_type)
}

/// Returns the target of a redirect, without user name and password.
fn location(url: &Url, headers: &HeaderMap) -> Option<Url> {
    let mut target = url.join(&header(headers, &LOCATION)?).ok()?;
    target.set_username("").ok()?;
    target.set_password(None).ok()?;
    Some(target)
}

fn elsewhere(status: StatusCode, target: Option<Url>) -> FailedRequest {
    let code = status.as_u16();
    let words = match target {
        Some(mut target) => {
            // They may contain a secret.
            target.set_query(None);
            target.set_fragment(None);
            let target = link::quote(target.as_str());
            format!("it leads to another address (HTTP {code}): set `url` to {target}")
        }
        None => format!("it leads to another address (HTTP {code}) and does not say which"),
    };
    FailedRequest::without_effect(words)
}

/// Returns an error under the request's id. A notification needs no reply and counts as accepted.
fn fail(id: Option<RequestId>, failed: FailedRequest) -> StreamableHttpPostResponse {
    match id {
        Some(id) => StreamableHttpPostResponse::Json(error(id, failed), None),
        None => StreamableHttpPostResponse::Accepted,
    }
}

fn error(id: RequestId, failed: FailedRequest) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::new(failed.code, failed.words, None), Some(id))
}

/// Sets the request's id on errors that have none or another one.
fn correlated(
    mut messages: Vec<ServerJsonRpcMessage>,
    id: Option<&RequestId>,
) -> Vec<ServerJsonRpcMessage> {
    for message in &mut messages {
        if let (JsonRpcMessage::Error(error), Some(id)) = (message, id) {
            error.id = Some(id.clone());
        }
    }
    messages
}

fn event(message: &ServerJsonRpcMessage) -> Sse {
    // Serialization cannot fail: the message was parsed from JSON.
    let text = serde_json::to_string(message).unwrap_or_default();
    Sse::default().data(text)
}

async fn read_body(response: Response, most: usize) -> Result<Vec<u8>, FailedRequest> {
    let mut body = Vec::new();
    let mut packets = response.bytes_stream();
    // TRUST: the server chooses the length of the body.
    while let Some(packet) = packets.next().await {
        let packet = packet.map_err(|error| {
            let words = format!("its answer broke off: {}", deepest(&error));
            FailedRequest::of_unknown_effect(words)
        })?;
        if body.len() + packet.len() > most {
            let words = format!("its answer has more than {} MiB", most >> 20);
            return Err(FailedRequest::of_unknown_effect(words));
        }
        body.extend_from_slice(&packet);
    }
    Ok(body)
}

/// Converts a body to events for the SDK, with messages as [`read_server`] returns them. If the
/// stream ends without the reply to `id` and cannot be resumed, an error under that id is appended.
fn events(
    body: impl Stream<Item = Result<Bytes, reqwest::Error>> + Send + 'static,
    id: Option<RequestId>,
) -> Events {
    let pending = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&pending);
    let counted = body.map(move |packet| {
        let packet = packet.map_err(|error| io::Error::other(deepest(&error)))?;
        let before = counter.fetch_add(packet.len(), Ordering::Relaxed);
        // TRUST: a server may send bytes without end and never complete an event.
        if before + packet.len() > MAX_MESSAGE_BYTES {
            let most = MAX_MESSAGE_BYTES >> 20;
            return Err(io::Error::other(format!(
                "an event has more than {most} MiB"
            )));
        }
        Ok(packet)
    });
    let end = stream::iter([Ok(Bytes::from_static(b"\n\n"))]);
    let reader = EventReader {
        events: SseByteStream::new(counted.chain(end).boxed()),
        pending,
        ready: VecDeque::new(),
        waits_for: id,
        can_resume: false,
        has_ended: false,
    };
    stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    })
    .boxed()
}

/// State of reading one body.
struct EventReader {
    events: SseByteStream<BoxStream<'static, Result<Bytes, io::Error>>>,
    /// Number of bytes since the last event.
    pending: Arc<AtomicUsize>,
    ready: VecDeque<Sse>,
    /// Request whose reply has not arrived. `None` if no reply is expected.
    waits_for: Option<RequestId>,
    /// True if the server sent event ids, with which the SDK resumes a stream.
    can_resume: bool,
    has_ended: bool,
}

impl EventReader {
    async fn next(&mut self) -> Option<Sse> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.has_ended {
                return None;
            }
            let why = match self.events.next().await {
                Some(Ok(event)) => {
                    self.pending.store(0, Ordering::Relaxed);
                    self.take(event);
                    continue;
                }
                Some(Err(error)) => deepest(&error),
                None => "the stream ended".to_owned(),
            };
            self.has_ended = true;
            if let Some(id) = self.waits_for.take().filter(|_| !self.can_resume) {
                let words = format!("its answer broke off: {why}");
                let failed = FailedRequest::of_unknown_effect(words);
                self.ready.push_back(event(&error(id, failed)));
            }
        }
    }

    fn take(&mut self, event: sse_stream::Sse) {
        self.can_resume |= event.id.is_some();
        // Events of unknown types carry no messages.
        let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
        let data = event.data.unwrap_or_default();
        let messages = if is_message && !data.trim().is_empty() {
            correlated(read_server(data.as_bytes()), self.waits_for.as_ref())
        } else {
            Vec::new()
        };
        if event.id.is_some() || event.retry.is_some() {
            self.ready.push_back(Sse {
                event: None,
                data: None,
                id: event.id,
                retry: event.retry,
            });
        }
        for message in messages {
            let answered = match &message {
                JsonRpcMessage::Response(response) => Some(&response.id),
                JsonRpcMessage::Error(error) => error.id.as_ref(),
                _ => None,
            };
            if answered.is_some() && answered == self.waits_for.as_ref() {
                self.waits_for = None;
            }
            self.ready.push_back(self::event(&message));
        }
    }
}

/// Returns the innermost cause. The outer ones repeat it in the words of libraries.
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
