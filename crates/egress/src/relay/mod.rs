//! Relay of one connection of a program to a host that it may reach.
//!
//! The host is known before the first byte for it is read. The name that the program sends (in its
//! ClientHello, or as the `Host` of its requests) must be the same, because many hosts may share
//! one address. Port 443 must carry TLS and port 80 HTTP. On other ports both are detected, and any
//! other protocol is passed on unchanged. TLS is intercepted only for hosts that have a secret.

pub(crate) mod http_link;
pub(crate) mod http_relay;
pub(crate) mod intercept;
pub(crate) mod metered;
pub(crate) mod negotiation;
pub(crate) mod pump;
pub(crate) mod request_line;

use crate::outward::target::Target;
use crate::peek::peek;
use crate::policy::name::{Host, Name};
use crate::record::accounts::FlowControl;
use crate::record::traffic::Direction;
use crate::relay::http_relay::Requests;
use crate::relay::pump::{pump, reset};
use crate::state::ProxyState;
use glovebox_proto::EgressReason;
use rustls::server::Acceptor;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum time for a program's ClientHello.
const GREETING_WAIT: Duration = Duration::from_secs(30);
/// Time for a program to speak first before the server is dialled, where the route depends on the
/// protocol.
const SPEAKING_WAIT: Duration = Duration::from_millis(300);
/// Maximum size of a ClientHello, which may span several records, in bytes.
const MAX_GREETING_BYTES: usize = 64 << 10;
/// Fatal alert "access_denied" (RFC 8446, 6.2) as a TLS record.
const TLS_REFUSED: [u8; 7] = [21, 3, 1, 0, 2, 2, 49];
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// Detected protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tls,
    Http,
    Other,
}

/// Relays a connection to its target until it ends. `server` is an existing connection to the host.
/// `None` if it is to be made here.
pub(crate) async fn carry_to(
    stream: TcpStream,
    server: Option<TcpStream>,
    target: &Target,
    state: &Arc<ProxyState>,
) -> io::Result<()> {
    match target.port {
        HTTP => http_relay::carry(stream, server, target, Requests::Many, state).await,
        HTTPS => carry_tls(stream, server, target, state).await,
        _ => {
            // The machine may have different proxies for HTTP and for other protocols. A program
            // that speaks first shows which one is needed.
            if server.is_none() && target.route.upstream.is_some() {
                match timeout(SPEAKING_WAIT, recognise(&stream)).await {
                    Ok(Ok(Kind::Http)) => {
                        return http_relay::carry(stream, None, target, Requests::Many, state)
                            .await;
                    }
                    Ok(Ok(Kind::Tls)) => return carry_tls(stream, None, target, state).await,
                    Ok(Ok(Kind::Other)) | Err(_) => {}
                    Ok(Err(error)) => return Err(error),
                }
            }
            // The server may speak first, as in SSH or SMTP, and it must be connected for that.
            let server = match server {
                Some(server) => server,
                None => dial_for(&stream, target).await?,
            };
            // Bytes of the server that come first decide: a protocol in which the server speaks
            // first is neither TLS nor HTTP.
            let (mut ours, mut theirs) = ([0; 1], [0; 1]);
            let program_speaks = tokio::select! {
                seen = stream.peek(&mut ours) => seen? > 0,
                seen = server.peek(&mut theirs) => { seen?; false }
            };
            let kind = if program_speaks {
                recognise(&stream).await?
            } else {
                Kind::Other
            };
            match kind {
                Kind::Tls => carry_tls(stream, Some(server), target, state).await,
                Kind::Http => {
                    http_relay::carry(stream, Some(server), target, Requests::Many, state).await
                }
                Kind::Other => pump(&stream, &server, &target.meter).await,
            }
        }
    }
}

