//! Connections through the machine's own proxy. They are tunnels (CONNECT, RFC 9110, 9.3.6). For
//! HTTP without TLS to a host to which the proxy opens no tunnel, requests go to the proxy in
//! absolute form.
//!
//! A tunnel is always a plain stream: TLS to the proxy itself is terminated by a separate task, so
//! that the relay, which peeks and splices, needs to support one kind of connection only.

use crate::ConnectFailure;
use crate::outward::machine_proxy::{MachineProxy, ProxyAddress};
use crate::outward::tls_client;
use crate::peek::peek;
use crate::policy::name::Host;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, IpAddr as ServerAddress, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

/// Maximum time for a connection through a proxy, from resolving its name to its response.
const PROXY_WAIT: Duration = Duration::from_secs(15);
/// Maximum size of the head of a proxy's response, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Maximum number of header fields of that response.
const MAX_FIELDS: usize = 100;
/// Maximum number of remembered hosts to which a proxy opens no tunnel.
const MAX_REMEMBERED: usize = 1000;

/// The machine's proxies as one sandbox uses them.
#[derive(Debug)]
pub(crate) struct Upstream {
    proxies: MachineProxy,
    /// Configuration that checks proxies' certificates. `None` if no proxy speaks TLS.
    tls: Option<Arc<ClientConfig>>,
    /// Hosts to which the proxy opens no tunnel. Requests to them go to the proxy in absolute form.
    without_tunnel: Mutex<HashSet<(Host, u16)>>,
    /// Maximum time for a connection through a proxy.
    wait: Duration,
}

/// Connection for requests without TLS.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    pub(crate) stream: TcpStream,
    /// Proxy that passes the requests on. `None` if the connection leads to the host itself.
    pub(crate) proxy: Option<Arc<ProxyAddress>>,
}

impl Upstream {
    /// Creates the connections' state. `trusted` are certificates (PEM) that a proxy's certificate
    /// is checked against.
    pub(crate) fn new(proxies: MachineProxy, trusted: &[u8]) -> io::Result<Self> {
        let tls = if proxies.speaks_tls() {
            let mut roots = RootCertStore::empty();
            let certificates = CertificateDer::pem_slice_iter(trusted).filter_map(Result::ok);
            roots.add_parsable_certificates(certificates);
            Some(Arc::new(tls_client::config(roots)?))
        } else {
            None
        };
        Ok(Self {
            proxies,
            tls,
            without_tunnel: Mutex::default(),
            wait: PROXY_WAIT,
        })
    }

    pub(crate) const fn proxies(&self) -> &MachineProxy {
        &self.proxies
    }

    /// Opens a tunnel through `proxy` to a host, whose name the proxy resolves.
    pub(crate) async fn open_tunnel(
        &self,
        proxy: &ProxyAddress,
        host: &Host,
        port: u16,
    ) -> Result<TcpStream, ConnectFailure> {
        let tunnel = async {
            let mut stream = self.reach(proxy).await?;
            let answer = ask_for_tunnel(&mut stream, proxy, host, port).await;
            let status = answer.map_err(|_| unreached(proxy))?;
            match status {
                200..=299 => Ok(stream),
                status => Err(ConnectFailure::ProxyRefused {
                    variable: proxy.variable,
                    status,
                }),
            }
        };
        self.within_wait(proxy, tunnel).await
    }

    /// Connects for requests without TLS: through a tunnel, or to the proxy itself if it opens no
    /// tunnel to this host.
    pub(crate) async fn open_http(
        &self,
        proxy: &Arc<ProxyAddress>,
        host: &Host,
        port: u16,
    ) -> Result<HttpConnection, ConnectFailure> {
        let place = (host.clone(), port);
        if !self.without_tunnel().contains(&place) {
            match self.open_tunnel(proxy, host, port).await {
                Ok(stream) => {
                    let proxy = None;
                    return Ok(HttpConnection { stream, proxy });
                }
                Err(failure) if is_without_tunnels(failure) => {
                    let mut without_tunnel = self.without_tunnel();
                    if without_tunnel.len() >= MAX_REMEMBERED {
                        without_tunnel.clear();
                    }
                    without_tunnel.insert(place);
                }
                Err(failure) => return Err(failure),
            }
        }
        let stream = self.within_wait(proxy, self.reach(proxy)).await?;
        Ok(HttpConnection {
            stream,
            proxy: Some(Arc::clone(proxy)),
        })
    }

