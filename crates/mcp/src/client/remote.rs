//! Connection to a server over streamable HTTP.

use super::MAX_MESSAGE_BYTES;
use super::http::HttpClient;
use glovebox_proto::{Code, Fault};
use http::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::collections::HashMap;

/// Address of a server, and the headers of every request. `Debug` does not show header values.
#[derive(Debug, Clone)]
pub struct HttpEndpoint {
    url: String,
    headers: HashMap<HeaderName, HeaderValue>,
}

impl HttpEndpoint {
    /// Checks and stores an address and headers.
    ///
    /// # Errors
    /// One sentence without header values: an invalid address or header, or headers that would be
    /// sent unencrypted to another machine.
    pub fn new(url: &str, headers: &[(String, String)]) -> Result<Self, String> {
        check_url(url)?;
        if !headers.is_empty() && url.starts_with("http:") && !is_here(url) {
            return Err(
                "headers would travel in the clear; use https, or a server on this machine"
                    .to_owned(),
            );
        }
        let mut found = HashMap::new();
        for (name, value) in headers {
            let key: HeaderName = name
                .parse()
                .map_err(|_| format!("`{}` is not a header", name.escape_debug()))?;
            let mut value = HeaderValue::from_str(value.trim()).map_err(|_| {
                format!("the value of the header `{name}` has characters that no header has")
            })?;
            value.set_sensitive(true);
            found.insert(key, value);
        }
        Ok(Self {
            url: url.to_owned(),
            headers: found,
        })
    }

    /// Removes the address from `text`: it may contain a secret.
    pub(super) fn hide(&self, text: &str) -> String {
        text.replace(&self.url, "its address")
    }
}

/// Checks that this is the address of a server. Addresses are shown to users, so one with a user
/// name or password is refused.
///
/// # Errors
/// One sentence with the reason.
pub fn check_url(url: &str) -> Result<(), String> {
    let uri: http::Uri = url
        .parse()
        .map_err(|_| "it is not an address; write https://HOST/mcp".to_owned())?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    if !is_web || authority.is_empty() {
        return Err("it is not an address; write https://HOST/mcp".to_owned());
    }
    if authority.contains('@') {
        return Err(
            "it has a name or password in it; use `bearer_env` or `headers_env`".to_owned(),
        );
    }
    Ok(())
}

fn is_here(url: &str) -> bool {
    let host = url.parse::<http::Uri>().ok();
    let host = host.as_ref().and_then(http::Uri::host).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |addr: std::net::IpAddr| addr.is_loopback();
    host == "localhost" || host.parse().is_ok_and(is_loopback)
}

pub(super) fn transport(
    address: &HttpEndpoint,
) -> Result<StreamableHttpClientTransport<HttpClient>, Fault> {
    let client = glovebox_agent::http_client(&address.url).map_err(|error| {
        Fault::failed(
            Code::Unavailable,
            format!("connections to MCP servers cannot be made: {error}"),
        )
    })?;
    let config = StreamableHttpClientTransportConfig::with_uri(address.url.as_str())
        .custom_headers(address.headers.clone())
        .max_sse_event_size(MAX_MESSAGE_BYTES);
    Ok(StreamableHttpClientTransport::with_client(
        HttpClient::new(client),
        config,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_travel_in_the_clear_and_are_not_shown() {
        let headers = [("Authorization".to_owned(), "Bearer planted-1234".to_owned())];
        for url in [
            "https://example.com/mcp",
            "http://127.0.0.1:1/mcp",
            "http://[::1]:1/mcp",
            "http://localhost/mcp",
        ] {
            let address = HttpEndpoint::new(url, &headers).unwrap();
            assert!(!format!("{address:?}").contains("planted"));
        }
        for url in [
            "http://example.com/mcp",
            "http://127.0.0.1.example.com/mcp",
            "http://localhost.example.com/",
        ] {
            assert!(HttpEndpoint::new(url, &headers).is_err(), "{url}");
            assert!(HttpEndpoint::new(url, &[]).is_ok(), "{url}");
        }
        for url in ["", "x", "ftp://a/b", "/mcp", "https://me:pw@example.com/"] {
            assert!(HttpEndpoint::new(url, &[]).is_err(), "{url}");
        }
        let wrong = [("X-Key".to_owned(), "planted\n1234".to_owned())];
        let error = HttpEndpoint::new("https://a/", &wrong).unwrap_err();
        assert!(!error.contains("planted"), "{error}");
    }
}
