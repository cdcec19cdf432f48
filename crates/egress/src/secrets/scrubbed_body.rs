//! Body of a response from which values are removed while it is streamed.

use crate::secrets::scrub::Scrubber;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Response body with a scrubber.
#[derive(Debug)]
pub(crate) struct ScrubbedBody {
    inner: Incoming,
    scrubber: Scrubber,
    /// Trailers, held until the rest of the data has been passed on.
    trailers: Option<HeaderMap>,
    has_ended: bool,
}

impl ScrubbedBody {
    pub(crate) fn new(inner: Incoming, scrubber: Scrubber) -> Self {
        Self {
            inner,
            scrubber,
            trailers: None,
            has_ended: false,
        }
    }
}

/// Removes secrets from headers or trailers. A header whose name contains one is removed, because a
/// replacement would make another header of it. In values the secret is replaced.
pub(crate) fn scrub_headers(headers: &mut HeaderMap, scrubber: &Scrubber) {
    let named: Vec<HeaderName> = headers
        .keys()
        .filter(|name| scrubber.is_in_name(name.as_str()))
        .cloned()
        .collect();
    for name in named {
        headers.remove(name);
    }
    for value in headers.values_mut() {
        if let Some(clean) = scrubber.whole(value.as_bytes()) {
            // The replacement consists of valid header characters, so that the fallback is never
            // used.
            *value =
                HeaderValue::from_bytes(&clean).unwrap_or_else(|_| HeaderValue::from_static(""));
        }
    }
}

impl Body for ScrubbedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        while !this.has_ended {
            let frame = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    this.has_ended = true;
                    break;
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    let clean = this.scrubber.push(&data);
                    if !clean.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(clean))));
                    }
                }
                Err(frame) => {
                    if let Ok(mut trailers) = frame.into_trailers() {
                        scrub_headers(&mut trailers, &this.scrubber);
                        this.trailers = Some(trailers);
                    }
                    this.has_ended = true;
                }
            }
        }
        let rest = this.scrubber.finish();
        if !rest.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(rest))));
        }
        let trailers = this.trailers.take();
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let has_data = !self.has_ended && !self.inner.is_end_stream();
        !has_data && self.scrubber.is_empty() && self.trailers.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::scrub::patterns_of;
    use base64::Engine as _;

    #[test]
    fn header_named_after_a_secret_is_removed() {
        let secret = "Abc-Token_12345";
        let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(secret);
        let scrubber = Scrubber::new(patterns_of(secret.as_bytes(), "placeholder"));
        let mut headers = HeaderMap::new();
        for name in [
            secret.to_owned(),
            format!("x-{secret}-y"),
            encoded,
            "x-abc-token".to_owned(),
        ] {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_static("v"),
            );
        }
        scrub_headers(&mut headers, &scrubber);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-abc-token"]);
    }
}
