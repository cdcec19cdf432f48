//! The connection to a server over which the requests of one connection of a program are passed on.
//!
//! It is kept from one request to the next, and made again when the server has closed it in between.

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

/// How the server is reached.
#[derive(Debug)]
pub(crate) enum UpstreamTransport {
    /// As it is.
    Plain,
    /// Through TLS.
    Tls(TlsClient),
    /// Not at all, for this reason.
    Closed(String),
}

#[derive(Debug)]
enum Sender {
    /// One request after the other, to this proxy of the machine by their whole address, or to the host itself.
    Http1(http1::SendRequest<SearchedBody>, Option<Arc<ProxyAddress>>),
    /// Many at once.
    Http2(http2::SendRequest<SearchedBody>),
}

/// The connection to a server, when there is one.
#[derive(Debug)]
pub(crate) struct Link {
    way: UpstreamTransport,
    sender: Mutex<Option<Sender>>,
}

impl Link {
    /// One that connects when it is needed.
    pub(crate) fn new(way: UpstreamTransport) -> Self {
        Self {
            way,
            sender: Mutex::default(),
        }
    }

    /// One that has a connection already.
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

    /// Passes a request on and gives the answer, whose body may still be on its way.
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
                // The server may have closed a connection that it had no request on. Nothing of this one has been
                // sent then.
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
    /// The same, with requests that this proxy passes on.
    fn through(self, proxy: Option<Arc<ProxyAddress>>) -> Self {
        match self {
            Self::Http1(sender, _) => Self::Http1(sender, proxy),
            http2 @ Self::Http2(_) => http2,
        }
    }

    /// Whether it can take a request, once what came before is done.
    async fn is_ready(&mut self) -> bool {
        match self {
            Self::Http1(sender, _) => sender.ready().await.is_ok(),
            Self::Http2(sender) => sender.ready().await.is_ok(),
        }
    }
}

/// Makes a request one for the host itself, or one for a proxy of the machine: then it names the whole address, and what
/// the proxy is told. Nothing of that is left in one that goes to the host.
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

/// Why a request has no answer, in words for its program: those of the library speak of the library.
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
    // A connection ends with its sender, or when the server closes; whoever sends learns of that.
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
        // What servers send and clients take. Both are gone when the answer is written anew.
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .handshake(stream)
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok(Sender::Http1(sender, None))
}
