//! Rewriting of the heads of preview requests and responses.
//!
//! The program sees a browser that opened it at `http://localhost:PORT`: `Host`, `Origin` and
//! `Referer` all name that origin, so checks that compare them succeed. Redirects to that origin
//! are rewritten to the preview's. Credentials for this server are removed from requests, and
//! headers with effects beyond the preview's own origin from responses.

use super::logins::is_own_cookie;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LOCATION, COOKIE, EXPECT, HOST, LOCATION, ORIGIN, REFERER,
    SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Headers that apply to one connection and are not forwarded (RFC 9110, 7.6.1).
const OF_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
];
/// Headers that reveal the user's address and the route of the request; the sandbox must not see
/// them.
const OF_THE_WAY: [&str; 8] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
];
/// Response headers with effects beyond the preview's origin: on how other hosts or later visits
/// are reached, or on what the browser stores for the whole domain.
const BEYOND_ORIGIN: [&str; 5] = [
    "alt-svc",
    "clear-site-data",
    "nel",
    "report-to",
    "strict-transport-security",
];
/// Header that tells the program the origin under which browsers see it.
const PREVIEW_ORIGIN: HeaderName = HeaderName::from_static("glovebox-preview-origin");

/// Names of a preview, as seen by the browser and by the program.
#[derive(Debug)]
pub(super) struct Heads {
    /// Origin of the preview, such as `http://3000-s-5gv555ah3z.localhost:8484`.
    outside: String,
    /// `Host` that the program sees, such as `localhost:3000`.
    inside: String,
    port: u16,
}

impl Heads {
    pub(super) fn new(outside: String, port: u16) -> Self {
        let inside = if port == 80 {
            "localhost".to_owned()
        } else {
            format!("localhost:{port}")
        };
        Self {
            outside,
            inside,
            port,
        }
    }

    /// Returns the preview's origin, as the browser sees it.
    pub(super) fn origin(&self) -> &str {
        &self.outside
    }

    /// Rewrites the head of a request for the program. `Authorization` is forwarded only if it is
    /// meant for the program.
    pub(super) fn make_request(&self, headers: &mut HeaderMap, has_own_authorization: bool) {
        // Before the headers of the connection are removed: it looks at two of them.
        let is_websocket = is_websocket(headers);
        remove_of_connection(headers);
        for name in OF_THE_WAY {
            headers.remove(name);
        }
        // This server has already answered the expectation.
        headers.remove(EXPECT);
        if !has_own_authorization {
            headers.remove(AUTHORIZATION);
        }
        replace_all(headers, &COOKIE, without_own_cookies);
        for name in [ORIGIN, REFERER] {
            replace_all(headers, &name, |value| Some(self.led_inside(value)));
        }
        insert(headers, HOST, &self.inside);
        insert(headers, PREVIEW_ORIGIN, &self.outside);
        if is_websocket {
            set_websocket(headers);
        } else {
            // Each request has its own connection.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Rewrites the head of a response for the browser.
    pub(super) fn make_answer(&self, headers: &mut HeaderMap) {
        remove_of_connection(headers);
        for name in BEYOND_ORIGIN {
            headers.remove(name);
        }
        replace_all(headers, &SET_COOKIE, host_only);
        for name in [LOCATION, CONTENT_LOCATION] {
            replace_all(headers, &name, |value| Some(self.led_outside(value)));
        }
    }

    /// Replaces the preview's origin in an address by the program's.
    fn led_inside(&self, value: &HeaderValue) -> HeaderValue {
        let rest = rest_of_origin(value.as_bytes(), self.outside.as_bytes());
        match rest {
            Some(rest) => joined(&format!("http://{}", self.inside), rest),
            None => value.clone(),
        }
    }

    /// Replaces the program's origin in an address by the preview's.
    fn led_outside(&self, value: &HeaderValue) -> HeaderValue {
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            let mut origins = vec![format!("http://{host}:{}", self.port)];
            if self.port == 80 {
                origins.push(format!("http://{host}"));
            }
            for origin in origins {
                if let Some(rest) = rest_of_origin(value.as_bytes(), origin.as_bytes()) {
                    return joined(&self.outside, rest);
                }
            }
        }
        value.clone()
    }
}

/// Returns true if a head requests a WebSocket or confirms one (RFC 6455, 4).
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let has = |name: HeaderName, word: &str| {
        let values = headers.get_all(name).iter();
        let mut values = values.filter_map(|value| value.to_str().ok());
        values.any(|value| {
            value
                .split(',')
                .any(|one| one.trim().eq_ignore_ascii_case(word))
        })
    };
    has(CONNECTION, "upgrade") && has(UPGRADE, "websocket")
}

