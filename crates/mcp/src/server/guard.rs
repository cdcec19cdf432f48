//! Access checks of the HTTP server: bearer token, host names, and origins.

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, Request, Uri};
use std::net::SocketAddr;

/// Bearer token that clients must show. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Minimum length of a token, in characters.
const MIN_CHARS: usize = 16;

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Checks that the text can be a token: printable, without spaces, and long enough.
    ///
    /// # Errors
    /// One sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < MIN_CHARS || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "a token has at least {MIN_CHARS} printable characters and no spaces"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns true if the headers contain the token. The time does not depend on the position of a
    /// difference.
    pub(super) fn is_shown(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return false;
        };
        let Some((scheme, shown)) = value.to_str().ok().and_then(|text| text.split_once(' '))
        else {
            return false;
        };
        scheme.eq_ignore_ascii_case("bearer") && is_same(shown.trim().as_bytes(), self.0.as_bytes())
    }
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut difference = usize::from(one.len() != other.len());
    for (at, byte) in one.iter().enumerate() {
        // The number of steps depends on the length of the shown value alone, so it does not reveal
        // the length of the token.
        difference |= usize::from(byte ^ other[at % other.len().max(1)]);
    }
    std::hint::black_box(difference) == 0
}

/// Returns true if a request names exactly one host, and the target agrees with it (RFC 9112, 3.2).
/// With two names, one could be checked and the other used.
pub(super) fn has_one_host<T>(request: &Request<T>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let target = request.uri().authority();
    target.is_none_or(|target| host.as_bytes() == target.as_str().as_bytes())
}

/// Returns true if the request comes from a web page of this machine.
pub fn has_local_origin(headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else {
        return false;
    };
    let Ok(origin) = Uri::try_from(origin.as_bytes()) else {
        return false;
    };
    matches!(origin.scheme_str(), Some("http" | "https"))
        && matches!(origin.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// Returns the values of the `Host` header that are permitted for a server at this address.
pub fn usual_hosts(addr: SocketAddr) -> Vec<String> {
    let port = addr.port();
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .map(|name| format!("{name}:{port}"))
        .collect();
    if !addr.ip().is_unspecified() && !addr.ip().is_loopback() {
        hosts.push(addr.to_string());
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn is_shown(text: &str) -> bool {
        let token = Token::parse("0123456789abcdef").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(text).unwrap());
        token.is_shown(&headers)
    }

    #[test]
    fn a_request_names_one_host_once() {
        let request = |target: &str, hosts: &[&'static str]| {
            let mut request = Request::builder().uri(target);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            request.body(()).unwrap()
        };
        assert!(has_one_host(&request("/mcp", &["a:1"])));
        assert!(has_one_host(&request("http://a:1/mcp", &["a:1"])));
        for (target, hosts) in [
            ("/mcp", &[][..]),
            ("/mcp", &["a:1", "a:1"]),
            ("/mcp", &["a:1", "evil.test"]),
            ("http://evil.test/mcp", &["a:1"]),
        ] {
            assert!(!has_one_host(&request(target, hosts)), "{target} {hosts:?}");
        }
    }

    #[test]
    fn a_local_origin_is_one_of_this_machine_and_no_other() {
        let is_local = |origins: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for origin in origins {
                headers.append(ORIGIN, HeaderValue::from_static(origin));
            }
            has_local_origin(&headers)
        };
        for origin in [
            "http://localhost",
            "http://localhost:5173",
            "https://127.0.0.1:8080",
            "http://[::1]:3000",
        ] {
            assert!(is_local(&[origin]), "{origin}");
        }
        for origins in [
            &[][..],
            &["null"],
            &["http://localhost.evil.test"],
            &["http://evil.test/localhost"],
            &["file://localhost"],
            &["localhost"],
            &["http://localhost", "http://evil.test"],
        ] {
            assert!(!is_local(origins), "{origins:?}");
        }
    }

    #[test]
    fn only_the_token_itself_is_the_token() {
        assert!(is_shown("Bearer 0123456789abcdef"));
        assert!(is_shown("bearer  0123456789abcdef"));
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0123456789abcdef",
            "Bearer ",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!is_shown(wrong), "{wrong}");
        }
        let token = Token::parse("0123456789abcdef").unwrap();
        assert!(!token.is_shown(&HeaderMap::new()));
        let mut two = HeaderMap::new();
        for _ in 0..2 {
            two.append(
                AUTHORIZATION,
                HeaderValue::from_static("Bearer 0123456789abcdef"),
            );
        }
        assert!(!token.is_shown(&two));
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert!(Token::parse("short").is_err() && Token::parse("with a space in it").is_err());
    }
}
