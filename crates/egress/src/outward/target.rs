//! Allowed host with its checked addresses, and the connections to it.

use crate::ConnectFailure;
use crate::outward::upstream::{HttpConnection, Upstream};
use crate::policy::name::Host;
use crate::record::meter::Meter;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum time to connect to a server, over all its addresses.
const DIAL_WAIT: Duration = Duration::from_secs(15);
/// Default port of `http:` (RFC 9110, 4.2.1).
const HTTP_PORT: u16 = 80;

/// Destination of one connection of a program.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) route: Route,
    /// Counts the bytes that are transferred.
    pub(crate) meter: Arc<Meter>,
}

/// Addresses and proxies through which a host is reached.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    /// Addresses that may be dialled. Empty if only the machine's proxy may resolve the name.
    pub(crate) addresses: Vec<IpAddr>,
    /// The machine's proxies. `None` if the host is reached directly.
    pub(crate) upstream: Option<Arc<Upstream>>,
}

impl Target {
    /// Connects for TLS and other protocols. Writes a failure to the log.
    pub(crate) async fn dial(&self) -> io::Result<TcpStream> {
        let dialled = self.route.dial(&self.host, self.port).await;
        self.note(&dialled);
        dialled
    }

    /// Connects for HTTP without TLS. Writes a failure to the log.
    pub(crate) async fn dial_http(&self) -> io::Result<HttpConnection> {
        let dialled = self.route.dial_http(&self.host, self.port).await;
        self.note(&dialled);
        dialled
    }

    /// Connects for a program that requests a tunnel. `None` if the tunnel carries HTTP through a
    /// proxy of the machine, where each request makes the connection it needs.
    pub(crate) async fn dial_for_tunnel(&self) -> io::Result<Option<TcpStream>> {
        if self.port == HTTP_PORT && self.route.upstream.is_some() {
            return Ok(None);
        }
        self.dial().await.map(Some)
    }

    fn note<T>(&self, dialled: &io::Result<T>) {
        match dialled {
            Ok(_) => self.meter.connected(),
            Err(error) => self.meter.fail(ConnectFailure::from(error)),
        }
    }

    /// Returns true if `HOST[:PORT]` of a request names this host and port.
    pub(crate) fn is_named(&self, authority: &str) -> bool {
        // The port is optional even if it is not the default of the scheme: some clients omit it,
        // and the connection determines it.
        split_authority(authority).is_some_and(|(host, port)| {
            host == self.host && port.is_none_or(|port| port == self.port)
        })
    }
}

impl Route {
    /// Connects for TLS and other protocols: through the machine's proxy, or to the first address
    /// that answers.
    pub(crate) async fn dial(&self, host: &Host, port: u16) -> io::Result<TcpStream> {
        let proxied = self.upstream.as_ref().and_then(|upstream| {
            let proxy = upstream.proxies().for_tunnel(host, port)?;
            Some((upstream, proxy))
        });
        match proxied {
            Some((upstream, proxy)) => Ok(upstream.open_tunnel(proxy, host, port).await?),
            None => self.dial_directly(port).await,
        }
    }

    /// Connects for HTTP without TLS: through the machine's proxy, or to the first address that
    /// answers.
    pub(crate) async fn dial_http(&self, host: &Host, port: u16) -> io::Result<HttpConnection> {
        let proxied = self.upstream.as_ref().and_then(|upstream| {
            let proxy = upstream.proxies().for_http(host, port)?;
            Some((upstream, proxy))
        });
        match proxied {
            Some((upstream, proxy)) => Ok(upstream.open_http(proxy, host, port).await?),
            None => Ok(HttpConnection {
                stream: self.dial_directly(port).await?,
                proxy: None,
            }),
        }
    }

    /// Returns the machine's proxy for this host and port as `HOST:PORT (VARIABLE)`. `None` if the
    /// host is reached directly.
    pub(crate) fn shown_proxy(&self, host: &Host, port: u16) -> Option<String> {
        let proxies = self.upstream.as_ref()?.proxies();
        let proxy = match port {
            HTTP_PORT => proxies.for_http(host, port),
            _ => proxies.for_tunnel(host, port),
        };
        proxy.map(|proxy| proxy.shown())
    }

    async fn dial_directly(&self, port: u16) -> io::Result<TcpStream> {
        if self.addresses.is_empty() {
            // The route has no addresses if a proxy may resolve the name. That proxy is for the
            // other kind of connection, so that this one cannot be made.
            return Err(ConnectFailure::UnknownName.into());
        }
        dial(&self.addresses, port).await
    }
}

/// Connects to the first address that answers. Returns the error of the last one if none does.
async fn dial(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let all = async {
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match TcpStream::connect(SocketAddr::new(*address, port)).await {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    };
    timeout(DIAL_WAIT, all)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Parses `HOST[:PORT]` (RFC 3986, 3.2, without user information). `None` if it is invalid.
pub(crate) fn split_authority(text: &str) -> Option<(Host, Option<u16>)> {
    // A colon before a closing bracket is part of an IPv6 address.
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port = match port {
        None => None,
        Some(digits) => {
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            Some(digits.parse().ok().filter(|_| is_plain)?)
        }
    };
    Host::parse(host).ok().map(|host| (host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_has_one_host_and_at_most_one_port() {
        for (text, host, port) in [
            ("a.example", "a.example", None),
            ("A.example.:443", "a.example", Some(443)),
            ("[2001:db8::1]", "[2001:db8::1]", None),
            ("[2001:db8::1]:80", "[2001:db8::1]", Some(80)),
            ("192.0.2.1:8080", "192.0.2.1", Some(8080)),
        ] {
            let (found, found_port) = split_authority(text).unwrap();
            assert_eq!(
                (found.to_string().as_str(), found_port),
                (host, port),
                "{text}"
            );
        }
        for text in [
            "",
            ":80",
            "a:",
            "a:+80",
            "a:65536",
            "a:80:80",
            "me@a.example",
            "a.example@b.example:80",
            "a.example/x",
            "a%00.example",
            "a\0.example",
            "a b.example",
            "2001:db8::1",
            "[2001:db8::1",
            "0x7f000001",
            "127.1:80",
        ] {
            assert_eq!(split_authority(text), None, "{text:?}");
        }
    }
}