/// Sets the headers that turn a connection into a WebSocket. They apply to one hop, so they are set
/// again for each.
pub(super) fn set_websocket(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // A host name is a valid header value.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn remove_of_connection(headers: &mut HeaderMap) {
    let named = headers.get_all(CONNECTION).iter();
    let named = named.filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> = named
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

/// Replaces each value of a header with the result of `replace`; None removes the value.
fn replace_all(
    headers: &mut HeaderMap,
    name: &HeaderName,
    replace: impl Fn(&HeaderValue) -> Option<HeaderValue>,
) {
    let values: Vec<HeaderValue> = headers.get_all(name).iter().filter_map(replace).collect();
    headers.remove(name);
    for value in values {
        headers.append(name, value);
    }
}

/// Returns a `Cookie` header without the logins of this server. None if no cookie is left.
fn without_own_cookies(value: &HeaderValue) -> Option<HeaderValue> {
    let pairs = value.as_bytes().split(|byte| *byte == b';');
    let kept: Vec<&[u8]> = pairs
        .map(<[u8]>::trim_ascii)
        .filter(|pair| !pair.is_empty() && !is_own_cookie(cookie_name(pair)))
        .collect();
    if kept.is_empty() {
        return None;
    }
    HeaderValue::from_bytes(&kept.join(&b"; "[..])).ok()
}

/// Returns a `Set-Cookie` header limited to the preview's own host. None if it would replace a
/// login cookie.
fn host_only(value: &HeaderValue) -> Option<HeaderValue> {
    let mut parts = value.as_bytes().split(|byte| *byte == b';');
    let pair = parts.next()?;
    if is_own_cookie(cookie_name(pair)) {
        return None;
    }
    let is_domain = |part: &&[u8]| cookie_name(part).eq_ignore_ascii_case(b"domain");
    let mut kept = vec![pair];
    kept.extend(parts.filter(|part| !is_domain(part)));
    HeaderValue::from_bytes(&kept.join(&b';')).ok()
}

/// Returns the part before the first `=`. Without `=` the whole pair counts as the name, since
/// browsers treat it as a cookie without a name.
fn cookie_name(pair: &[u8]) -> &[u8] {
    let end = pair.iter().position(|byte| *byte == b'=');
    pair.get(..end.unwrap_or(pair.len()))
        .unwrap_or_default()
        .trim_ascii()
}

/// Returns the rest of an address after `origin`: empty, or a path, query or fragment. None if the
/// address has another origin.
fn rest_of_origin<'a>(address: &'a [u8], origin: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = address.split_at_checked(origin.len())?;
    let is_origin = start.eq_ignore_ascii_case(origin)
        && matches!(rest.first(), None | Some(b'/' | b'?' | b'#'));
    is_origin.then_some(rest)
}

