//! Redirects. Each step is a request of its own: decided, looked up and counted like the first.

use crate::fetch::account::{FetchAccount, RequestRecord};
use crate::fetch::client::{AnswerBounds, FetchAnswer, FetchClient};
use crate::fetch::error::FetchError;
use crate::fetch::request::{FetchRequest, Redirects, checked_url};
use http::Method;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_TYPE, COOKIE,
};

/// Maximum number of redirects of one request, as in the Fetch standard.
const MAX_HOPS: u32 = 20;

impl FetchClient {
    /// Makes a request and follows its redirects as [`FetchRequest`] says. Calls `allow` before
    /// each step and records the result of each step in `account`.
    ///
    /// # Errors
    /// [`FetchError`] of any step.
    pub(crate) async fn follow(
        &self,
        mut request: FetchRequest,
        bounds: &AnswerBounds<'_>,
        allow: impl Fn() -> Result<(), FetchError>,
        account: &FetchAccount,
    ) -> Result<FetchAnswer, FetchError> {
        let mut hops = 0;
        loop {
            allow()?;
            let record = RequestRecord::begin(account, self.policy(), &request);
            let answered = self.send_within(&request, bounds).await;
            record.settle(&answered);
            let answer = answered?;
            let location = matches!(answer.status, 301 | 302 | 303 | 307 | 308)
                .then(|| find(&answer.headers, "location"))
                .flatten();
            let (Some(location), false) = (location, request.redirects == Redirects::Return) else {
                return Ok(FetchAnswer { hops, ..answer });
            };
            let (host, port) = request.target()?;
            let refused = |reason: &str| FetchError::Redirect {
                host: host.clone(),
                port,
                reason: reason.to_owned(),
            };
            if request.redirects == Redirects::Refuse {
                return Err(refused("which the request does not want"));
            }
            hops += 1;
            if hops > MAX_HOPS {
                return Err(refused("again and again"));
            }
            let url = answer
                .url
                .join(location)
                .map_err(|_| refused("to an address that cannot be read"))
                .and_then(checked_url)
                .map_err(|error| refused(&format!("where it is not followed: {error}")))?;
            request = next(request, answer.status, url);
        }
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Returns the request that follows a redirect with this status (Fetch standard, HTTP-redirect
/// fetch).
fn next(request: FetchRequest, status: u16, url: reqwest::Url) -> FetchRequest {
    let is_same_origin = request.url.origin() == url.origin();
    let mut next = FetchRequest { url, ..request };
    let becomes_get = match status {
        301 | 302 => next.method == Method::POST,
        303 => next.method != Method::GET && next.method != Method::HEAD,
        _ => false,
    };
    if becomes_get {
        next.method = Method::GET;
        next.body.clear();
        for name in [
            CONTENT_ENCODING,
            CONTENT_LANGUAGE,
            CONTENT_LOCATION,
            CONTENT_TYPE,
        ] {
            next.headers.remove(name);
        }
    }
    if !is_same_origin {
        // Credentials are meant for the origin that the request was written for.
        for name in [AUTHORIZATION, COOKIE] {
            next.headers.remove(name);
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post() -> FetchRequest {
        let headers = [
            ("authorization", "x"),
            ("cookie", "x"),
            ("content-type", "x"),
            ("accept", "x"),
        ];
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        FetchRequest::parse(
            "POST",
            "https://a.example/x",
            &headers,
            vec![1],
            Redirects::Follow,
        )
        .unwrap()
    }

    #[test]
    fn a_step_keeps_what_the_standard_keeps() {
        for (status, url, method, headers) in [
            (
                302,
                "https://a.example/y",
                Method::GET,
                "accept authorization cookie",
            ),
            (303, "https://b.example/y", Method::GET, "accept"),
            (
                307,
                "https://a.example/y",
                Method::POST,
                "accept authorization content-type cookie",
            ),
            (
                308,
                "https://a.example:8443/y",
                Method::POST,
                "accept content-type",
            ),
            (
                307,
                "http://a.example/y",
                Method::POST,
                "accept content-type",
            ),
        ] {
            let request = next(post(), status, url.parse().unwrap());
            let mut kept: Vec<&str> = request
                .headers
                .keys()
                .map(http::HeaderName::as_str)
                .collect();
            kept.sort_unstable();
            assert_eq!(
                (kept.join(" ").as_str(), &request.method),
                (headers, &method),
                "{status} {url}"
            );
            assert_eq!(request.body.is_empty(), method == Method::GET, "{status}");
        }
    }
}
