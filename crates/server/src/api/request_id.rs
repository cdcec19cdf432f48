//! Request ids: each request has one, which its response, its error and every log line about it
//! contain.

use super::auth::Shared;
use super::error::AnsweredFault;
use crate::log;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tracing::{Instrument as _, Span, debug, error, error_span, field, info};

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const RANDOM_BYTES: usize = 16;
/// Routes whose errors may describe what a user's tool did, which must not be logged.
const TOOL_ROUTES: [&str; 2] = ["/api/sandboxes/{id}/call", "/api/tool"];
/// Methods that traces name. Any other is `_OTHER`, as in OpenTelemetry.
const METHODS: [&str; 9] = [
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
];

tokio::task_local! {
    static CURRENT: RequestId;
}

/// Id of a request: letters, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    /// Returns the id in the request's header if it is valid, else a new one.
    fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(HEADER).iter();
        // TRUST: the client chooses this value. One that could end a log line or fill the log is
        // not used.
        match (given.next().and_then(|id| id.to_str().ok()), given.next()) {
            (Some(id), None) if log::is_id(id) => Self(id.into()),
            _ => Self::new(),
        }
    }

    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut bytes = [0_u8; RANDOM_BYTES];
        // Without random bytes a counter keeps the ids of this server distinct, which is all that
        // an id must be.
        if getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(RANDOM_BYTES) {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            bytes[..8].copy_from_slice(&count.to_be_bytes());
        }
        let text = bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self(text.into())
    }

    /// Returns the id of the request that the current task handles. None outside of a request.
    pub(super) fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Assigns an id to a request, handles the request, and logs the response.
pub(super) async fn identify(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let id = RequestId::of(request.headers());
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let span = request_span(&id, &method, matched.as_ref().map(MatchedPath::as_str));
    // Before the request is handled: if the client disconnects, this future is dropped, and the
    // `Drop` of this value logs it.
    let mut open = OpenRequest {
        span: span.clone(),
        method,
        route: matched,
        begun: Instant::now(),
        is_answered: false,
    };
    let answering = CURRENT.scope(id.clone(), next.run(request));
    let mut response = answering.instrument(span).await;
    open.answered(&response);
    shared
        .app
        .metrics
        .answered(&open.method, response.status().as_u16());
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

/// Creates the span of a request, for log lines and traces. It has the level error so that it
/// exists, with its ids, at every log level.
///
/// TRUST: a client chooses the method; only methods of HTTP are passed on.
fn request_span(id: &RequestId, method: &Method, route: Option<&str>) -> Span {
    let word = METHODS.into_iter().find(|one| *one == method.as_str());
    let name = match (word, route) {
        (Some(word), Some(route)) => format!("{word} {route}"),
        (word, _) => word.unwrap_or("HTTP").to_owned(),
    };
    error_span!(
        "request",
        request_id = id.as_str(),
        session_id = field::Empty,
        sandbox = field::Empty,
        user = field::Empty,
        otel.name = name,
        otel.kind = "server",
        otel.status_code = field::Empty,
        "error.type" = field::Empty,
        http.request.method = word.unwrap_or("_OTHER"),
        http.route = route,
        http.response.status_code = field::Empty,
    )
}

/// Adds the session of the current request to its log lines.
pub(super) fn note_session(id: &str) {
    Span::current().record("session_id", id);
}

/// Adds the sandbox of the current request to its log lines.
pub(super) fn note_sandbox(name: &str) {
    Span::current().record("sandbox", name);
}

/// Adds the user of the current request to its log lines.
pub(super) fn note_user(name: &str) {
    Span::current().record("user", name);
}

/// A request that has no response yet.
struct OpenRequest {
    span: Span,
    method: Method,
    route: Option<MatchedPath>,
    begun: Instant,
    is_answered: bool,
}

impl OpenRequest {
    fn took_ms(&self) -> u64 {
        log::millis(self.begun.elapsed())
    }

    /// Returns the route as declared. The actual path may contain file names, and the query a code.
    fn route(&self) -> &str {
        self.route.as_ref().map_or("other", MatchedPath::as_str)
    }

    fn answered(&mut self, response: &Response) {
        self.is_answered = true;
        let (method, route, took_ms) = (self.method.as_str(), self.route(), self.took_ms());
        let status = response.status();
        let number = status.as_u16();
        let fault = response.extensions().get::<AnsweredFault>();
        let code = fault.map(|fault| fault.code.as_str());
        let is_own = matches!(
            status,
            StatusCode::INTERNAL_SERVER_ERROR
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::INSUFFICIENT_STORAGE
        );
        let problem = fault
            .filter(|_| is_own && !TOOL_ROUTES.contains(&route))
            .map(|fault| fault.message.as_str());
        let is_read = matches!(self.method, Method::GET | Method::HEAD);
        let is_probe = route.starts_with("/health/");
        log::record_number(&self.span, "http.response.status_code", number.into());
        if status.is_server_error() {
            log::mark_failed(&self.span, code.unwrap_or_else(|| status.as_str()));
        }
        self.span.in_scope(|| {
            if is_probe || (is_read && number < 400) {
                debug!(method, route, status = number, took_ms, "request answered");
            } else if status.is_server_error() {
                error!(
                    method,
                    route,
                    status = number,
                    took_ms,
                    code,
                    problem,
                    "request failed"
                );
            } else {
                info!(
                    method,
                    route,
                    status = number,
                    took_ms,
                    code,
                    "request answered"
                );
            }
        });
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let (method, route, took_ms) = (self.method.as_str(), self.route(), self.took_ms());
        log::mark_failed(&self.span, "cancelled");
        self.span
            .in_scope(|| info!(method, route, took_ms, "request given up by its client"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_str(value).unwrap());
        }
        RequestId::of(&headers).as_str().to_owned()
    }

    #[test]
    fn an_id_is_taken_as_it_comes_or_made() {
        assert_eq!(of(&["4f1c-9a.7b_E"]), "4f1c-9a.7b_E");
        for wrong in [
            &[][..],
            &[""],
            &["a b"],
            &["a\"b"],
            &[&"x".repeat(65)],
            &["one", "two"],
        ] {
            let made = of(wrong);
            assert_eq!(made.len(), 2 * RANDOM_BYTES, "{wrong:?}: {made}");
            assert!(made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{made}");
        }
        assert_ne!(of(&[]), of(&[]));
    }
}