fn joined(origin: &str, rest: &[u8]) -> HeaderValue {
    // Parts of valid header values form a valid value.
    HeaderValue::from_bytes(&[origin.as_bytes(), rest].concat())
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTSIDE: &str = "http://3000-s-a.localhost:8484";

    fn heads() -> Heads {
        Heads::new(OUTSIDE.to_owned(), 3000)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    /// Returns all values of a header.
    fn all<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
        let values = headers.get_all(name).iter();
        values.map(|value| value.to_str().unwrap()).collect()
    }

    #[test]
    fn no_login_goes_in() {
        let mut got = headers(&[
            ("cookie", "a=1; glovebox=secret; b=2"),
            ("cookie", "glovebox-preview=secret"),
            (
                "cookie",
                "__Host-glovebox=secret;__Host-glovebox-preview=secret; glovebox2=3;; c",
            ),
            ("authorization", "Bearer secret"),
            ("proxy-authorization", "Basic secret"),
        ]);
        heads().make_request(&mut got, false);
        assert_eq!(all(&got, "cookie"), ["a=1; b=2", "glovebox2=3; c"]);
        assert!(!format!("{got:?}").contains("secret"));
        let mut own = headers(&[("authorization", "Basic YTpi")]);
        heads().make_request(&mut own, true);
        assert_eq!(all(&own, "authorization"), ["Basic YTpi"]);
    }

    #[test]
    fn a_program_meets_a_browser_at_its_own_address() {
        let mut got = headers(&[
            ("host", "3000-s-a.localhost:8484"),
            ("origin", OUTSIDE),
            ("referer", "http://3000-s-a.localhost:8484/a?b"),
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-host", "evil.test"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ]);
        heads().make_request(&mut got, false);
        assert_eq!(all(&got, "host"), ["localhost:3000"]);
        assert_eq!(all(&got, "origin"), ["http://localhost:3000"]);
        assert_eq!(all(&got, "referer"), ["http://localhost:3000/a?b"]);
        assert_eq!(all(&got, "glovebox-preview-origin"), [OUTSIDE]);
        assert_eq!(all(&got, "connection"), ["close"]);
        assert_eq!(got.len(), 6, "{got:?}");
        let mut other = headers(&[("origin", "http://3000-s-a.localhost:84840")]);
        heads().make_request(&mut other, false);
        assert_eq!(all(&other, "origin"), ["http://3000-s-a.localhost:84840"]);
    }

    #[test]
    fn a_websocket_is_asked_for_and_nothing_else_is() {
        let mut got = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
        ]);
        heads().make_request(&mut got, false);
        assert_eq!(all(&got, "connection"), ["Upgrade"]);
        assert_eq!(all(&got, "upgrade"), ["websocket"]);
        let mut other = headers(&[
            ("connection", "Upgrade, HTTP2-Settings"),
            ("upgrade", "h2c"),
        ]);
        heads().make_request(&mut other, false);
        assert_eq!(all(&other, "connection"), ["close"]);
        assert!(!other.contains_key("upgrade"));
    }

    #[test]
    fn an_answer_stays_with_its_own_origin() {
        let mut got = headers(&[
            ("set-cookie", "a=1; Path=/; domain = localhost; HttpOnly"),
            ("set-cookie", "glovebox=x; Path=/"),
            ("set-cookie", "__Host-glovebox-preview=x; Path=/; Secure"),
            ("set-cookie", "b=domain=c"),
            ("strict-transport-security", "max-age=1; includeSubDomains"),
            ("clear-site-data", "\"*\""),
            ("alt-svc", "h3=\"evil.test:443\""),
            ("keep-alive", "timeout=5"),
            ("content-type", "text/html"),
        ]);
        heads().make_answer(&mut got);
        assert_eq!(
            all(&got, "set-cookie"),
            ["a=1; Path=/; HttpOnly", "b=domain=c"]
        );
        assert_eq!(got.len(), 3, "{got:?}");
    }

    #[test]
    fn a_redirect_to_the_program_leads_to_the_preview() {
        for (port, location, expected) in [
            (3000, "http://localhost:3000/a?b#c", "http://out/a?b#c"),
            (3000, "HTTP://LocalHost:3000", "http://out"),
            (3000, "http://127.0.0.1:3000?x", "http://out?x"),
            (3000, "http://[::1]:3000/", "http://out/"),
            (80, "http://localhost/a", "http://out/a"),
            (3000, "/login", "/login"),
            (3000, "http://localhost:30000/", "http://localhost:30000/"),
            (
                3000,
                "http://localhost:3000.evil.test/",
                "http://localhost:3000.evil.test/",
            ),
            (3000, "https://example.com/", "https://example.com/"),
        ] {
            let mut got = headers(&[("location", location)]);
            Heads::new("http://out".to_owned(), port).make_answer(&mut got);
            assert_eq!(all(&got, "location"), [expected], "{location}");
        }
    }
}
