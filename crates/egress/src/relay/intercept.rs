//! Interception of TLS to a host that has a secret: the program's connection ends here, and another
//! one leads to the server.
//!
//! The handshake with the server comes first. The protocol that it chooses is the only one offered
//! to the program, so that both sides speak the same. A server that is not trusted receives no
//! data, and the program receives a response with the reason.

use crate::outward::target::Target;
use crate::outward::tls_client::{HTTP1, HTTP2, TlsClient};
use crate::policy::name::Host;
use crate::record::log::now_ns;
use crate::relay::http_link::{Link, UpstreamTransport};
use crate::relay::http_relay::{Relay, Requests};
use crate::relay::metered::Metered;
use crate::secrets::interceptor::Interceptor;
use crate::state::ProxyState;
use glovebox_proto::SecretReason;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, Error};
use std::io::{self, Cursor};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;

/// Maximum time for the program's part of the handshake.
const GREETING_WAIT: Duration = Duration::from_secs(30);

/// Relays a connection whose ClientHello has been read and checked. `greeting` holds the bytes of
/// the ClientHello.
pub(crate) async fn carry(
    program: TcpStream,
    greeting: Vec<u8>,
    server: TcpStream,
    target: &Target,
    state: &Arc<ProxyState>,
    interceptor: &Arc<Interceptor>,
) -> io::Result<()> {
    let Host::Name(name) = &target.host else {
        return Err(io::Error::other("a secret is for names only"));
    };
    let begun_ns = now_ns();
    let _place = state.places().tls().await?;
    let program = Metered::new(program, Arc::clone(&target.meter));
    let (reader, writer) = tokio::io::split(program);
    let program = tokio::io::join(Cursor::new(greeting).chain(reader), writer);
    let start = wait(LazyConfigAcceptor::new(Acceptor::default(), program)).await?;
    let mut offered = offered(&start.client_hello());
    // Before the handshake with the server: if no permit is free, the server must not be offered
    // HTTP/2.
    let http2_place = state.places().http2(&mut offered).await?;
    let secret = interceptor
        .secret_for(&target.host, target.port)
        .map_or("", |name| name.as_str());
    // Uses the time of the beginning: a program that exits at once would otherwise be gone before
    // the refusal, which would then not be listed for it.
    let refuse = |reason| state.refuse_secret(secret, target, reason, begun_ns);

    let met = TlsClient::begin(interceptor.client(), target, offered.clone(), server).await;
    let (link, protocol) = match met {
        Ok((client, stream)) => {
            let protocol = client.protocol().map(<[u8]>::to_vec);
            let is_http2 = client.is_http2();
            let link = Link::connected(UpstreamTransport::Tls(client), stream, is_http2).await?;
            (link, protocol)
        }
        Err(error) => {
            let why = match rustls_error(&error) {
                Some(Error::InvalidCertificate(why)) => {
                    refuse(SecretReason::Untrusted);
                    format!("its certificate is not trusted on this machine ({why:?})")
                }
                _ => format!("TLS to it fails: {error}"),
            };
            (
                Link::new(UpstreamTransport::Closed(why)),
                offered.first().cloned(),
            )
        }
    };
    // This follows the handshake with the server: the protocol that the server has chosen is the
    // only one offered.
    let config = server_config(interceptor.authority().certify(name)?, protocol)?;
    let stream = match wait(start.into_stream(config)).await {
        Ok(stream) => stream,
        Err(error) => {
            if let Some(Error::AlertReceived(alert)) = rustls_error(&error)
                && is_distrust(*alert)
            {
                refuse(SecretReason::Distrusted);
            }
            return Err(error);
        }
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    let _http2_place = http2_place.filter(|_| is_http2);
    let relay = Relay::new(target, state, link, Some(Arc::clone(interceptor)));
    if is_http2 {
        relay.serve_http2(stream).await
    } else {
        relay.serve(stream, Requests::Many).await
    }
}

async fn wait<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(GREETING_WAIT, work)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Returns the protocols of the ClientHello that the relay supports.
fn offered(hello: &ClientHello<'_>) -> Vec<Vec<u8>> {
    let is_known = |protocol: &&[u8]| [HTTP1, HTTP2].contains(protocol);
    hello
        .alpn()
        .into_iter()
        .flatten()
        .filter(is_known)
        .map(<[u8]>::to_vec)
        .collect()
}

fn rustls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns true if the program has rejected the certificate.
fn is_distrust(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
    )
}

/// Resolver that returns one certificate for every name: the name was checked before.
#[derive(Debug)]
struct OneKey(Arc<CertifiedKey>);

impl ResolvesServerCert for OneKey {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn server_config(
    key: Arc<CertifiedKey>,
    protocol: Option<Vec<u8>>,
) -> io::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(OneKey(key)));
    config.alpn_protocols = protocol.into_iter().collect();
    Ok(Arc::new(config))
}
