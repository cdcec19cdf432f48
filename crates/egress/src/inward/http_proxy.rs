//! HTTP proxy requests of programs: a tunnel (CONNECT, RFC 9110, 9.3.6), or one request in absolute
//! form (RFC 9112, 3.2.2).

use crate::ConnectFailure;
use crate::outward::target::{Target, split_authority};
use crate::peek::peek;
use crate::policy::name::Host;
use crate::state::{ProxyState, ReachError};
use http::uri::{Scheme, Uri};
use std::io;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Maximum size of a request's head, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Maximum number of header fields.
const MAX_FIELDS: usize = 100;
/// Default port of `http:` (RFC 9110, 4.2.1).
const HTTP_PORT: u16 = 80;

/// Accepted request of a program.
#[derive(Debug)]
pub(crate) enum ProxyRequest {
    /// A tunnel to the target. The stream is `None` if the connection is made only when requests
    /// arrive in the tunnel. All further bytes of the program are for the target.
    Tunnel(Target, Option<TcpStream>),
    /// A single request to the target. Its head is still unread in the program's socket.
    Request(Target),
}

/// Error response for a refused request.
struct Refusal {
    status: &'static str,
    text: String,
}

/// Reads and answers a proxy request. `None` if it was refused and the refusal was sent.
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
    // Read to the end first: if unread bytes remain when the socket is closed, the kernel sends a
    // reset (RFC 2525, 2.17), which can discard the refusal before the program has read it.
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
        // Only peeked at: the HTTP relay reads the head again and checks its host once more.
        return Ok(target(&head, state).await.map(ProxyRequest::Request));
    }
    // Only the head is taken from the socket: bytes behind it belong to the tunnel.
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

/// Returns the refusal for an allowed host that could not be reached.
fn unreached(host: &str, failure: ConnectFailure) -> Refusal {
    Refusal {
        status: "502 Bad Gateway",
        text: format!("{host} cannot be reached: {failure}"),
    }
}

/// Destination that the head of a request names.
#[derive(Debug)]
struct Head {
    is_tunnel: bool,
    /// `None` if the authority cannot be parsed unambiguously.
    host: Option<Host>,
    /// Host for display: normalized, or the raw authority if it cannot be parsed.
    shown: String,
    port: u16,
    /// Length of the head, in bytes.
    length: usize,
}

/// Parses the head of a request. `None` if it is incomplete.
fn read_head(bytes: &[u8]) -> Result<Option<Head>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    // TRUST: any program inside can send anything here; the parser is the one that hyper uses.
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
