//! Parsing and validation of a request. Headers that would change its destination or its length are
//! refused here.

use crate::fetch::error::FetchError;
use crate::policy::name::Host;
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;

/// Maximum length of a URL, in bytes.
pub const MAX_URL_BYTES: usize = 8 << 10;
/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;
/// Maximum size of the names and values of all headers of a request, in bytes.
const MAX_HEADER_BYTES: usize = 16 << 10;
/// Methods that a request may have.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];
/// Headers that a request may not set: they select the host, define the framing or coding of the
/// message, or control the connection.
const RESERVED: [&str; 11] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Treatment of a redirect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Redirects {
    /// The redirect is followed if the policy allows its destination.
    #[default]
    Follow,
    /// The redirect is an error.
    Refuse,
    /// The redirect is returned as the response.
    Return,
}

/// Validated HTTP request.
#[derive(Debug, Clone)]
pub struct FetchRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) redirects: Redirects,
}

impl FetchRequest {
    /// Creates a `GET` request without headers and body that follows no redirects.
    pub fn get(url: Url) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            body: Vec::new(),
            redirects: Redirects::Return,
        }
    }

    /// Validates a request from an untrusted author. A character of a header value stands for one
    /// byte, as in `fetch`.
    ///
    /// # Errors
    /// [`FetchError::Request`] with the reason.
    pub fn parse(
        method: &str,
        url: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
        redirects: Redirects,
    ) -> Result<Self, FetchError> {
        let wrong = |reason: String| Err(FetchError::Request(reason));
        let Some(method) = METHODS.into_iter().find(|known| known.as_str() == method) else {
            let known: Vec<&str> = METHODS.iter().map(Method::as_str).collect();
            return wrong(format!("the method is none of {}", known.join(", ")));
        };
        if url.len() > MAX_URL_BYTES {
            return wrong(format!("the address is longer than {MAX_URL_BYTES} bytes"));
        }
        let url = match Url::parse(url) {
            Ok(url) => checked_url(url)?,
            Err(error) => return wrong(format!("the address cannot be read: {error}")),
        };
        if !body.is_empty() && [Method::GET, Method::HEAD].contains(&method) {
            return wrong(format!("a {method} request has no body"));
        }
        Ok(Self {
            method,
            url,
            headers: parse_headers(headers)?,
            body,
            redirects,
        })
    }

    /// Returns the normalized host and the port.
    ///
    /// # Errors
    /// None for a request that [`Self::parse`] has returned.
    pub fn target(&self) -> Result<(Host, u16), FetchError> {
        target(&self.url)
    }
}

/// Checks that a URL has the scheme `http` or `https`, a valid host, and neither user nor password.
pub(crate) fn checked_url(url: Url) -> Result<Url, FetchError> {
    let wrong = |reason: &str| Err(FetchError::Request(format!("the address {reason}")));
    if !matches!(url.scheme(), "http" | "https") {
        return wrong("begins with neither http: nor https:");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong("has a user or a password in it");
    }
    target(&url)?;
    Ok(url)
}

/// Returns the normalized host and the port of a URL.
pub(crate) fn target(url: &Url) -> Result<(Host, u16), FetchError> {
    let name = url.host_str().unwrap_or_default();
    let host = Host::parse(name).map_err(|error| {
        FetchError::Request(format!(
            "the address has no host that can be asked: {error}"
        ))
    })?;
    // Both allowed schemes have a default port, so that the fallback is never used.
    let port = url.port_or_known_default().unwrap_or_default();
    Ok((host, port))
}

fn parse_headers(headers: &[(String, String)]) -> Result<HeaderMap, FetchError> {
    let wrong = |reason: String| Err(FetchError::Request(reason));
    if headers.len() > MAX_HEADERS {
        return wrong(format!("there are more than {MAX_HEADERS} headers"));
    }
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes > MAX_HEADER_BYTES {
        return wrong(format!(
            "the headers have more than {MAX_HEADER_BYTES} bytes"
        ));
    }
    let mut parsed = HeaderMap::new();
    for (name, value) in headers {
        let Ok(key) = HeaderName::from_bytes(name.as_bytes()) else {
            return wrong("a header has a name that no header has".to_owned());
        };
        if RESERVED.contains(&key.as_str()) || key.as_str().starts_with("proxy-") {
            return wrong(format!("the header `{key}` cannot be set"));
        }
        let bytes: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(c).ok()).collect();
        let Some(Ok(value)) = bytes.map(|bytes| HeaderValue::from_bytes(&bytes)) else {
            return wrong(format!(
                "the value of the header `{key}` has characters that no header has"
            ));
        };
        parsed.append(key, value);
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<FetchRequest, String> {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        FetchRequest::parse(method, url, &headers, body.into(), Redirects::Follow)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_would_change_where_a_request_goes_is_refused() {
        for (method, url, headers, body, told) in [
            ("TRACE", "http://a.example/", &[][..], "", "none of GET"),
            ("get", "http://a.example/", &[], "", "none of GET"),
            ("CONNECT", "http://a.example/", &[], "", "none of GET"),
            ("GET", "file:///etc/passwd", &[], "", "neither http"),
            ("GET", "/x", &[], "", "cannot be read"),
            ("GET", "http://ann:pw@a.example/", &[], "", "a user"),
            ("GET", "http://a.example/", &[], "x", "no body"),
            (
                "GET",
                "http://a.example/",
                &[("Host", "b.example")],
                "",
                "`host` cannot",
            ),
            (
                "POST",
                "http://a.example/",
                &[("Content-Length", "0")],
                "x",
                "`content-length`",
            ),
            (
                "POST",
                "http://a.example/",
                &[("Proxy-Authorization", "x")],
                "",
                "`proxy-",
            ),
            (
                "GET",
                "http://a.example/",
                &[("a\r\nb", "x")],
                "",
                "a name that no header",
            ),
            (
                "GET",
                "http://a.example/",
                &[("a", "x\r\nhost: b")],
                "",
                "value of the header `a`",
            ),
            (
                "GET",
                "http://a.example/",
                &[("a", "\u{20ac}")],
                "",
                "value of the header `a`",
            ),
        ] {
            let error = parse(method, url, headers, body).unwrap_err();
            assert!(error.contains(told), "{method} {url}: {error}");
        }
        let many: Vec<(&str, &str)> = vec![("a", "b"); MAX_HEADERS + 1];
        assert!(
            parse("GET", "http://a.example/", &many, "")
                .unwrap_err()
                .contains("more than 64")
        );
        let long = "x".repeat(MAX_HEADER_BYTES);
        assert!(parse("GET", "http://a.example/", &[("a", &long)], "").is_err());
        let long = format!("http://a.example/{}", "x".repeat(MAX_URL_BYTES));
        assert!(parse("GET", &long, &[], "").is_err());
    }

    #[test]
    fn a_host_has_one_spelling_however_it_is_written() {
        for (url, host, port) in [
            ("http://A.Example./x", "a.example", 80),
            ("https://a.example", "a.example", 443),
            ("http://0x7f.1:8080/", "127.0.0.1", 8080),
            ("http://2130706433/", "127.0.0.1", 80),
            ("http://[::ffff:127.0.0.1]/", "127.0.0.1", 80),
        ] {
            let request = parse("GET", url, &[], "").unwrap();
            let (found, found_port) = request.target().unwrap();
            assert_eq!(
                (found.to_string().as_str(), found_port),
                (host, port),
                "{url}"
            );
        }
    }
}
