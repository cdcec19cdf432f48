//! Connection to a server that carries the requests of one connection of a program.
//!
//! It is kept between requests, and made again if the server has closed it in between.

use crate::ConnectFailure;
use crate::innermost::innermost;
use crate::memory::{
    HTTP1_BYTES, HTTP1_HEADERS, HTTP2_HEAD_BYTES, HTTP2_SEND_BYTES, HTTP2_STREAM_WINDOW,
    HTTP2_WINDOW,
};
use crate::outward::machine_proxy::ProxyAddress;
use crate::outward::target::Target;
use crate::outward::tls_client::TlsClient;
use crate::secrets::searched_body::SearchedBody;
use http::header::{HeaderValue, PROXY_AUTHORIZATION};
use http::uri::{PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;

/// Transport to the server.
#[derive(Debug)]
pub(crate) enum UpstreamTransport {
    /// A connection without TLS.
    Plain,
    /// A connection with TLS.
    Tls(TlsClient),
    /// No connection can be made. Holds the reason.
    Closed(String),
}

#[derive(Debug)]
enum Sender {
    /// Sends one request at a time. With a proxy of the machine, requests go to it in absolute
    /// form; with `None`, to the host itself.
    Http1(http1::SendRequest<SearchedBody>, Option<Arc<ProxyAddress>>),
    /// Sends many requests at a time.
    Http2(http2::SendRequest<SearchedBody>),
}

/// Connection to a server, if one exists.
#[derive(Debug)]
pub(crate) struct Link {
    way: UpstreamTransport,
    sender: Mutex<Option<Sender>>,
}

impl Link {
    /// Creates a link that connects when the first request is sent.
    pub(crate) fn new(way: UpstreamTransport) -> Self {
        Self {
            way,
            sender: Mutex::default(),
        }
    }

    /// Creates a link over an existing connection.
    pub(crate) async fn connected<S>(
        way: UpstreamTransport,
        stream: S,
        is_http2: bool,
    ) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Ok(Self {
            way,
            sender: Mutex::new(Some(greet(stream, is_http2).await?)),
        })
    }

    /// Sends a request and returns the response, whose body may still be on its way.
    pub(crate) async fn send(
        &self,
        target: &Target,
        request: Request<SearchedBody>,
    ) -> io::Result<Response<Incoming>> {
        let mut place = self.sender.lock().await;
        let kept = match place.take() {
            Some(mut sender) => sender.is_ready().await.then_some(sender),
            None => None,
        };
        let is_kept = kept.is_some();
        let sender = match kept {
            Some(sender) => sender,
            None => self.connect(target).await?,
        };
        match sender {
            Sender::Http1(mut sender, mut proxy) => {
                let request = address(request, target, proxy.as_deref())?;
                let mut sent = sender.try_send_request(request).await;
                // The server may have closed the idle connection. The library returns the request
                // in this case only if nothing of it was sent, so that sending it again is safe.
                if is_kept
                    && let Some(request) = sent.as_mut().err().and_then(TrySendError::take_message)
                    && let Sender::Http1(new, new_proxy) = self.connect(target).await?
                {
                    (sender, proxy) = (new, new_proxy);
                    let request = address(request, target, proxy.as_deref())?;
                    sent = sender.try_send_request(request).await;
                }
                let answer = sent.map_err(|error| told(&error.into_error()))?;
                if let Some(proxy) = proxy.as_deref()
                    && answer.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
                {
                    let failure = ConnectFailure::ProxyRefused {
                        variable: proxy.variable,
                        status: answer.status().as_u16(),
                    };
                    target.meter.fail(failure);
                    return Err(failure.into());
                }
                *place = Some(Sender::Http1(sender, proxy));
                Ok(answer)
            }
            Sender::Http2(mut sender) => {
                // The lock is released before the response arrives: otherwise the requests of an
                // HTTP/2 connection would wait for each other.
                *place = Some(Sender::Http2(sender.clone()));
                drop(place);
                let sent = sender.send_request(request).await;
                sent.map_err(|error| told(&error))
            }
        }
    }

    async fn connect(&self, target: &Target) -> io::Result<Sender> {
        target.meter.decide_again(&target.host)?;
        match &self.way {
            UpstreamTransport::Plain => {
                let connection = target.dial_http().await?;
                let sender = greet(connection.stream, false).await?;
                Ok(sender.through(connection.proxy))
            }
            UpstreamTransport::Tls(client) => {
                let stream = client.connect(target.dial().await?).await?;
                greet(stream, client.is_http2()).await
            }
            UpstreamTransport::Closed(why) => Err(io::Error::other(why.clone())),
        }
    }
}

impl Sender {
    /// Returns the sender with `proxy` as the one that passes requests on.
    fn through(self, proxy: Option<Arc<ProxyAddress>>) -> Self {
        match self {
            Self::Http1(sender, _) => Self::Http1(sender, proxy),
            http2 @ Self::Http2(_) => http2,
        }
    }

    /// Waits until earlier requests are done. Returns false if the connection is closed.
    async fn is_ready(&mut self) -> bool {
        match self {
            Self::Http1(sender, _) => sender.ready().await.is_ok(),
            Self::Http2(sender) => sender.ready().await.is_ok(),
        }
    }
}

/// Rewrites a request for its recipient. For a proxy of the machine it gets the absolute form and
/// the proxy's credentials. For the host itself it gets the origin form. Proxy credentials of the
/// program are removed in both cases.
fn address(
    mut request: Request<SearchedBody>,
    target: &Target,
    proxy: Option<&ProxyAddress>,
) -> io::Result<Request<SearchedBody>> {
    request.headers_mut().remove(PROXY_AUTHORIZATION);
    let path = request.uri().path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    let uri = Uri::builder();
    let uri = match proxy {
        None => uri.path_and_query(path),
        Some(proxy) => {
            if let Some(authorization) = &proxy.authorization {
                let value = HeaderValue::from_str(authorization.expose());
                let mut value = value.map_err(io::Error::other)?;
                value.set_sensitive(true);
                request.headers_mut().insert(PROXY_AUTHORIZATION, value);
            }
            let authority = match target.port {
                80 => target.host.to_string(),
                port => format!("{}:{port}", target.host),
            };
            uri.scheme(Scheme::HTTP)
                .authority(authority)
                .path_and_query(path)
        }
    };
    *request.uri_mut() = uri.build().map_err(io::Error::other)?;
    Ok(request)
}

/// Returns the reason for which a request has no response, in words for its program: the library's
/// messages are about the library.
fn told(error: &hyper::Error) -> io::Error {
    if error.is_canceled() || error.is_closed() {
        return io::Error::other("the server ended the connection before it answered");
    }
    io::Error::other(innermost(error))
}

async fn greet<S>(stream: S, is_http2: bool) -> io::Result<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(stream);
    // The task of the connection ends when its sender is dropped or the server closes. The sender
    // reports the error to its user.
    if is_http2 {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_WINDOW)
            .max_header_list_size(HTTP2_HEAD_BYTES)
            .max_send_buf_size(HTTP2_SEND_BYTES)
            .handshake(stream)
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(async move { drop(connection.await) });
        return Ok(Sender::Http2(sender));
    }
    let (sender, connection) = http1::Builder::new()
        .preserve_header_case(true)
        .max_buf_size(HTTP1_BYTES)
        .max_headers(HTTP1_HEADERS)
        // Servers send these malformed headers, and clients accept them. The response is written
        // anew without them.
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .handshake(stream)
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok(Sender::Http1(sender, None))
}
