//! One connection that a program inside has made to the address that stands in for a name.
//!
//! The name is known before the first byte. What the program says it wants (the name in its TLS greeting, the `Host`
//! of its requests) must be the same: behind one address there may be many hosts. Port 443 carries TLS and port 80
//! carries HTTP; on other ports either is recognised, and the rest is passed on as it is.

use crate::http_relay;
use crate::name::Name;
use crate::state::ProxyState;
use crate::target::Target;
use glovebox_proto::EgressReason;
use rustls::server::Acceptor;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a program may take for its greeting.
const GREETING_WAIT: Duration = Duration::from_secs(30);
/// Largest greeting: a ClientHello may be spread over several records.
const MAX_GREETING_BYTES: usize = 64 << 10;
/// Buffer of one direction. With as many connections as there may be they take 128 MiB.
const BUFFER_BYTES: usize = 64 << 10;
/// A fatal alert "access_denied" (RFC 8446, 6.2) in a record of its own.
const TLS_REFUSED: [u8; 7] = [21, 3, 1, 0, 2, 2, 49];
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// What a connection turns out to carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tls,
    Http,
    Other,
}

/// Carries one connection to its end.
pub(crate) async fn carry(stream: TcpStream, port: u16, state: &ProxyState) {
    let _ = stream.set_nodelay(true);
    match target(&stream, port, state).await {
        // Whoever breaks off is seen by the other end.
        Some(target) => drop(carry_to(stream, &target, state).await),
        None => reset(&stream),
    }
}

/// Where it wants to go, if it may.
async fn target(stream: &TcpStream, port: u16, state: &ProxyState) -> Option<Target> {
    let SocketAddr::V4(local) = stream.local_addr().ok()? else {
        return None;
    };
    // Another address of the sandbox has nobody at this port.
    let name = state.name_of(*local.ip())?;
    let addresses = state.reach(&name, Some(port)).await?;
    Some(Target {
        name,
        port,
        addresses,
    })
}

async fn carry_to(stream: TcpStream, target: &Target, state: &ProxyState) -> io::Result<()> {
    match target.port {
        HTTP => http_relay::carry(stream, None, target, state).await,
        HTTPS => carry_tls(stream, None, target, state).await,
        _ => {
            // The server may be the one who speaks first.
            let mut server = dial_for(&stream, target).await?;
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
                Kind::Http => http_relay::carry(stream, Some(server), target, state).await,
                Kind::Other => {
                    let mut stream = stream;
                    pump(&mut stream, &mut server).await
                }
            }
        }
    }
}

/// What the first bytes are. They stay where they are.
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
    let wait = async {
        loop {
            let seen = stream.peek(&mut bytes).await?;
            let start = bytes.get(..seen).unwrap_or_default();
            if start.first() == Some(&22) {
                return Ok(Kind::Tls);
            }
            if METHODS.iter().any(|method| start.starts_with(method)) {
                return Ok(Kind::Http);
            }
            let may_become_one = METHODS
                .iter()
                .any(|method| seen < method.len() && method.starts_with(start));
            if seen == 0 || !may_become_one {
                return Ok(Kind::Other);
            }
            // Peeking returns at once as long as there is something.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(GREETING_WAIT, wait)
        .await
        .unwrap_or(Ok(Kind::Other))
}

/// TLS whose greeting names the host it is meant for.
async fn carry_tls(
    mut stream: TcpStream,
    server: Option<TcpStream>,
    target: &Target,
    state: &ProxyState,
) -> io::Result<()> {
    let (greeting, named) = match timeout(GREETING_WAIT, read_greeting(&mut stream)).await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => return Err(error),
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    };
    let own_name = target.name.as_str();
    let refusal = match &named {
        Greeting::For(name) if Name::parse(name).is_ok_and(|name| name == target.name) => None,
        Greeting::For(name) => Some((name.as_str(), EgressReason::OtherName)),
        Greeting::Nameless => Some((own_name, EgressReason::OtherName)),
        Greeting::NoTls => Some((own_name, EgressReason::NoTls)),
    };
    if let Some((host, reason)) = refusal {
        state.refuse(host, Some(target.port), reason);
        stream.write_all(&TLS_REFUSED).await?;
        return stream.shutdown().await;
    }
    let mut server = match server {
        Some(server) => server,
        None => dial_for(&stream, target).await?,
    };
    server.write_all(&greeting).await?;
    pump(&mut stream, &mut server).await
}

/// Whom a greeting is for.
#[derive(Debug, PartialEq, Eq)]
enum Greeting {
    For(String),
    Nameless,
    NoTls,
}

/// Reads a ClientHello; gives it back as it came.
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
        // TRUST: commands send what they like; a library that is made for that reads it.
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

/// Passes everything on, both ways, until both have ended.
async fn pump(program: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    copy_bidirectional_with_sizes(program, server, BUFFER_BYTES, BUFFER_BYTES)
        .await
        .map(drop)
}

/// Connects to the host for a program, which learns of a failure as if it had tried itself.
async fn dial_for(stream: &TcpStream, target: &Target) -> io::Result<TcpStream> {
    target.dial().await.inspect_err(|_| reset(stream))
}

/// Ends a connection as a closed port does.
fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}
