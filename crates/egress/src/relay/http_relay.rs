//! Relay for HTTP, without TLS or within intercepted TLS. Every request is parsed and written anew,
//! so that the proxy and the server agree on where it ends. Every request must name the host of the
//! connection.
//!
//! If the host has secrets and TLS protects the request, placeholders are replaced by values in
//! requests, and values by placeholders in responses. Elsewhere a request with a placeholder in a
//! header is refused. A request with a placeholder in its address or body is passed on unchanged,
//! and the log records it.

use crate::memory::{
    HTTP1_BYTES, HTTP1_HEADERS, HTTP2_HEAD_BYTES, HTTP2_SEND_BYTES, HTTP2_STREAM_WINDOW,
    HTTP2_STREAMS, HTTP2_WINDOW,
};
use crate::outward::target::Target;
use crate::record::log::now_ns;
use crate::relay::http_link::{Link, UpstreamTransport};
use crate::relay::metered::Metered;
use crate::relay::negotiation::{ask_for_plain_answer, is_encoded, refuse_hidden_hosts};
use crate::relay::request_line::{LastBody, RequestReader};
use crate::secrets::interceptor::Interceptor;
use crate::secrets::scrub::Scrubber;
use crate::secrets::scrubbed_body::{ScrubbedBody, scrub_headers};
use crate::secrets::searched_body::{PlaceholderSearch, SearchedBody};
use crate::secrets::swap::FilledSecrets;
use crate::state::ProxyState;
use bytes::Bytes;
use glovebox_proto::{EgressReason, SecretReason};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::uri::Scheme;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Maximum time for the head of a request.
const HEAD_WAIT: Duration = Duration::from_mins(1);
/// Buffer of one direction of an upgraded connection, in bytes.
const BUFFER_BYTES: usize = 16 << 10;

type Body = BoxBody<Bytes, hyper::Error>;

/// Number of requests that a connection may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// Any number: all of them are for one host.
    Many,
    /// A single one: the program may use the next request for another host, and must make a new
    /// connection for it.
    One,
}

/// State of one connection of a program.
#[derive(Debug)]
pub(crate) struct Relay {
    target: Target,
    state: Arc<ProxyState>,
    link: Link,
    /// Interceptor that fills in secrets. `None` unless TLS is intercepted.
    interceptor: Option<Arc<Interceptor>>,
    /// Both ends of a connection that has been upgraded to another protocol.
    upgrade: Mutex<Option<(OnUpgrade, OnUpgrade)>>,
}

/// Relays the requests of one connection without TLS. `server` is an existing connection to the
/// host. `None` if it is to be made when needed.
pub(crate) async fn carry(
    stream: TcpStream,
    server: Option<TcpStream>,
    target: &Target,
    requests: Requests,
    state: &Arc<ProxyState>,
) -> io::Result<()> {
    let link = match server {
        Some(server) => Link::connected(UpstreamTransport::Plain, server, false).await?,
        None => Link::new(UpstreamTransport::Plain),
    };
    let program = Metered::new(stream, Arc::clone(&target.meter));
    Relay::new(target, state, link, None)
        .serve(program, requests)
        .await
}

impl Relay {
    pub(crate) fn new(
        target: &Target,
        state: &Arc<ProxyState>,
        link: Link,
        interceptor: Option<Arc<Interceptor>>,
    ) -> Self {
        Self {
            target: target.clone(),
            state: Arc::clone(state),
            link,
            interceptor,
            upgrade: Mutex::default(),
        }
    }

