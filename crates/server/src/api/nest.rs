//! Routing below a base path, for servers that share a host with others behind a proxy.

use super::error::ApiError;
use crate::base_path::BasePath;
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Redirect, Response};
use glovebox_proto::{Code, Fault};
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Uri};
use tower_service::Service as _;

/// Health routes, which are served for every host name, with and without the base path.
pub(super) const HEALTH_PATHS: [&str; 2] = ["/health/live", "/health/ready"];

/// Serves `inner` below `base`. Health routes are served without the base path as well, since
/// probes use the machine's address.
pub(super) fn nest(base: &BasePath, inner: Router) -> Router {
    if base.as_str().is_empty() {
        return inner;
    }
    let base = base.clone();
    Router::new().fallback(move |request: Request| {
        let (mut inner, routed) = (inner.clone(), route(&base, request));
        async move {
            match routed {
                // A router is always ready, and its error type has no value.
                Ok(request) => inner.call(request).await.into_response(),
                Err(answer) => *answer,
            }
        }
    })
}

/// Removes the base path from a request. Returns the response for a request that is not below it.
fn route(base: &BasePath, mut request: Request) -> Result<Request, Box<Response>> {
    let uri = request.uri();
    let path = uri.path();
    if path == base.as_str() && matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Box::new(Redirect::to(&format!("{base}/")).into_response()));
    }
    let rest = match base.strip(path) {
        Some(rest) => rest,
        None if HEALTH_PATHS.contains(&path) => return Ok(request),
        None => return Err(Box::new(elsewhere(base))),
    };
    let inner = match uri.query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    // The rest of a valid path and query is valid; the error is only a fallback.
    match PathAndQuery::from_maybe_shared(inner) {
        Ok(inner) => parts.path_and_query = Some(inner),
        Err(_) => return Err(Box::new(elsewhere(base))),
    }
    match Uri::from_parts(parts) {
        Ok(uri) => *request.uri_mut() = uri,
        Err(_) => return Err(Box::new(elsewhere(base))),
    }
    Ok(request)
}

fn elsewhere(base: &BasePath) -> Response {
    let fault = Fault::failed(Code::NotFound, "there is nothing at this address")
        .remedy(format!("the server lies below {base}/"));
    ApiError::new(StatusCode::NOT_FOUND, fault).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn requests_below_the_path_come_without_it() {
        let base: BasePath = "/box".parse().unwrap();
        let routed = |uri: &str| {
            let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
            match route(&base, request) {
                Ok(request) => request.uri().to_string(),
                Err(answer) => answer.status().as_u16().to_string(),
            }
        };
        assert_eq!(routed("/box/api/sessions?q=%2F&x"), "/api/sessions?q=%2F&x");
        assert_eq!(routed("/box/"), "/");
        assert_eq!(routed("http://h.test/box/a"), "http://h.test/a");
        assert_eq!(routed("/health/ready"), "/health/ready");
        assert_eq!(routed("/box/health/ready"), "/health/ready");
        assert_eq!(routed("/box"), "303");
        for elsewhere in ["/", "/boxes/api", "/api/sessions", "/health/x", "/box2/"] {
            assert_eq!(routed(elsewhere), "404", "{elsewhere}");
        }
    }
}