    /// Connects to a proxy. Its address may be private: the user's environment names it.
    async fn reach(&self, proxy: &ProxyAddress) -> Result<TcpStream, ConnectFailure> {
        let failed = |_: io::Error| unreached(proxy);
        let addresses: Vec<SocketAddr> = match &proxy.host {
            Host::Address(address) => vec![SocketAddr::new(*address, proxy.port)],
            // The system's resolver with its search lists, as for other programs of the machine.
            Host::Name(name) => tokio::net::lookup_host((name.as_str(), proxy.port))
                .await
                .map_err(failed)?
                .collect(),
        };
        let stream = TcpStream::connect(addresses.as_slice()).await;
        let stream = stream.map_err(failed)?;
        let _ = stream.set_nodelay(true);
        if !proxy.is_tls {
            return Ok(stream);
        }
        let tls = self.tls.clone().ok_or_else(|| unreached(proxy))?;
        carry_in_tls(stream, tls, &proxy.host).await.map_err(failed)
    }

    async fn within_wait<T>(
        &self,
        proxy: &ProxyAddress,
        work: impl Future<Output = Result<T, ConnectFailure>>,
    ) -> Result<T, ConnectFailure> {
        let done = timeout(self.wait, work).await;
        done.unwrap_or_else(|_| Err(unreached(proxy)))
    }

    fn without_tunnel(&self) -> MutexGuard<'_, HashSet<(Host, u16)>> {
        let places = self.without_tunnel.lock();
        places.unwrap_or_else(PoisonError::into_inner)
    }
}

const fn unreached(proxy: &ProxyAddress) -> ConnectFailure {
    ConnectFailure::ProxyUnreached {
        variable: proxy.variable,
    }
}

/// Returns true if the proxy may still pass on single requests: many proxies open tunnels for TLS
/// only, and some support none. Other statuses, such as those about credentials or the host, would
/// be the same for a single request.
const fn is_without_tunnels(failure: ConnectFailure) -> bool {
    matches!(
        failure,
        ConnectFailure::ProxyRefused {
            status: 400 | 403 | 404 | 405 | 501,
            ..
        }
    )
}

/// Requests a tunnel and returns the status of the response. Bytes behind the response's head stay
/// unread.
async fn ask_for_tunnel(
    stream: &mut TcpStream,
    proxy: &ProxyAddress,
    host: &Host,
    port: u16,
) -> io::Result<u16> {
    let mut request = Zeroizing::new(String::with_capacity(MAX_HEAD_BYTES));
    let _ = write!(
        *request,
        "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n"
    );
    if let Some(authorization) = &proxy.authorization {
        let _ = write!(
            *request,
            "Proxy-Authorization: {}\r\n",
            authorization.expose()
        );
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;

    let mut bytes = vec![0; MAX_HEAD_BYTES];
    let mut seen = 0;
    loop {
        let length = peek(stream, &mut bytes, seen).await?;
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut answer = httparse::Response::new(&mut fields);
        // TRUST: the proxy may send anything; a head that is invalid or too large is an error.
        let parsed = answer.parse(bytes.get(..length).unwrap_or_default());
        match parsed.map_err(io::Error::other)? {
            httparse::Status::Complete(head) => {
                let status = answer.code.unwrap_or_default();
                stream
                    .read_exact(bytes.get_mut(..head).unwrap_or_default())
                    .await?;
                return Ok(status);
            }
            httparse::Status::Partial if length > seen && length < MAX_HEAD_BYTES => seen = length,
            httparse::Status::Partial => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Terminates TLS over `stream` in a separate task. Returns a stream of the decrypted bytes.
async fn carry_in_tls(
    stream: TcpStream,
    config: Arc<ClientConfig>,
    host: &Host,
) -> io::Result<TcpStream> {
    let name = match host {
        Host::Name(name) => ServerName::try_from(name.to_string()).map_err(io::Error::other)?,
        Host::Address(address) => ServerName::IpAddress(ServerAddress::from(*address)),
    };
    let mut outer = TlsConnector::from(config).connect(name, stream).await?;
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let mut far = UnixStream::from_std(far)?;
    tokio::spawn(async move {
        // An error of either end closes both. The protocol in the tunnel detects missing data
        // itself.
        let _ = tokio::io::copy_bidirectional(&mut outer, &mut far).await;
    });
    // The callers use only operations that a Unix stream socket supports as well.
    TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(near)))
}

#[cfg(test)]
mod tests;