    /// Serves HTTP/1 requests, and relays the bytes of a connection that is upgraded.
    pub(crate) async fn serve<S>(self, stream: S, requests: Requests) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = RequestReader::new(stream);
        let bounds = stream.bounds();
        let serve = service_fn(|request: Request<Incoming>| {
            // After an upgrade the bytes are not requests: their addresses must not be rewritten.
            let is_last = request.headers().contains_key(UPGRADE);
            let body_bytes = request.body().size_hint().exact();
            let ends = body_bytes.filter(|_| !is_last);
            let ends = ends.map(|bytes| (Arc::clone(&bounds), bytes));
            async {
                let answer = self.answer(request, false).await;
                Ok::<_, Infallible>(answer.map(|body| LastBody::new(body, ends)))
            }
        });
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WAIT)
            .max_buf_size(HTTP1_BYTES)
            .max_headers(HTTP1_HEADERS)
            .preserve_header_case(true)
            .auto_date_header(false)
            .half_close(true)
            .keep_alive(requests == Requests::Many)
            .serve_connection(TokioIo::new(stream), serve)
            .with_upgrades()
            .await
            .map_err(io::Error::other)?;
        let upgrade = self
            .upgrade
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let Some((inside, outside)) = upgrade else {
            return Ok(());
        };
        let inside = inside.await.map_err(io::Error::other)?;
        let outside = outside.await.map_err(io::Error::other)?;
        let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
        let Some(interceptor) = &self.interceptor else {
            return tokio::io::copy_bidirectional(&mut inside, &mut outside)
                .await
                .map(drop);
        };
        let (from_inside, mut to_inside) = tokio::io::split(inside);
        let (from_outside, mut to_outside) = tokio::io::split(outside);
        let mut from_inside = from_inside;
        let out = async {
            tokio::io::copy(&mut from_inside, &mut to_outside).await?;
            to_outside.shutdown().await
        };
        // The upgraded protocol may have announced lengths before, so that values are masked with
        // text of the same length.
        let back = copy_scrubbed(from_outside, &mut to_inside, interceptor.vault().mask());
        tokio::try_join!(out, back).map(drop)
    }

    /// Serves HTTP/2 requests.
    pub(crate) async fn serve_http2<S>(self, stream: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let relay = Arc::new(self);
        let serve = service_fn(move |request| {
            let relay = Arc::clone(&relay);
            async move { Ok::<_, Infallible>(relay.answer(request, true).await) }
        });
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_WINDOW)
            .max_concurrent_streams(HTTP2_STREAMS)
            .max_header_list_size(HTTP2_HEAD_BYTES)
            .max_send_buf_size(HTTP2_SEND_BYTES)
            .auto_date_header(false)
            .serve_connection(TokioIo::new(stream), serve)
            .await
            .map_err(io::Error::other)
    }

    async fn answer(&self, request: Request<Incoming>, is_http2: bool) -> Response<Body> {
        let target = &self.target;
        // The check comes before secrets are filled in: a value must never be added to a request
        // that names another host.
        if let Err(host) = check(&request, target) {
            self.state
                .refuse(&host, Some(target.port), EgressReason::OtherName);
            let text = format!(
                "this connection is for {}, and the request names another host",
                target.host
            );
            return plain(StatusCode::FORBIDDEN, &text);
        }
        let address = request.uri().path_and_query().cloned();
        let answer = match (&self.interceptor, self.state.interceptor()) {
            (Some(interceptor), _) => self.intercept(request, is_http2, interceptor).await,
            (None, Some(interceptor)) => match interceptor.vault().find(request.headers()) {
                Some(secret) => Ok(self.misplaced(secret.as_str(), SecretReason::Plain)),
                None => self.pass_on(request, is_http2, None).await.map(as_it_is),
            },
            (None, None) => self.pass_on(request, is_http2, None).await.map(as_it_is),
        };
        // Servers write addresses to logs, so that values are never filled in there. The
        // placeholder is recorded to explain a failure.
        if let (Some(address), Some(interceptor)) = (address, self.state.interceptor()) {
            let secrets = interceptor.vault().secrets_in(address.as_str().as_bytes());
            for secret in secrets {
                let (name, reason) = (secret.as_str(), SecretReason::Address);
                self.state.refuse_secret(name, target, reason, now_ns());
            }
        }
        answer.unwrap_or_else(|error| {
            let text = format!("{} cannot be reached: {error}", target.host);
            plain(StatusCode::BAD_GATEWAY, &text)
        })
    }

    /// Passes a request on with secrets filled in, and returns its response with the values
    /// removed.
    async fn intercept(
        &self,
        mut request: Request<Incoming>,
        is_http2: bool,
        interceptor: &Interceptor,
    ) -> io::Result<Response<Body>> {
        let (target, vault) = (&self.target, interceptor.vault());
        let filled = match vault.fill_in(request.headers_mut(), &target.host, target.port) {
            Ok(filled) => filled,
            Err(secret) => return Ok(self.misplaced(secret.as_str(), SecretReason::OtherHost)),
        };
        // The search cannot read a compressed body, and is pointless if a value was filled in.
        let search = (!filled.has_value && !is_encoded(request.headers()))
            .then(|| PlaceholderSearch::new(vault));
        let found = search.as_ref().map(PlaceholderSearch::found);
        ask_for_plain_answer(request.headers_mut());
        let is_head = request.method() == Method::HEAD;
        let answer = self.pass_on(request, is_http2, search).await?;
        // A body may contain the placeholder by accident, for example in a dump of the environment.
        // It is recorded only if the host then rejects the request.
        let is_kept_out = matches!(
            answer.status(),
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        );
        if is_kept_out && let Some(secret) = found.as_ref().and_then(|found| found.get()) {
            let name = secret.as_str();
            self.state
                .refuse_secret(name, target, SecretReason::Body, now_ns());
        }
        let is_encoded = is_encoded(answer.headers());
        if is_encoded && filled.has_value {
            let secret = vault.secret_for(&target.host, target.port);
            let secret = secret.map_or("", |name| name.as_str());
            self.state
                .refuse_secret(secret, target, SecretReason::Encoded, now_ns());
            let text = format!(
                "{} has answered in a compressed form that was not asked for; it cannot be looked through for \
                 the secret {secret}, so it is held back",
                target.host
            );
            return Ok(plain(StatusCode::BAD_GATEWAY, &text));
        }
        Ok(scrub_answer(
            answer,
            is_head,
            is_encoded,
            filled,
            interceptor,
        ))
    }

    /// Refuses a request with a placeholder that may not be replaced there.
    fn misplaced(&self, secret: &str, reason: SecretReason) -> Response<Body> {
        let target = &self.target;
        self.state.refuse_secret(secret, target, reason, now_ns());
        let text = match reason {
            SecretReason::Plain => format!(
                "this request carries the placeholder of the secret {secret} without TLS; secrets go through TLS only"
            ),
            _ => format!(
                "this request carries the placeholder of the secret {secret}, which is not for {}:{}",
                target.host, target.port
            ),
        };
        plain(StatusCode::FORBIDDEN, &text)
    }

    async fn pass_on(
        &self,
        mut request: Request<Incoming>,
        is_http2: bool,
        search: Option<PlaceholderSearch>,
    ) -> io::Result<Response<Incoming>> {
        *request.uri_mut() = self.place_of(&request, is_http2)?;
        if is_http2 {
            request.headers_mut().remove(HOST);
            let request = request.map(|body| SearchedBody::new(body, search));
            return self.link.send(&self.target, request).await;
        }
        *request.version_mut() = Version::HTTP_11;
        // Before the header is read below: an upgrade that is removed here must not be prepared
        // there.
        refuse_hidden_hosts(request.headers_mut());
        let wants_upgrade = request.headers().contains_key(UPGRADE);
        if !wants_upgrade {
            // The header is about the program's connection. The connection to the server stays open
            // independently.
            request.headers_mut().remove(CONNECTION);
        }
        request.headers_mut().remove("proxy-connection");
        if !request.headers().contains_key(HOST) {
            let host =
                HeaderValue::from_str(&self.target.host.to_string()).map_err(io::Error::other)?;
            request.headers_mut().insert(HOST, host);
        }
        let inside = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
        let request = request.map(|body| SearchedBody::new(body, search));
        let mut answer = self.link.send(&self.target, request).await?;
        if let Some(inside) = inside.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS)
        {
            let both = (inside, hyper::upgrade::on(&mut answer));
            *self.upgrade.lock().unwrap_or_else(PoisonError::into_inner) = Some(both);
        } else {
            answer.headers_mut().remove(CONNECTION);
            answer.headers_mut().remove("keep-alive");
            // The library has found the end of the body like clients do: chunks take precedence
            // over a length. Both headers together would let the program read the end differently.
            // `Transfer-Encoding` stays if it names a compression, because such a body cannot be
            // scrubbed or decoded here.
            if answer.headers().contains_key(TRANSFER_ENCODING) {
                answer.headers_mut().remove(CONTENT_LENGTH);
                if !is_encoded(answer.headers()) {
                    answer.headers_mut().remove(TRANSFER_ENCODING);
                }
            }
        }
        Ok(answer)
    }

    /// Returns the request's URI as the server expects it: in origin form for HTTP/1, complete for
    /// HTTP/2.
    fn place_of(&self, request: &Request<Incoming>, is_http2: bool) -> io::Result<Uri> {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        if !is_http2 {
            return path.parse().map_err(io::Error::other);
        }
        let named = request.uri().authority().map(ToString::to_string);
        let named = named.unwrap_or_else(|| format!("{}:{}", self.target.host, self.target.port));
        Uri::builder()
            .scheme(Scheme::HTTPS)
            .authority(named)
            .path_and_query(path)
            .build()
            .map_err(io::Error::other)
    }
}

