//! The connection to a server over which the requests of one connection of a program are passed on.
//!
//! It is kept from one request to the next, and made again when the server has closed it in between.

use crate::innermost::innermost;
use crate::memory::{
    HTTP1_BYTES, HTTP1_HEADERS, HTTP2_HEAD_BYTES, HTTP2_SEND_BYTES, HTTP2_STREAM_WINDOW,
    HTTP2_WINDOW,
};
use crate::outward::target::Target;
use crate::outward::tls_client::TlsClient;
use crate::secrets::searched_body::SearchedBody;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
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
    /// One request after the other.
    Http1(http1::SendRequest<SearchedBody>),
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
            Sender::Http1(mut sender) => {
                let mut sent = sender.try_send_request(request).await;
                // The server may have closed a connection that it had no request on. Nothing of this one has been
                // sent then.
                if is_kept
                    && let Some(request) = sent.as_mut().err().and_then(TrySendError::take_message)
                    && let Sender::Http1(new) = self.connect(target).await?
                {
                    sender = new;
                    sent = sender.try_send_request(request).await;
                }
                let answer = sent.map_err(|error| told(&error.into_error()))?;
                *place = Some(Sender::Http1(sender));
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
            UpstreamTransport::Plain => greet(target.dial().await?, false).await,
            UpstreamTransport::Tls(client) => {
                let stream = client.connect(target.dial().await?).await?;
                greet(stream, client.is_http2()).await
            }
            UpstreamTransport::Closed(why) => Err(io::Error::other(why.clone())),
        }
    }
}

impl Sender {
    /// Whether it can take a request, once what came before is done.
    async fn is_ready(&mut self) -> bool {
        match self {
            Self::Http1(sender) => sender.ready().await.is_ok(),
            Self::Http2(sender) => sender.ready().await.is_ok(),
        }
    }
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
    Ok(Sender::Http1(sender))
}
