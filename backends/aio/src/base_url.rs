//! The address of a service: https, or http to loopback and private addresses.

use glovebox_proto::{Code, Fault, visible};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Base URL of an AIO Sandbox, with its path prefix. It holds no credential, so it may be
/// displayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// Text of the URL, without a slash at its end.
    text: String,
    is_https: bool,
    is_loopback: bool,
}

impl BaseUrl {
    /// Parses a base URL.
    ///
    /// # Errors
    /// `invalid-argument` if it is no URL of http or https, has user, password, query or fragment,
    /// or is http to an address that is neither loopback nor private. The message repeats no part
    /// that may be a credential.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let invalid =
            |why: &str| Fault::failed(Code::InvalidArgument, format!("invalid base URL: {why}"));
        let url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it holds a user or a password")
                .remedy("give the key in AIO_API_KEY or in a file"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it has a query or a fragment")
                .remedy("give the key in AIO_API_KEY or in a file"));
        }
        let Some(host) = url.host_str() else {
            return Err(invalid("it names no host"));
        };
        let address = host_address(host);
        let is_https = match url.scheme() {
            "https" => true,
            "http" if address.is_none_or(is_private) => false,
            "http" => {
                let why = format!(
                    "http to {}, which is a public address",
                    visible::line_of_text(host)
                );
                return Err(invalid(&why).remedy("use https"));
            }
            _ => return Err(invalid("it begins neither with https:// nor with http://")),
        };
        Ok(Self {
            text: url.as_str().trim_end_matches('/').to_owned(),
            is_https,
            is_loopback: host == "localhost"
                || address.is_some_and(|address| address.is_loopback()),
        })
    }

    /// Returns the URL of an endpoint, whose path begins with a slash.
    pub(crate) fn endpoint(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }

    pub(crate) fn is_https(&self) -> bool {
        self.is_https
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.is_loopback
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible::line_of_text(&self.text))
    }
}

/// Returns the address that the host of a URL denotes. None if it is a name.
fn host_address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// Returns true for loopback, private, link-local and shared (100.64.0.0/10) addresses.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let is_shared = a == 100 && b & 0b1100_0000 == 64;
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || is_shared
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_private(IpAddr::V4(v4)),
            None => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
        },
    }
}

/// Resolver that accepts names with private addresses only: a key must not cross a public network
/// unencrypted.
#[derive(Debug)]
pub(crate) struct PrivateAddresses;

impl Resolve for PrivateAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if found.iter().any(|address| !is_private(address.ip())) {
                return Err("http to a name with a public address; use https".into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_keeps_its_prefix_and_shows_no_credential() {
        let url = BaseUrl::parse("https://box.example/sandboxes/7/").unwrap();
        assert_eq!(
            url.endpoint("/v1/sandbox"),
            "https://box.example/sandboxes/7/v1/sandbox"
        );
        for planted in [
            "https://user:planted@box.example",
            "https://box.example/?api_key=planted",
        ] {
            let fault = BaseUrl::parse(planted).unwrap_err();
            assert!(!format!("{fault:?}").contains("planted"), "{fault:?}");
        }
        for bad in [
            "box.example",
            "ftp://box.example",
            "file:///tmp",
            "https://",
        ] {
            assert!(BaseUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn http_is_for_private_addresses() {
        for private in [
            "127.0.0.1:1",
            "localhost",
            "10.1.2.3",
            "192.168.1.1",
            "[::1]:8080",
            "[fd00::1]",
            "aio:8080",
        ] {
            BaseUrl::parse(&format!("http://{private}")).unwrap();
        }
        for public in ["8.8.8.8", "[2001:db8::1]", "[::ffff:8.8.8.8]", "172.32.0.1"] {
            assert!(
                BaseUrl::parse(&format!("http://{public}")).is_err(),
                "{public}"
            );
        }
    }
}
