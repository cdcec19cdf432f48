//! What changes in the head of a request on its way to the program inside, and in that of its answer.
//!
//! The program meets a browser that has it open at `http://localhost:PORT`: `Host`, `Origin` and `Referer` say so, and
//! nothing says otherwise, so that checks of an application that compares them hold. Its redirects to that address are
//! led back to the preview. Whatever lets somebody into this server stays outside, and no answer reaches beyond the
//! preview's own origin.

use super::logins::is_own_cookie;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LOCATION, COOKIE, EXPECT, HOST, LOCATION, ORIGIN, REFERER,
    SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Headers of one connection and not of what is passed on (RFC 9110, 7.6.1).
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
/// Where a user is and how the request came, which is not the sandbox's business.
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
/// What an answer could say about more than its own origin: how other hosts or later visits are reached, and what the
/// browser keeps for the whole domain.
const BEYOND_ORIGIN: [&str; 5] = [
    "alt-svc",
    "clear-site-data",
    "nel",
    "report-to",
    "strict-transport-security",
];
/// Tells the program the address under which browsers have it.
const PREVIEW_ORIGIN: HeaderName = HeaderName::from_static("glovebox-preview-origin");

/// What a preview is called outside and inside.
#[derive(Debug)]
pub(super) struct Heads {
    /// Its origin, such as `http://3000-s-5gv555ah3z.localhost:8484`.
    outside: String,
    /// `Host` of the program, such as `localhost:3000`.
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

    /// The preview's own origin, as browsers have it.
    pub(super) fn origin(&self) -> &str {
        &self.outside
    }

    /// Makes the head of a request what the program gets. `Authorization` goes in only if it is the program's own.
    pub(super) fn make_request(&self, headers: &mut HeaderMap, has_own_authorization: bool) {
        let is_websocket = is_websocket(headers);
        remove_of_connection(headers);
        for name in OF_THE_WAY {
            headers.remove(name);
        }
        // It has been answered here.
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
            // Each request has a connection of its own.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Makes the head of an answer what the browser gets.
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

    /// An address of the preview becomes one of the program.
    fn led_inside(&self, value: &HeaderValue) -> HeaderValue {
        let rest = rest_of_origin(value.as_bytes(), self.outside.as_bytes());
        match rest {
            Some(rest) => joined(&format!("http://{}", self.inside), rest),
            None => value.clone(),
        }
    }

    /// An address of the program becomes one of the preview.
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

/// Whether a head asks for a WebSocket, or says that it is one now (RFC 6455, 4).
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

/// Says that a connection becomes a WebSocket, which is between two neighbours.
pub(super) fn set_websocket(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // A host name is a header value.
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

/// Replaces each value of a header by what `replace` makes of it, or by nothing.
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

/// A `Cookie` header without the logins of this server.
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

/// A `Set-Cookie` header for the preview's own host alone; `None` for one that would stand in a login's place.
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

/// What stands before the first `=`. A pair without one is a cookie without a name to browsers.
fn cookie_name(pair: &[u8]) -> &[u8] {
    let end = pair.iter().position(|byte| *byte == b'=');
    pair.get(..end.unwrap_or(pair.len()))
        .unwrap_or_default()
        .trim_ascii()
}

/// What follows an origin in an address: nothing, a path, a query or a fragment.
fn rest_of_origin<'a>(address: &'a [u8], origin: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = address.split_at_checked(origin.len())?;
    let is_origin = start.eq_ignore_ascii_case(origin)
        && matches!(rest.first(), None | Some(b'/' | b'?' | b'#'));
    is_origin.then_some(rest)
}

fn joined(origin: &str, rest: &[u8]) -> HeaderValue {
    // Parts of header values are one.
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

    /// All values of a header.
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
