//! TLS to a host that has a secret. The server's certificate is checked against those that this
//! machine trusts before any data is sent.

use crate::outward::target::Target;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// ALPN identifier of HTTP/2 (RFC 9113, 3.1).
pub(crate) const HTTP2: &[u8] = b"h2";
/// ALPN identifier of HTTP/1.1 (RFC 7301, 6).
pub(crate) const HTTP1: &[u8] = b"http/1.1";
/// Maximum time for a TLS handshake.
const GREETING_WAIT: Duration = Duration::from_secs(15);

/// Returns the TLS configuration for all hosts.
pub(crate) fn config(roots: RootCertStore) -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// TLS to one host with one application protocol.
#[derive(Clone)]
pub(crate) struct TlsClient {
    connector: TlsConnector,
    name: ServerName<'static>,
    protocol: Option<Vec<u8>>,
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsClient({:?})", self.name)
    }
}

impl TlsClient {
    /// Makes the first connection, offering `protocols`. Later connections offer only the one that
    /// the server chose.
    pub(crate) async fn begin(
        config: &ClientConfig,
        target: &Target,
        protocols: Vec<Vec<u8>>,
        stream: TcpStream,
    ) -> io::Result<(Self, TlsStream<TcpStream>)> {
        let name = ServerName::try_from(target.host.to_string()).map_err(io::Error::other)?;
        let with = |protocols| {
            let mut config = config.clone();
            config.alpn_protocols = protocols;
            TlsConnector::from(Arc::new(config))
        };
        let mut client = Self {
            connector: with(protocols),
            name,
            protocol: None,
        };
        let stream = client.greet(stream).await?;
        client.protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        client.connector = with(client.protocol.clone().into_iter().collect());
        Ok((client, stream))
    }

    /// Makes a further connection.
    ///
    /// # Errors
    /// An I/O error if the handshake fails or the server chooses another protocol than before.
    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let stream = self.greet(stream).await?;
        if stream.get_ref().1.alpn_protocol() != self.protocol.as_deref() {
            return Err(io::Error::other("the server has changed its protocol"));
        }
        Ok(stream)
    }

    /// Returns the protocol that the server has chosen. `None` if it chose none.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.protocol.as_deref()
    }

    /// Returns true if the chosen protocol is HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.protocol() == Some(HTTP2)
    }

    async fn greet(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        timeout(
            GREETING_WAIT,
            self.connector.connect(self.name.clone(), stream),
        )
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
