//! What a program asks of an HTTP proxy: a tunnel (CONNECT, RFC 9110, 9.3.6), or one request by its whole address.

use crate::ConnectFailure;
use crate::outward::target::{Target, split_authority};
use crate::peek::peek;
use crate::policy::name::Host;
use crate::state::{ProxyState, ReachError};
use http::uri::{Scheme, Uri};
use std::io;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Largest head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Most fields of a head.
const MAX_FIELDS: usize = 100;
/// The port of `http:` (RFC 9110, 4.2.1).
const HTTP_PORT: u16 = 80;

/// What a program may have.
#[derive(Debug)]
pub(crate) enum ProxyRequest {
    /// A connection to the host, which is there, or is made by what is sent; whatever it sends next is for it.
    Tunnel(Target, Option<TcpStream>),
    /// One request to the host, which it has sent already.
    Request(Target),
}

/// Why a program gets neither.
struct Refusal {
    status: &'static str,
    text: String,
}

/// Answers what a program asks for. `None` when it was told no.
pub(crate) async fn serve(
    stream: &mut TcpStream,
    state: &ProxyState,
) -> io::Result<Option<ProxyRequest>> {
    let refusal = match ask(stream, state).await? {
        Ok(ProxyRequest::Tunnel(target, server)) => {
            stream
                .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                .await?;
            return Ok(Some(ProxyRequest::Tunnel(target, server)));
        }
        Ok(asked) => return Ok(Some(asked)),
        Err(refusal) => refusal,
    };
    let Refusal { status, text } = refusal;
    let body = format!("glovebox: {text}\n");
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // What is still unread when a connection is dropped makes the kernel take the answer back.
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(None)
}

async fn ask(
    stream: &mut TcpStream,
    state: &ProxyState,
) -> io::Result<Result<ProxyRequest, Refusal>> {
    let mut bytes = vec![0; MAX_HEAD_BYTES];
    let mut seen = 0;
    let head = loop {
        let length = peek(stream, &mut bytes, seen).await?;
        let start = bytes.get(..length).unwrap_or_default();
        match read_head(start) {
            Ok(Some(head)) => break head,
            Ok(None) if length > seen && length < MAX_HEAD_BYTES => seen = length,
            Ok(None) => return Ok(Err(bad("the head of the request does not end"))),
            Err(refusal) => return Ok(Err(refusal)),
        }
    };
    if !head.is_tunnel {
        // It is read by whoever carries it, which judges what it says once more.
        return Ok(target(&head, state).await.map(ProxyRequest::Request));
    }
    let head_bytes = bytes.get_mut(..head.length).unwrap_or_default();
    stream.read_exact(head_bytes).await?;
    let target = match target(&head, state).await {
        Ok(target) => target,
        Err(refusal) => return Ok(Err(refusal)),
    };
    Ok(match target.dial_for_tunnel().await {
        Ok(server) => Ok(ProxyRequest::Tunnel(target, server)),
        Err(error) => Err(unreached(&target.host.to_string(), (&error).into())),
    })
}

async fn target(head: &Head, state: &ProxyState) -> Result<Target, Refusal> {
    let found = state
        .target(head.host.clone(), &head.shown, head.port)
        .await;
    let shown = || glovebox_proto::visible::line_of_text(&head.shown);
    found.map_err(|error| match error {
        ReachError::Refused => Refusal {
            status: "403 Forbidden",
            text: format!(
                "{}:{} is not among what this sandbox may reach",
                shown(),
                head.port
            ),
        },
        ReachError::Failed(failure) => unreached(&shown(), failure),
    })
}

/// A host that may be reached, and cannot.
fn unreached(host: &str, failure: ConnectFailure) -> Refusal {
    Refusal {
        status: "502 Bad Gateway",
        text: format!("{host} cannot be reached: {failure}"),
    }
}

/// What the head of a request says about where it goes.
#[derive(Debug)]
struct Head {
    is_tunnel: bool,
    /// `None` when what stands there has no clear reading.
    host: Option<Host>,
    /// As it stands there.
    shown: String,
    port: u16,
    /// Bytes of the head.
    length: usize,
}

/// Reads a head; `None` while it has no end.
fn read_head(bytes: &[u8]) -> Result<Option<Head>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    // TRUST: any command can send anything here; the parser is the one that hyper uses.
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(bad(&format!("that is no request: {error}"))),
    };
    let (method, path) = (
        request.method.unwrap_or_default(),
        request.path.unwrap_or_default(),
    );
    let is_tunnel = method == "CONNECT";
    let authority = if is_tunnel {
        path.to_owned()
    } else {
        let uri: Uri = path
            .parse()
            .map_err(|error| bad(&format!("`{path}` is no address: {error}")))?;
        match (uri.scheme(), uri.authority()) {
            (Some(scheme), Some(authority)) if *scheme == Scheme::HTTP => authority.to_string(),
            (None, _) => {
                return Err(bad(
                    "this is the proxy of the sandbox, and serves nothing itself",
                ));
            }
            _ => {
                return Err(bad(
                    "only http: is asked for in the open; for https: ask for a tunnel (CONNECT)",
                ));
            }
        }
    };
    let split = split_authority(&authority);
    let port = match &split {
        Some((_, Some(port))) => *port,
        _ if is_tunnel => return Err(bad("a tunnel goes to HOST:PORT")),
        _ => HTTP_PORT,
    };
    let host = split.map(|(host, _)| host);
    Ok(Some(Head {
        is_tunnel,
        shown: host.as_ref().map_or(authority, Host::to_string),
        host,
        port,
        length,
    }))
}

fn bad(text: &str) -> Refusal {
    Refusal {
        status: "400 Bad Request",
        text: text.to_owned(),
    }
}