/// Detects the protocol from the first bytes, which stay in the socket.
async fn recognise(stream: &TcpStream) -> io::Result<Kind> {
    const METHODS: [&[u8]; 8] = [
        b"GET ",
        b"HEAD ",
        b"POST ",
        b"PUT ",
        b"DELETE ",
        b"OPTIONS ",
        b"PATCH ",
        b"PROPFIND ",
    ];
    let mut bytes = [0; 9];
    let mut seen = 0;
    let wait = async {
        loop {
            let length = peek(stream, &mut bytes, seen).await?;
            let start = bytes.get(..length).unwrap_or_default();
            if start.first() == Some(&22) {
                return Ok(Kind::Tls);
            }
            if METHODS.iter().any(|method| start.starts_with(method)) {
                return Ok(Kind::Http);
            }
            let may_become_one = METHODS
                .iter()
                .any(|method| length < method.len() && method.starts_with(start));
            if length <= seen || !may_become_one {
                return Ok(Kind::Other);
            }
            seen = length;
        }
    };
    timeout(GREETING_WAIT, wait)
        .await
        .unwrap_or(Ok(Kind::Other))
}

/// Relays TLS whose ClientHello names the target.
async fn carry_tls(
    mut stream: TcpStream,
    server: Option<TcpStream>,
    target: &Target,
    state: &Arc<ProxyState>,
) -> io::Result<()> {
    let (greeting, named) = match timeout(GREETING_WAIT, read_greeting(&mut stream)).await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => return Err(error),
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    };
    let refusal = match (&named, &target.host) {
        (Greeting::For(named), Host::Name(name))
            if Name::parse(named).is_ok_and(|named| named == *name) =>
        {
            None
        }
        // The server name is never an address (RFC 6066, 3).
        (Greeting::Nameless, Host::Address(_)) => None,
        (Greeting::For(named), _) => Some((named.clone(), EgressReason::OtherName)),
        (Greeting::Nameless, Host::Name(name)) => Some((name.to_string(), EgressReason::OtherName)),
        (Greeting::NoTls, host) => Some((host.to_string(), EgressReason::NoTls)),
    };
    if let Some((host, reason)) = refusal {
        state.refuse(&host, Some(target.port), reason);
        stream.write_all(&TLS_REFUSED).await?;
        return stream.shutdown().await;
    }
    // The server is dialled only after the check, so that a refused connection does not reach it.
    let mut server = match server {
        Some(server) => server,
        None => dial_for(&stream, target).await?,
    };
    // The ClientHello was read here and not through the meter. Without this it would pass
    // uncounted.
    if target.meter.count(Direction::Sent, greeting.len()) == FlowControl::Stop {
        reset(&stream);
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    if let Some(interceptor) = state.interceptor_for(&target.host, target.port) {
        return intercept::carry(stream, greeting, server, target, state, interceptor).await;
    }
    server.write_all(&greeting).await?;
    pump(&stream, &server, &target.meter).await
}

/// Server name of a ClientHello.
#[derive(Debug, PartialEq, Eq)]
enum Greeting {
    For(String),
    Nameless,
    NoTls,
}

/// Reads a ClientHello. Returns all bytes that were read, for the server, and the name.
async fn read_greeting(stream: &mut TcpStream) -> io::Result<(Vec<u8>, Greeting)> {
    let mut bytes = Vec::new();
    let mut acceptor = Acceptor::default();
    let mut part = vec![0; 4096];
    loop {
        let length = stream.read(&mut part).await?;
        let Some(mut news) = part.get(..length).filter(|news| !news.is_empty()) else {
            return Ok((bytes, Greeting::NoTls));
        };
        bytes.extend_from_slice(news);
        // TRUST: programs inside can send anything here; a TLS library parses it.
        while !news.is_empty() {
            if acceptor.read_tls(&mut news).is_err() {
                return Ok((bytes, Greeting::NoTls));
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    let greeting = accepted.client_hello().server_name().map(str::to_owned);
                    return Ok((bytes, greeting.map_or(Greeting::Nameless, Greeting::For)));
                }
                Ok(None) => {}
                Err(_) => return Ok((bytes, Greeting::NoTls)),
            }
        }
        if bytes.len() > MAX_GREETING_BYTES {
            return Ok((bytes, Greeting::NoTls));
        }
    }
}

/// Connects to the host. If that fails, the program's connection is reset, as if it had dialled the
/// host itself.
async fn dial_for(stream: &TcpStream, target: &Target) -> io::Result<TcpStream> {
    target.dial().await.inspect_err(|_| reset(stream))
}
