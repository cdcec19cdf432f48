//! HTTP headers by which a program and a server could agree on something that the proxy cannot
//! read.

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};

/// Headers that ask for a response in which values cannot be found: compressed messages, other
/// character sets, or differences to a cached response.
const NEGOTIATED: [&str; 5] = [
    "a-im",
    "accept-charset",
    "connect-accept-encoding",
    "grpc-accept-encoding",
    "sec-websocket-extensions",
];

/// Changes a request so that the server does not compress or otherwise encode its response.
pub(crate) fn ask_for_plain_answer(headers: &mut HeaderMap) {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for name in NEGOTIATED {
        headers.remove(name);
    }
    // The `trailers` of this header must stay: gRPC does not work without it.
    let has_trailers = headers
        .get_all(TE)
        .iter()
        .flat_map(words)
        .any(|word| word.eq_ignore_ascii_case(b"trailers"));
    headers.remove(TE);
    if has_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Returns true if a message is compressed or has an unknown coding.
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    let contents = headers.get_all(CONTENT_ENCODING).iter();
    let transfers = headers.get_all(TRANSFER_ENCODING).iter();
    contents.chain(transfers).flat_map(words).any(|coding| {
        let plain = [&b""[..], b"identity", b"chunked"];
        !plain.iter().any(|plain| coding.eq_ignore_ascii_case(plain))
    })
}

/// Removes an upgrade after which requests could name hosts that the proxy cannot see: to HTTP/2,
/// or to TLS. A server may ignore an upgrade (RFC 9110, 7.8), so that the program continues without
/// it.
pub(crate) fn refuse_hidden_hosts(headers: &mut HeaderMap) {
    let hides_hosts = |word: &[u8]| {
        let protocol = word.split(|byte| *byte == b'/').next().unwrap_or_default();
        let hiding = [&b"h2c"[..], b"h2", b"http", b"tls"];
        hiding
            .iter()
            .any(|name| protocol.eq_ignore_ascii_case(name))
    };
    if headers
        .get_all(UPGRADE)
        .iter()
        .flat_map(words)
        .any(hides_hosts)
    {
        headers.remove(UPGRADE);
        headers.remove("http2-settings");
    }
}

/// Returns the items of a list in a header (RFC 9110, 5.6.1).
fn words(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value
        .as_bytes()
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn an_answer_is_asked_for_that_can_be_read() {
        let mut request = headers(&[
            ("accept-encoding", "br"),
            ("te", "gzip;q=1"),
            ("te", "deflate, Trailers"),
            ("a-im", "gzip"),
            ("accept-charset", "utf-16"),
            ("grpc-accept-encoding", "gzip"),
            ("connect-accept-encoding", "gzip"),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("accept", "text/plain"),
        ]);
        ask_for_plain_answer(&mut request);
        let left = [
            ("accept", "text/plain"),
            ("accept-encoding", "identity"),
            ("te", "trailers"),
        ];
        assert_eq!(request, headers(&left));
        let mut request = headers(&[("te", "gzip")]);
        ask_for_plain_answer(&mut request);
        assert!(!request.contains_key("te"));
    }

    #[test]
    fn what_is_done_to_an_answer_is_seen() {
        for (name, value, is_done) in [
            ("content-encoding", "gzip", true),
            ("content-encoding", "identity, br", true),
            ("content-encoding", "Identity", false),
            ("transfer-encoding", "gzip, chunked", true),
            ("transfer-encoding", "chunked", false),
        ] {
            assert_eq!(is_encoded(&headers(&[(name, value)])), is_done, "{value}");
        }
        assert!(!is_encoded(&HeaderMap::new()));
    }

    #[test]
    fn upgrades_that_name_hosts_are_left_out() {
        for (upgrade, is_left) in [
            ("websocket", true),
            ("tcp", true),
            ("SPDY/3.1", true),
            ("h2c", false),
            ("H2C", false),
            ("websocket, h2c", false),
            ("TLS/1.0", false),
            ("HTTP/2.0", false),
        ] {
            let mut request = headers(&[("upgrade", upgrade), ("http2-settings", "x")]);
            refuse_hidden_hosts(&mut request);
            assert_eq!(request.contains_key("upgrade"), is_left, "{upgrade}");
        }
    }
}
