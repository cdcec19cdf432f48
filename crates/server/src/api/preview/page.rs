//! Errors of previews: a small page for browsers, the error form of the API for programs.

use super::super::error::ApiError;
use super::super::interface::wants_page;
use axum::response::{Html, IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use http::{HeaderMap, HeaderName, HeaderValue};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto 0;padding:0 1rem;\
    color:#1a2223;background:#f7f8f8}h1{font-size:1.375rem}a{color:#0f6e67}\
    @media(prefers-color-scheme:dark){body{color:#e4e9e9;background:#121617}a{color:#5ec4b8}}";
/// Content security policy of the page: inline style only, and no framing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// Returns an error as a page or as JSON, depending on the headers of the request.
pub(in crate::api) fn answer_error(error: ApiError, headers: &HeaderMap) -> Response {
    let mut response = if wants_page(headers) {
        let status = error.status;
        let message = escape(&error.fault.message);
        let remedy = error.fault.remedy.as_ref().map(ToString::to_string);
        let remedy = escape(&remedy.unwrap_or_default());
        let page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>No preview</title>\
             <style>{STYLE}</style></head>\n<body><main><h1>There is no preview to show</h1>\n\
             <p>{message}.</p>\n<p>{remedy}</p>\n<p><a href=\"\">Try again</a></p></main></body></html>\n"
        );
        (status, Html(page)).into_response()
    } else {
        error.into_response()
    };
    close_up(&mut response);
    response
}

/// Adds headers that forbid to store, frame or sniff a response of this server.
pub(super) fn close_up(response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_says_is_text() {
        assert_eq!(
            escape("<b title=\"a\">'&'"),
            "&lt;b title=&quot;a&quot;&gt;&#39;&amp;&#39;"
        );
    }
}
