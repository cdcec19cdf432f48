//! HTTP/1.1 without TLS: every request is read and written anew, so that both sides have one idea of where it ends,
//! and each must name the host that the connection is for.

use crate::metered::Metered;
use crate::state::ProxyState;
use crate::target::Target;
use bytes::Bytes;
use glovebox_proto::EgressReason;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{Request, Response, StatusCode, Uri, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// How long the head of a request may take.
const HEAD_WAIT: Duration = Duration::from_mins(1);
/// Largest head.
const MAX_HEAD_BYTES: usize = 64 << 10;

type Body = BoxBody<Bytes, hyper::Error>;

/// How many requests a connection may bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// All that fit: it goes to one host.
    Many,
    /// One: the next may be for another host, and makes a connection of its own.
    One,
}

/// The other side of one connection.
struct Link {
    /// The connection to the host, when it waits for a request.
    server: Option<SendRequest<Incoming>>,
    /// Both ends of a connection that speaks something else from now on.
    upgrade: Option<(OnUpgrade, OnUpgrade)>,
}

/// Serves the requests of one connection. `server` is a connection to the host, if there is one already.
pub(crate) async fn carry(
    stream: TcpStream,
    server: Option<TcpStream>,
    target: &Target,
    requests: Requests,
    state: &ProxyState,
) -> io::Result<()> {
    let server = match server {
        Some(server) => Some(greet(server).await?),
        None => None,
    };
    // Requests of one connection come one after the other, and so does what is sent on.
    let link = Mutex::new(Link {
        server,
        upgrade: None,
    });
    let serve = service_fn(|request| async {
        let answer = match check(&request, target) {
            Ok(()) => pass_on(request, target, &link).await,
            Err(host) => {
                state.refuse(&host, Some(target.port), EgressReason::OtherName);
                let text = format!(
                    "this connection is for {}, and the request names another host",
                    target.host
                );
                Ok(plain(StatusCode::FORBIDDEN, &text))
            }
        };
        Ok::<_, Infallible>(answer.unwrap_or_else(|error| {
            plain(
                StatusCode::BAD_GATEWAY,
                &format!("{} cannot be reached: {error}", target.host),
            )
        }))
    });
    let program = Metered::new(stream, Arc::clone(&target.meter));
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(MAX_HEAD_BYTES)
        .preserve_header_case(true)
        .auto_date_header(false)
        .half_close(true)
        .keep_alive(requests == Requests::Many)
        .serve_connection(TokioIo::new(program), serve)
        .with_upgrades()
        .await
        .map_err(io::Error::other)?;
    let Some((inside, outside)) = link.into_inner().upgrade else {
        return Ok(());
    };
    let inside = inside.await.map_err(io::Error::other)?;
    let outside = outside.await.map_err(io::Error::other)?;
    let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
    tokio::io::copy_bidirectional(&mut inside, &mut outside)
        .await
        .map(drop)
}

/// Whether a request is for the host of its connection; what it names otherwise.
fn check(request: &Request<Incoming>, target: &Target) -> Result<(), String> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let header = hosts.next();
    let shown = header.map_or_else(String::new, |value| {
        String::from_utf8_lossy(value.as_bytes()).into_owned()
    });
    let named = header.and_then(|value| value.to_str().ok());
    let is_one = hosts.next().is_none();
    let is_right = |authority: &str| target.is_named(authority);
    let has_right_header = match named {
        Some(authority) => is_one && is_right(authority),
        // Before version 1.1 there was no such header.
        None => header.is_none() && request.version() == Version::HTTP_10,
    };
    let in_line = request.uri().authority();
    if has_right_header && in_line.is_none_or(|authority| is_right(authority.as_str())) {
        return Ok(());
    }
    Err(if has_right_header {
        in_line.map_or_else(String::new, ToString::to_string)
    } else {
        shown
    })
}

async fn pass_on(
    mut request: Request<Incoming>,
    target: &Target,
    link: &Mutex<Link>,
) -> io::Result<Response<Body>> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>().map_err(io::Error::other)?;
    *request.version_mut() = Version::HTTP_11;
    let wants_upgrade = request.headers().contains_key(UPGRADE);
    if !wants_upgrade {
        // It is about the connection to here. The one to the server is kept as long as this one.
        request.headers_mut().remove(CONNECTION);
    }
    request.headers_mut().remove("proxy-connection");
    if !request.headers().contains_key(HOST) {
        let host =
            http::HeaderValue::from_str(&target.host.to_string()).map_err(io::Error::other)?;
        request.headers_mut().insert(HOST, host);
    }
    let inside = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
    let mut link = link.lock().await;
    let mut sender = match link.server.take() {
        Some(sender) => sender,
        None => connect(target).await?,
    };
    let mut sent = sender.try_send_request(request).await;
    // The server may have closed a connection that it had no request on. Nothing of this one has been sent then.
    if let Some(request) = sent
        .as_mut()
        .err()
        .and_then(hyper::client::conn::TrySendError::take_message)
    {
        sender = connect(target).await?;
        sent = sender.try_send_request(request).await;
    }
    let mut answer = sent.map_err(|error| io::Error::other(error.into_error()))?;
    if let Some(inside) = inside.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) {
        link.upgrade = Some((inside, hyper::upgrade::on(&mut answer)));
    } else {
        answer.headers_mut().remove(CONNECTION);
        answer.headers_mut().remove("keep-alive");
        link.server = Some(sender);
    }
    Ok(answer.map(http_body_util::BodyExt::boxed))
}

async fn connect(target: &Target) -> io::Result<SendRequest<Incoming>> {
    greet(target.dial().await?).await
}

async fn greet(stream: TcpStream) -> io::Result<SendRequest<Incoming>> {
    let (sender, connection) = hyper::client::conn::http1::Builder::new()
        .preserve_header_case(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // It ends with the sender, or when the server closes; whoever sends learns of that.
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok(sender)
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("glovebox: {text}\n")));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain"),
    );
    response
}
