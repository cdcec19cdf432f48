//! Web page for the author of one bundle, on this machine only: shows the problems of the bundle as
//! last saved, and tries its tools. It belongs to a command that ends with its terminal, so it has
//! no tokens, sessions or store; the pages of a server are separate from it.
//!
//! Access: the address that the command prints has a code after `#`, which browsers do not send.
//! The script of the page sends it with each request. A page of another origin does not know the
//! code, and requests under another host name are refused. The page loads nothing from elsewhere
//! (Content-Security-Policy).

use crate::config::Token;
use crate::listen::serve_connection;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use glovebox_proto::{Code, Fault};
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Request header with the code.
const CODE: &str = "x-glovebox-code";
/// Maximum number of connections at the same time.
const MAX_CONNECTIONS: usize = 16;
/// Maximum length of a call's body, in bytes.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Maximum time that a request waits for the bundle to change, and the interval at which it checks.
const WAIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Content and actions of the page.
pub trait BundlePage: fmt::Debug + Send + Sync + 'static {
    /// Returns the state that was read last: an object whose `number` changes each time the bundle
    /// is read. None if its number is `shown`.
    fn state(&self, shown: Option<u64>) -> Option<Value>;

    /// Calls a tool. `call` has the fields `agent` (or null), `tool` and `arguments`. Returns the
    /// result, whether success or failure.
    fn call(&self, call: &Value) -> Value;
}

/// A page that is served until the process ends.
#[derive(Debug)]
pub struct ServedPage {
    /// Address of the page, with the code.
    pub url: String,
}

/// Serves a page on the loopback address, at `port` or, if it is 0, at a free port. The caller
/// keeps `page` alive; once it is dropped, requests get status 410.
///
/// # Errors
/// Fails if the port is in use or no runtime can be created.
pub fn serve_bundle_page(page: Weak<dyn BundlePage>, port: u16) -> Result<ServedPage, Fault> {
    let broken = |error: std::io::Error| {
        Fault::failed(Code::Io, format!("the page cannot be served: {error}"))
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(broken)?;
    let address = listener.local_addr().map_err(broken)?;
    listener.set_nonblocking(true).map_err(broken)?;
    let code = Token::random()?;
    let url = format!("http://{address}/#{}", code.reveal());
    let router = router(page, address, code.digest());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(broken)?;
    std::thread::Builder::new()
        .name("bundle-page".to_owned())
        .spawn(move || runtime.block_on(accept(listener, router)))
        .map_err(broken)?;
    Ok(ServedPage { url })
}

async fn accept(listener: TcpListener, router: Router) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let places = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            serve_connection(stream, router).await;
            drop(place);
        });
    }
}

/// State of the routes: the page, and what a request must present.
#[derive(Clone)]
struct PageContext {
    page: Weak<dyn BundlePage>,
    address: SocketAddr,
    code: blake3::Hash,
}

fn router(page: Weak<dyn BundlePage>, address: SocketAddr, code: blake3::Hash) -> Router {
    let shared = PageContext {
        page,
        address,
        code,
    };
    let api = Router::new()
        .route("/api/state", get(state))
        .route("/api/call", post(call))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(shared.clone(), check_code));
    let file = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    Router::new()
        .route(
            "/",
            file("text/html; charset=utf-8", include_str!("page.html")),
        )
        .route(
            "/page.js",
            file("text/javascript; charset=utf-8", include_str!("page.js")),
        )
        .route(
            "/page.css",
            file("text/css; charset=utf-8", include_str!("page.css")),
        )
        .merge(api)
        .layer(middleware::from_fn_with_state(shared.clone(), check_host))
        .with_state(shared)
}

/// Refuses other host names: a page elsewhere whose name resolves to this machine must not be
/// served.
async fn check_host(State(shared): State<PageContext>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = shared.address.port();
    let is_own = [format!("127.0.0.1:{port}"), format!("localhost:{port}")]
        .iter()
        .any(|own| own == host);
    let mut response = if is_own {
        next.run(request).await
    } else {
        let text = "this page is at 127.0.0.1 only\n";
        (StatusCode::MISDIRECTED_REQUEST, text).into_response()
    };
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        let headers: &mut HeaderMap = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn check_code(State(shared): State<PageContext>, request: Request, next: Next) -> Response {
    let given = request.headers().get(CODE);
    if given.is_none_or(|given| blake3::hash(given.as_bytes()) != shared.code) {
        let text = "open the address that `glovebox bundle dev` has printed\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    next.run(request).await
}

#[derive(Deserialize)]
struct StateQuery {
    /// Number of the state that the page shows.
    after: Option<u64>,
}

/// Responds with the state as soon as its number differs from the one the page shows, or with
/// status 204 after `WAIT`.
async fn state(State(shared): State<PageContext>, Query(query): Query<StateQuery>) -> Response {
    let begun = Instant::now();
    loop {
        // The strong reference is dropped before the wait: it would keep the page alive after its
        // command has ended.
        let Some(page) = shared.page.upgrade() else {
            return gone();
        };
        let state = page.state(query.after);
        drop(page);
        if let Some(state) = state {
            return axum::Json(state).into_response();
        }
        if begun.elapsed() > WAIT {
            return StatusCode::NO_CONTENT.into_response();
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn call(State(shared): State<PageContext>, body: Bytes) -> Response {
    let Ok(wanted) = serde_json::from_slice::<Value>(&body) else {
        return (StatusCode::BAD_REQUEST, "this is no JSON\n").into_response();
    };
    let called = tokio::task::spawn_blocking(move || {
        let page = shared.page.upgrade();
        page.map(|page| page.call(&wanted))
    });
    match called.await {
        Ok(Some(answer)) => axum::Json(answer).into_response(),
        Ok(None) => gone(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn gone() -> Response {
    (StatusCode::GONE, "`glovebox bundle dev` has ended\n").into_response()
}
