//! Forwarding of one preview request to the program in the sandbox, and of its response.
//!
//! Each request uses its own connection, so that the response cannot be mistaken for that of
//! another request, even if the program sends several. Bodies and WebSockets are streamed at the
//! speed of their reader. An idle connection is closed.

use super::super::error::ApiError;
use super::super::last_use::LastUse;
use super::heads::{Heads, is_websocket, set_websocket};
use crate::work::App;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{PortConnection, PortFailure};
use http::{StatusCode, Uri, Version};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

/// Maximum length of the head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Reason for which a request got no response.
#[derive(Debug)]
pub(super) enum ForwardError {
    /// No program listens on the port.
    NothingListens,
    /// Any other error.
    Other(ApiError),
}

impl From<Fault> for ForwardError {
    fn from(fault: Fault) -> Self {
        Self::Other(fault.into())
    }
}

/// Limits of a connection to a program: idle time, and the end of the server.
#[derive(Debug)]
struct Watch {
    idle: Duration,
    last_use: Arc<LastUse>,
    was_idle: AtomicBool,
    end: CancellationToken,
}

impl Watch {
    /// Waits until the connection has been idle for too long or the server ends.
    async fn wait_for_end(&self) {
        tokio::select! {
            () = self.last_use.wait_for_idle(self.idle) => self.was_idle.store(true, Ordering::Relaxed),
            () = self.end.cancelled() => {}
        }
    }
}

/// Sends a request to the program at the other end of `connection`. Returns when the head of the
/// response has arrived; the body is still streamed.
pub(super) async fn forward(
    app: &App,
    heads: &Heads,
    connection: PortConnection,
    mut request: Request,
    has_own_authorization: bool,
) -> Result<Response, ForwardError> {
    let (stream, failure) = connection.into_parts();
    let io_fault = |error: io::Error| {
        Fault::failed(
            Code::Io,
            format!("cannot use a connection to the sandbox: {error}"),
        )
    };
    stream.set_nonblocking(true).map_err(io_fault)?;
    let last_use = Arc::new(LastUse::now());
    let stream = WatchedStream {
        stream: UnixStream::from_std(stream).map_err(io_fault)?,
        last_use: Arc::clone(&last_use),
    };
    let watch = Arc::new(Watch {
        idle: app.config.idle,
        last_use,
        was_idle: AtomicBool::new(false),
        end: app.end.clone(),
    });
    let mut builder = http1::Builder::new();
    builder
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(2 * MAX_HEAD_BYTES);
    let explain = |error: hyper::Error| explain(&error, &failure, &watch);
    let (mut sender, connection) = builder
        .handshake::<_, Body>(TokioIo::new(stream))
        .await
        .map_err(explain)?;
    let carrier = Arc::clone(&watch);
    tokio::spawn(async move {
        tokio::select! {
            // The error is reported by `send_request` or by the reader of the body.
            _ = connection.with_upgrades() => {}
            () = carrier.wait_for_end() => {}
        }
    });
    // Taken before `as_sent`, which clears the extensions that hold it.
    let client = is_websocket(request.headers()).then(|| hyper::upgrade::on(&mut request));
    let request = as_sent(heads, request, has_own_authorization)?;
    let mut answer = sender.send_request(request).await.map_err(explain)?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(as_answered(heads, answer.map(Body::new)));
    }
    let (Some(client), true) = (client, is_websocket(answer.headers())) else {
        return Err(no_http("it changes to a protocol that nobody has asked for").into());
    };
    let inside = hyper::upgrade::on(&mut answer);
    tokio::spawn(carry(client, inside, watch));
    let mut answer = as_answered(heads, answer.map(|_| Body::empty()));
    set_websocket(answer.headers_mut());
    Ok(answer)
}

/// Returns the request as the program receives it.
fn as_sent(
    heads: &Heads,
    request: Request,
    has_own_authorization: bool,
) -> Result<Request, ForwardError> {
    let (mut parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().cloned();
    let target = target.filter(|target| target.as_str().starts_with('/'));
    let Some(target) = target else {
        let error = ApiError::invalid(
            "the request has no path",
            "ask for a path that begins with /",
        );
        return Err(ForwardError::Other(error));
    };
    parts.uri = Uri::from(target);
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    heads.make_request(&mut parts.headers, has_own_authorization);
    Ok(Request::from_parts(parts, body))
}

/// Returns the response as the browser receives it.
fn as_answered(heads: &Heads, answer: Response) -> Response {
    let (mut parts, body) = answer.into_parts();
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    heads.make_answer(&mut parts.headers);
    Response::from_parts(parts, body)
}

/// Copies the bytes of a WebSocket in both directions until either end closes it, it is idle, or
/// the server ends.
async fn carry(client: OnUpgrade, inside: OnUpgrade, watch: Arc<Watch>) {
    let carried = async {
        let (client, inside) = tokio::try_join!(client, inside).ok()?;
        let (mut client, mut inside) = (TokioIo::new(client), TokioIo::new(inside));
        copy_bidirectional(&mut client, &mut inside).await.ok()
    };
    tokio::select! {
        _ = carried => {}
        () = watch.wait_for_end() => {}
    }
}

/// Returns the reason for which there is no response.
fn explain(error: &hyper::Error, failure: &PortFailure, watch: &Watch) -> ForwardError {
    match failure.get() {
        Some(fault) if fault.code == Code::NotFound => return ForwardError::NothingListens,
        Some(fault) => return fault.clone().into(),
        None => {}
    }
    if watch.was_idle.load(Ordering::Relaxed) {
        let fault = Fault::failed(Code::TimedOut, "the program has not answered for too long");
        return fault.remedy("look at what it writes").into();
    }
    if watch.end.is_cancelled() {
        return Fault::failed(Code::Unavailable, "the server ends")
            .retryable()
            .into();
    }
    no_http(&error.to_string()).into()
}

fn no_http(what: &str) -> ApiError {
    let fault = Fault::failed(
        Code::Protocol,
        format!("the program does not answer in HTTP/1.1: {what}"),
    );
    let remedy = "look at what it writes; a preview shows programs that speak plain HTTP";
    ApiError::new(StatusCode::BAD_GATEWAY, fault.remedy(remedy))
}

impl From<ApiError> for ForwardError {
    fn from(error: ApiError) -> Self {
        Self::Other(error)
    }
}

/// Stream that records the time of each transfer.
#[derive(Debug)]
struct WatchedStream {
    stream: UnixStream,
    last_use: Arc<LastUse>,
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if polled.is_ready() {
            self.last_use.touch();
        }
        polled
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if polled.is_ready() {
            self.last_use.touch();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
