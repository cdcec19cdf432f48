//! What every request goes through: the key, the round trip, and the faults that a test asked for.

use super::envelope::status;
use super::{Service, SharedService};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A fault of some requests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultRule {
    /// Path that it concerns, without the prefix. None: every path.
    path: Option<String>,
    /// Requests that are let through before.
    #[serde(default)]
    skip: u64,
    /// Requests that it concerns. None: all of them.
    count: Option<u64>,
    /// Milliseconds from now on in which it acts. None: always.
    lasts_ms: Option<u64>,
    /// Status of the answer; the request does nothing.
    status: Option<u16>,
    /// Body of that answer.
    body: Option<String>,
    /// `Retry-After` of that answer, in seconds.
    retry_after: Option<u64>,
    /// The request does its work, and its connection ends without the answer.
    #[serde(default)]
    lose_answer: bool,
    /// The request waits this long before it does anything, in milliseconds.
    delay_ms: Option<u64>,
    #[serde(skip)]
    until: Option<Instant>,
}

impl FaultRule {
    /// Answers every request after the first `skip` with `status`.
    pub(super) fn status_after(status: u16, skip: u64) -> Self {
        Self {
            path: None,
            skip,
            count: None,
            lasts_ms: None,
            status: Some(status),
            body: None,
            retry_after: None,
            lose_answer: false,
            delay_ms: None,
            until: None,
        }
    }

    /// Answers every request of the next `milliseconds` with `status`.
    pub(super) fn status_for(status: u16, milliseconds: u64) -> Self {
        Self {
            lasts_ms: Some(milliseconds),
            ..Self::status_after(status, 0)
        }
    }
}

/// The faults in force.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<FaultRule>>);

impl Faults {
    pub(super) fn add(&self, mut rule: FaultRule) {
        rule.until = rule
            .lasts_ms
            .map(|milliseconds| Instant::now() + Duration::from_millis(milliseconds));
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(rule);
    }

    /// The fault of a request to `path`, if it has one.
    fn take(&self, path: &str) -> Option<FaultRule> {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rules.retain(|rule| {
            rule.count != Some(0) && rule.until.is_none_or(|until| until > Instant::now())
        });
        for rule in rules
            .iter_mut()
            .filter(|rule| rule.path.as_deref().is_none_or(|own| own == path))
        {
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if let Some(count) = &mut rule.count {
                *count -= 1;
            }
            return Some(rule.clone());
        }
        None
    }
}

pub(super) async fn handle_request(
    State(service): State<SharedService>,
    request: Request,
    next: Next,
) -> Response {
    let whole = request.uri().path();
    let path = whole
        .strip_prefix(service.prefix.as_str())
        .unwrap_or(whole)
        .to_owned();
    service.journal.count(&path);
    tokio::time::sleep(service.latency / 2).await;
    let response = answer(&service, &path, request, next).await;
    tokio::time::sleep(service.latency / 2).await;
    response
}

async fn answer(service: &Service, path: &str, request: Request, next: Next) -> Response {
    let fault = service.faults.take(path);
    if let Some(milliseconds) = fault.as_ref().and_then(|fault| fault.delay_ms) {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }
    if let Some(fault) = fault.as_ref()
        && let Some(code) = fault.status
    {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = match &fault.body {
            Some(body) => (code, body.clone()).into_response(),
            None => status(code, code.canonical_reason().unwrap_or_default()),
        };
        if let Some(seconds) = fault.retry_after {
            response
                .headers_mut()
                .insert("retry-after", HeaderValue::from(seconds));
        }
        return response;
    }
    if !service.accepts(key_of(request.headers(), request.uri()).as_deref()) {
        return status(StatusCode::UNAUTHORIZED, "Unauthorized");
    }
    let response = next.run(request).await;
    if fault.is_some_and(|fault| fault.lose_answer) {
        // A body that fails makes the server end the connection in the middle of the answer.
        let broken = stream::once(async { Err::<Vec<u8>, _>(std::io::Error::other("lost")) });
        return Response::new(Body::from_stream(broken));
    }
    response
}

/// The key in one of the three places where the service looks for it.
fn key_of(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let parameter = uri.query().and_then(|query| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix("api_key="))
    });
    text("x-aio-api-key")
        .or(bearer)
        .or(parameter)
        .map(ToOwned::to_owned)
}