fn as_it_is(answer: Response<Incoming>) -> Response<Body> {
    answer.map(http_body_util::BodyExt::boxed)
}

/// Removes values of secrets from a response. The body of a compressed response to a request
/// without a value is passed on unchanged.
fn scrub_answer(
    mut answer: Response<Incoming>,
    is_head: bool,
    is_encoded: bool,
    filled: FilledSecrets,
    interceptor: &Interceptor,
) -> Response<Body> {
    let scrubber = interceptor.vault().scrubber(filled);
    scrub_headers(answer.headers_mut(), &scrubber);
    // The reason phrase is dropped because it is not scrubbed, and the server could put a value
    // there.
    answer.extensions_mut().remove::<ReasonPhrase>();
    let is_bare = is_head
        || answer.status().is_informational()
        || matches!(
            answer.status(),
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
    if is_bare || is_encoded {
        return as_it_is(answer);
    }
    if answer
        .headers()
        .get(CONTENT_LENGTH)
        .is_some_and(|length| length != "0")
    {
        // The replacement of a value has another length.
        answer.headers_mut().remove(CONTENT_LENGTH);
    }
    answer.map(|body| ScrubbedBody::new(body, scrubber).boxed())
}

/// Copies until the end of `from`, with values of secrets removed.
async fn copy_scrubbed(
    mut from: impl AsyncRead + Unpin,
    to: &mut (impl AsyncWrite + Unpin),
    mut scrubber: Scrubber,
) -> io::Result<()> {
    let mut part = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut part).await?;
        let Some(news) = part.get(..length).filter(|news| !news.is_empty()) else {
            to.write_all(&scrubber.finish()).await?;
            return to.shutdown().await;
        };
        to.write_all(&scrubber.push(&Bytes::copy_from_slice(news)))
            .await?;
        to.flush().await?;
    }
}

/// Checks that a request names the host of its connection. Returns the name of another host as the
/// error.
fn check(request: &Request<Incoming>, target: &Target) -> Result<(), String> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let header = hosts.next();
    let shown = header.map_or_else(String::new, |value| {
        String::from_utf8_lossy(value.as_bytes()).into_owned()
    });
    let named = header.and_then(|value| value.to_str().ok());
    let is_one = hosts.next().is_none();
    let is_right = |authority: &str| target.is_named(authority);
    let in_line = request.uri().authority();
    let has_right_header = match named {
        Some(authority) => is_one && is_right(authority),
        // HTTP/1.0 does not require the header, and HTTP/2 has `:authority` instead.
        None => {
            header.is_none()
                && match request.version() {
                    Version::HTTP_10 => true,
                    Version::HTTP_2 => in_line.is_some(),
                    _ => false,
                }
        }
    };
    if has_right_header && in_line.is_none_or(|authority| is_right(authority.as_str())) {
        return Ok(());
    }
    Err(if has_right_header {
        in_line.map_or_else(String::new, ToString::to_string)
    } else {
        shown
    })
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("glovebox: {text}\n")));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain"),
    );
    response
}
