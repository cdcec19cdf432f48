//! Host and port as users write them: a URL, or `HOST[:PORT]`.

use crate::policy::name::{Host, NameError};
use http::Uri;
use std::str::FromStr;

/// Maximum length of the text, in bytes.
const MAX_BYTES: usize = 8 << 10;
/// Port of a host without port and scheme: that of `https`, which programs use most.
const USUAL_PORT: u16 = 443;
/// Default ports of schemes.
const SCHEMES: &[(&str, u16)] = &[
    ("http", 80),
    ("https", 443),
    ("ws", 80),
    ("wss", 443),
    ("ssh", 22),
    ("git", 9418),
    ("ftp", 21),
];

/// Host and port that a connection would go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Normalized host.
    pub host: Host,
    /// Port of the URL or of its scheme.
    pub port: u16,
}

/// Error of parsing an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The text is too long.
    #[error("it is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// The URL is invalid. Holds the parser's message.
    #[error("it is no URL: {0}")]
    Url(String),
    /// The URL contains a user.
    #[error("it names a user; leave out what stands before the `@`")]
    User,
    /// The scheme has no known default port.
    #[error("the port of `{0}` is not known; write it behind the host")]
    Scheme(String),
    /// The port is invalid.
    #[error("`{0}` is no port; ports are numbers from 1 to 65535")]
    Port(String),
    /// The host is invalid.
    #[error("`{0}` is no host: {1}")]
    Host(String, NameError),
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if text.len() > MAX_BYTES {
            return Err(EndpointError::TooLong);
        }
        if !text.contains("://") {
            return from_authority(text, Some(USUAL_PORT), "");
        }
        let url: Uri = text
            .parse()
            .map_err(|error: http::uri::InvalidUri| EndpointError::Url(error.to_string()))?;
        let scheme = url.scheme_str().unwrap_or_default();
        let port = SCHEMES.iter().find(|(name, _)| *name == scheme);
        let authority = url.authority().map_or("", http::uri::Authority::as_str);
        from_authority(authority, port.map(|(_, port)| *port), scheme)
    }
}

fn from_authority(
    text: &str,
    usual_port: Option<u16>,
    scheme: &str,
) -> Result<Endpoint, EndpointError> {
    if text.contains('@') {
        return Err(EndpointError::User);
    }
    // A colon before a closing bracket is part of an IPv6 address.
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port = match port {
        None => usual_port.ok_or_else(|| EndpointError::Scheme(scheme.to_owned()))?,
        Some(port) => {
            let is_plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
            port.parse()
                .ok()
                .filter(|_| is_plain)
                .ok_or_else(|| EndpointError::Port(port.to_owned()))?
        }
    };
    Host::parse(host)
        .map(|host| Endpoint { host, port })
        .map_err(|error| EndpointError::Host(host.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_hosts_lead_to_one_place() {
        for (text, host, port) in [
            ("example.com", "example.com", 443),
            ("Example.com:8080", "example.com", 8080),
            ("https://example.com", "example.com", 443),
            ("http://example.com/a:b@c?d#e", "example.com", 80),
            ("HTTPS://EXAMPLE.com./", "example.com", 443),
            ("wss://example.com:8443/x", "example.com", 8443),
            ("ssh://git.example/repo", "git.example", 22),
            ("foo://a.example:7/", "a.example", 7),
            ("http://[2001:db8::1]:81/", "[2001:db8::1]", 81),
            ("[2001:db8::1]", "[2001:db8::1]", 443),
            ("http://192.0.2.1/", "192.0.2.1", 80),
        ] {
            let found: Endpoint = text.parse().unwrap();
            assert_eq!((found.host.to_string().as_str(), found.port), (host, port));
        }
    }

    #[test]
    fn what_has_two_readings_has_none() {
        for text in [
            "",
            "http://",
            "http:///x",
            "https://user@example.com/",
            "me:secret@example.com",
            "foo://a.example/",
            "a.example:0",
            "a.example:080",
            "a.example:65536",
            "a.example:",
            "a.example/path",
            "http://127.1/",
            "http://0x7f000001/",
            "http://exa mple.com/",
            "http://exa\u{0}mple.com/",
            "2001:db8::1",
            "://a.example",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
        let long = format!("http://a.example/{}", "x".repeat(MAX_BYTES));
        assert_eq!(long.parse::<Endpoint>(), Err(EndpointError::TooLong));
    }
}
