//! A host that a connection may go to, with the addresses that were checked.

use crate::ConnectFailure;
use crate::policy::name::Host;
use crate::record::meter::Meter;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server may take to be connected to, over all its addresses.
const DIAL_WAIT: Duration = Duration::from_secs(15);

/// Where a connection goes.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
    /// Counts what is carried there.
    pub(crate) meter: Arc<Meter>,
}

impl Target {
    /// Connects to the first of its addresses that answers. Why none did stands in the log.
    pub(crate) async fn dial(&self) -> io::Result<TcpStream> {
        let dialled = dial(&self.addresses, self.port).await;
        match &dialled {
            Ok(_) => self.meter.connected(),
            Err(error) => self.meter.fail(ConnectFailure::from(error)),
        }
        dialled
    }

    /// Whether `HOST[:PORT]`, as it stands in a request, is this one.
    pub(crate) fn is_named(&self, authority: &str) -> bool {
        // A client may leave out the port of another scheme as well; the connection says which it is.
        split_authority(authority).is_some_and(|(host, port)| {
            host == self.host && port.is_none_or(|port| port == self.port)
        })
    }
}

/// Connects to the first of these addresses that answers.
pub(crate) async fn dial(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
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

/// The host and the port of `HOST[:PORT]` (RFC 3986, 3.2, without user information).
pub(crate) fn split_authority(text: &str) -> Option<(Host, Option<u16>)> {
    // The colons of an address of version 6 stand within brackets.
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
