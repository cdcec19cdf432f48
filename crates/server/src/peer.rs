//! The client of a request: the other end of the connection, or the client that a trusted proxy
//! names in its headers.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// A proxy or a network of proxies, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedProxy(IpNet);

impl FromStr for TrustedProxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network = text.parse::<IpNet>().ok();
        let network = network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        network.map(Self).ok_or_else(|| {
            format!("`{text}` is no address and no network, such as 127.0.0.1 or 10.0.0.0/8")
        })
    }
}

/// Networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` headers are trusted. No
/// other headers are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<TrustedProxy>);

/// Client of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Address of the client. An IPv4-mapped IPv6 address is stored as IPv4.
    pub address: IpAddr,
    /// True if the client uses TLS, to this server or to the proxy.
    pub is_secure: bool,
}

impl TrustedProxies {
    /// Creates a set of trusted proxies.
    pub const fn new(proxies: Vec<TrustedProxy>) -> Self {
        Self(proxies)
    }

    /// Returns true if `address` is that of a proxy.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|proxy| proxy.0.contains(&address))
    }

    /// Returns the client of a request on a connection with `peer`.
    ///
    /// TRUST: any client can send these headers. They count only from a trusted proxy, and then the
    /// last address that is not a proxy's is the client: that one was seen by a proxy itself.
    fn client(&self, peer: Peer, headers: &HeaderMap) -> Peer {
        if !self.contain(peer.address) {
            return peer;
        }
        let mut address = peer.address;
        for named in named_addresses(headers).rev() {
            let Some(named) = named else { break };
            address = named;
            if !self.contain(named) {
                break;
            }
        }
        let proto = headers.get_all(FORWARDED_PROTO).iter().next_back();
        let is_https = proto
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.rsplit(',').next())
            .is_some_and(|word| word.trim().eq_ignore_ascii_case("https"));
        Peer {
            address,
            is_secure: peer.is_secure || is_https,
        }
    }
}

impl Peer {
    /// Creates the client for the other end of a connection.
    pub(crate) fn new(address: IpAddr, is_secure: bool) -> Self {
        Self {
            address: address.to_canonical(),
            is_secure,
        }
    }
}

/// Returns the addresses of `X-Forwarded-For`, the farthest first. None stands for an invalid one.
fn named_addresses(
    headers: &HeaderMap,
) -> impl DoubleEndedIterator<Item = Option<IpAddr>> + use<'_> {
    let values = headers.get_all(FORWARDED_FOR).iter();
    let words = values.flat_map(|value| value.to_str().unwrap_or("?").split(','));
    words.map(|word| parse_address(word.trim()))
}

/// Parses an address with or without a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let parsed = bare.parse::<IpAddr>().ok();
    let parsed = parsed.or_else(|| text.parse::<SocketAddr>().ok().map(|at| at.ip()));
    parsed.map(|address| address.to_canonical())
}

/// Replaces the connection's other end by the client in the request's extensions.
pub(crate) async fn find_client(
    State(proxies): State<Arc<TrustedProxies>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(peer) = request.extensions().get::<Peer>().copied() {
        let client = proxies.client(peer, request.headers());
        request.extensions_mut().insert(client);
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn client(peer: &str, headers: &[(&'static str, &'static str)]) -> (String, bool) {
        let proxies = ["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"];
        let proxies = TrustedProxies::new(proxies.map(|one| one.parse().unwrap()).to_vec());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let found = proxies.client(Peer::new(peer.parse().unwrap(), false), &map);
        (found.address.to_string(), found.is_secure)
    }

    #[test]
    fn a_trusted_proxy_names_its_client_and_nobody_else_does() {
        let told = [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(client("10.1.1.1", &told), ("203.0.113.9".to_owned(), true));
        // The same proxy as a dual-stack socket reports it.
        assert_eq!(
            client("::ffff:10.1.1.1", &told),
            ("203.0.113.9".to_owned(), true)
        );
        assert_eq!(
            client("203.0.113.5", &told),
            ("203.0.113.5".to_owned(), false)
        );
        assert_eq!(client("10.1.1.1", &[]), ("10.1.1.1".to_owned(), false));
    }

    #[test]
    fn proxies_are_named_by_address_or_network() {
        let read = |text: &str| {
            text.parse::<TrustedProxy>()
                .map(|proxy| proxy.0.to_string())
        };
        assert_eq!(read("127.0.0.1").unwrap(), "127.0.0.1/32");
        assert_eq!(read("fd00::/8").unwrap(), "fd00::/8");
        for text in ["", "proxy.example.com", "10.0.0.0/33", "10.0.0.0/", "*"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_client_wrote_itself_stands_before_what_its_proxy_saw() {
        let of = |value| client("10.1.1.1", &[("x-forwarded-for", value)]).0;
        assert_eq!(of("127.0.0.1, 203.0.113.9"), "203.0.113.9");
        assert_eq!(of("198.51.100.7, 203.0.113.9, 192.0.2.1"), "203.0.113.9");
        assert_eq!(of("10.2.2.2, 10.3.3.3"), "10.2.2.2");
        assert_eq!(of("[2001:db8::1]:4711, fd00::2"), "2001:db8::1");
        assert_eq!(of("203.0.113.9:55"), "203.0.113.9");
        // An invalid address ends the chain.
        assert_eq!(of("203.0.113.9, unknown, 10.3.3.3"), "10.3.3.3");
        assert_eq!(of("<script>"), "10.1.1.1");
        let twice = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "203.0.113.9"),
        ];
        assert_eq!(client("10.1.1.1", &twice).0, "203.0.113.9");
    }

    #[test]
    fn of_several_schemes_the_one_that_the_last_proxy_says_counts() {
        let of = |value| client("10.1.1.1", &[("x-forwarded-proto", value)]).1;
        assert!(of("https") && of("HTTPS") && of("http, https"));
        assert!(!of("https, http") && !of("") && !of("httpss"));
    }
}
