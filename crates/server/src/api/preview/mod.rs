//! Previews: programs that listen on a port in a sandbox, shown to the browser of the sandbox's
//! user.
//!
//! ```text
//! browser -> Host: PORT-NAME.localhost:8484    `answer`: the preview, its user, the page's origin
//!             |                                  `logins`: a code once, then a cookie per preview
//!             |  forward + heads                 logins are removed, addresses rewritten
//!             -> Sandbox::connect_port           the sandbox's own loopback
//! ```
//!
//! TRUST: the page that a sandbox shows is untrusted. It has its own origin, by its host name, so
//! it shares neither cookies nor storage with the interface, and browsers let it read no response
//! of the API. Requests that it sends to other previews with its user's cookie are refused by their
//! origin.

mod forward;
mod heads;
mod logins;
mod page;

pub(super) use page::answer_error;

use super::auth::{Shared, bearer_of, find_by_token, host_of, keep_connection, still_known};
use super::error::{ApiError, ApiResult};
use super::principal::Principal;
use super::query::CheckedQuery;
use super::{blocking, own_session};
use crate::config::ServerConfig;
use crate::peer::Peer;
use crate::preview_domain::{PreviewAddress, PreviewDomain, PreviewHosts};
use crate::store::{AuditEntry, Decision, Scope, Via};
use crate::work::{App, PreviewPlace};
use axum::extract::{FromRequestParts as _, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use forward::ForwardError;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Name;
use glovebox_session::host::now_unix_ms;
use heads::{Heads, is_websocket};
use http::header::{AUTHORIZATION, ORIGIN, REFERER, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use logins::PreviewLogins;
use serde::Deserialize;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Prefix of the paths of a preview's origin that this server handles; they reach no program.
const OWN_PATHS: &str = "/.glovebox/";
const LOGIN_PATH: &str = "/.glovebox/login";
/// Maximum time for a request to wait for a connection slot, and the interval of its attempts.
const PLACE_WAIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(25);
/// Maximum number of ports that an error names.
const MAX_PORTS_TOLD: usize = 16;

/// Previews of a server: their host names and logins.
#[derive(Debug)]
pub(crate) struct Previews {
    hosts: PreviewHosts,
    logins: PreviewLogins,
}

/// Address that logs one browser in to a preview.
#[derive(Debug)]
pub(super) struct PreviewLogin {
    pub url: String,
    pub expires_unix_ms: u64,
}

impl Previews {
    /// Ends all logins of a user.
    pub(super) fn forget_user(&self, user: &str) {
        self.logins.forget_user(user);
    }

    pub(crate) fn new(config: &ServerConfig, addr: SocketAddr) -> Self {
        let domain = config.preview_domain.clone();
        let domain = domain.unwrap_or_else(|| PreviewDomain::localhost(addr.port()));
        let hosts = PreviewHosts::new(&domain, config.tls.is_some());
        let logins = PreviewLogins::new(hosts.is_https());
        Self { hosts, logins }
    }

    /// Creates an address that logs `principal` in once and redirects to `path` of a preview.
    pub(super) fn make_login(
        &self,
        principal: Principal,
        address: PreviewAddress,
        path: String,
    ) -> Result<PreviewLogin, Fault> {
        let origin = self.hosts.origin(&address);
        let made = self
            .logins
            .make_code(principal, address, path, now_unix_ms());
        let (code, expires_unix_ms) = made?;
        let url = format!("{origin}{LOGIN_PATH}?code={}", code.reveal());
        Ok(PreviewLogin {
            url,
            expires_unix_ms,
        })
    }
}

/// Handles requests for the host of a preview; passes all others to the API.
pub(super) async fn answer(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let host = host_of(request.headers());
    let is_interface = |host: &String| shared.logins.hosts().contains(host);
    let host = host.filter(|host| !is_interface(host));
    let Some(address) = host.and_then(|host| shared.previews.hosts.find(&host)) else {
        return next.run(request).await;
    };
    // Only the headers are copied: the body is consumed below.
    let headers = request.headers().clone();
    let answered = if request.uri().path().starts_with(OWN_PATHS) {
        log_in(&shared, &address, request).await
    } else {
        let shown = show(&shared, &address, request).await;
        shared.app.metrics.preview_answered(shown.is_ok());
        shown
    };
    answered.unwrap_or_else(|error| answer_error(error, &headers))
}

#[derive(Debug, Deserialize)]
struct LoginQuery {
    code: String,
}

/// Exchanges a code for a cookie and redirects the browser to the program.
async fn log_in(
    shared: &Shared,
    address: &PreviewAddress,
    request: Request,
) -> ApiResult<Response> {
    let (mut parts, _) = request.into_parts();
    if parts.uri.path() != LOGIN_PATH || parts.method != Method::GET {
        return Err(ApiError::not_found("address", parts.uri.path()));
    }
    let CheckedQuery(LoginQuery { code }) =
        CheckedQuery::from_request_parts(&mut parts, shared).await?;
    let logins = &shared.previews.logins;
    let redeemed = logins.redeem(&code, address, now_unix_ms()).transpose()?;
    let is_in = redeemed.is_some();
    let user = redeemed.as_ref().map_or("?", |redeemed| &redeemed.user);
    let peer = parts.extensions.get::<Peer>().copied();
    write_down(shared, user, peer, address, is_in);
    let Some(redeemed) = redeemed else {
        // A browser that goes back in its history sends a used code but already has the cookie.
        if logins
            .find(&parts.headers, address, now_unix_ms())
            .is_some()
        {
            return Ok(led_to("/"));
        }
        return Err(unauthorized("this address has been used, or is too old"));
    };
    let mut response = led_to(&redeemed.path);
    // A cookie of hexadecimal digits is a valid header value.
    if let Ok(value) = HeaderValue::from_str(&logins.set_cookie(&redeemed.cookie)) {
        response.headers_mut().insert(SET_COOKIE, value);
    }
    Ok(response)
}

fn led_to(path: &str) -> Response {
    let mut response = Redirect::to(path).into_response();
    page::close_up(&mut response);
    response
}

/// Records a login in the metrics and the audit log.
fn write_down(
    shared: &Shared,
    user: &str,
    peer: Option<Peer>,
    address: &PreviewAddress,
    is_in: bool,
) {
    shared.app.metrics.preview_login(is_in);
    let (decision, status) = if is_in {
        (Decision::Allowed, StatusCode::SEE_OTHER)
    } else {
        (Decision::Refused, StatusCode::UNAUTHORIZED)
    };
    let entry = AuditEntry::Request {
        user,
        address: peer.map(|peer| peer.address),
        via: Some(Via::Preview),
        action: "preview login",
        object: Some(&address.label()),
        decision,
        status: status.as_u16(),
        digest: None,
    };
    shared.app.accounting.write_down(&entry);
}

/// Forwards a request to the program, after all checks of access.
async fn show(shared: &Shared, address: &PreviewAddress, request: Request) -> ApiResult<Response> {
    let headers = request.headers();
    let heads = Heads::new(shared.previews.hosts.origin(address), address.port);
    let visitor = find_visitor(shared, address, headers).await?;
    keep_connection(&request)?;
    if visitor.is_browser && !is_own_page(&heads, request.method(), headers) {
        return Err(ApiError::forbidden(
            "the request comes from a page of another site",
            "open the preview by itself",
        ));
    }
    visitor.principal.require(Scope::Run)?;
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        let fault = Fault::failed(Code::InvalidArgument, "a preview does not take that method");
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, fault));
    }
    let user = visitor.principal.name.clone();
    let name = {
        let (app, address) = (Arc::clone(&shared.app), address.clone());
        blocking(move || find_sandbox(&app, &visitor.principal, &address)).await??
    };
    // After all checks, so that requests that are refused take no slots.
    let place = wait_for_place(&shared.app, &user, &address.label()).await?;
    let connection = {
        let (app, name, port) = (Arc::clone(&shared.app), name.clone(), address.port);
        blocking(move || app.connect_port(&name, port, place)).await??
    };
    let has_own_authorization = visitor.has_own_authorization;
    let sent = forward::forward(
        &shared.app,
        &heads,
        connection,
        request,
        has_own_authorization,
    );
    match sent.await {
        Ok(response) => Ok(response),
        Err(ForwardError::Other(error)) => Err(error),
        Err(ForwardError::NothingListens) => {
            let (app, port) = (Arc::clone(&shared.app), address.port);
            Err(blocking(move || nothing_listens(&app, &name, port)).await?)
        }
    }
}

/// User of a preview request.
#[derive(Debug)]
struct Visitor {
    principal: Principal,
    /// True if a cookie identified the user. Browsers send cookies with requests of any page.
    is_browser: bool,
    /// True if an `Authorization` header is meant for the program.
    has_own_authorization: bool,
}

/// Identifies the user of a preview request. A token of this server is not forwarded to the
/// program; with a cookie, any `Authorization` header is the program's.
///
/// # Errors
/// Status 401 without a valid token or cookie.
async fn find_visitor(
    shared: &Shared,
    address: &PreviewAddress,
    headers: &HeaderMap,
) -> ApiResult<Visitor> {
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    let (first, second) = (shown.next(), shown.next());
    if second.is_some() {
        return Err(ApiError::invalid(
            "there is more than one Authorization header",
            "send one",
        ));
    }
    if let Some(token) = first.and_then(bearer_of)
        && let Some(principal) = find_by_token(shared, token).await?
    {
        return Ok(Visitor {
            principal,
            is_browser: false,
            has_own_authorization: false,
        });
    }
    let logins = &shared.previews.logins;
    let by_cookie = logins.find(headers, address, now_unix_ms());
    match still_known(shared, by_cookie).await? {
        Some(principal) => Ok(Visitor {
            principal,
            is_browser: true,
            has_own_authorization: true,
        }),
        None => Err(unauthorized(
            "this preview is for whoever has logged in to it",
        )),
    }
}

fn unauthorized(message: &str) -> ApiError {
    let fault = Fault::refused(Code::PermissionDenied, message).remedy(
        "open it from its session in Glovebox; programs send `Authorization: Bearer TOKEN`",
    );
    ApiError::new(StatusCode::UNAUTHORIZED, fault)
}

/// Returns true if the request comes from the preview's own page or from a navigation by the user.
/// Other previews below the same DNS domain are the same site, so browsers send the cookie for
/// requests of their pages.
fn is_own_page(heads: &Heads, method: &Method, headers: &HeaderMap) -> bool {
    let origin = headers.get(ORIGIN);
    let is_own_origin = origin.is_some_and(|origin| origin == heads.origin());
    let is_read = matches!(*method, Method::GET | Method::HEAD) && !is_websocket(headers);
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match said("sec-fetch-site") {
        // Pages may open WebSockets of any origin, so a WebSocket must name the preview's own
        // `Origin`, regardless of the other headers.
        Some("same-origin") => is_own_origin || origin.is_none() && !is_websocket(headers),
        Some("none") => is_read,
        Some(_) => {
            is_read
                && said("sec-fetch-mode") == Some("navigate")
                && said("sec-fetch-dest") == Some("document")
        }
        // Over plain HTTP, browsers send these headers only to localhost. A page can suppress its
        // `Referer`.
        None => {
            is_own_origin || origin.is_none() && is_read && !is_led_from_elsewhere(heads, headers)
        }
    }
}

/// Returns true if the `Referer` names a page of another origin.
fn is_led_from_elsewhere(heads: &Heads, headers: &HeaderMap) -> bool {
    headers.get(REFERER).is_some_and(|referer| {
        let rest = referer.as_bytes().strip_prefix(heads.origin().as_bytes());
        !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    })
}

/// Returns the sandbox of a preview if the principal may see it.
///
/// # Errors
/// `not-found` if there is none, or if it belongs to another user.
fn find_sandbox(app: &App, principal: &Principal, address: &PreviewAddress) -> ApiResult<Name> {
    let id = &address.name;
    match own_session(app, principal, id) {
        Ok(_) => return Ok(app.session_sandbox(id)?),
        Err(error) if error.status == StatusCode::NOT_FOUND => {}
        Err(error) => return Err(error),
    }
    let owned = app.owners.sandbox(id)?;
    match Name::parse(id) {
        Ok(name) if owned.is_some_and(|owned| principal.sees(&owned.user)) => Ok(name),
        _ => Err(ApiError::not_found("session or sandbox", id)),
    }
}

/// Waits for a slot for one connection.
///
/// # Errors
/// `busy` if none becomes free within `PLACE_WAIT`.
async fn wait_for_place(app: &App, user: &str, preview: &str) -> ApiResult<PreviewPlace> {
    let begun = Instant::now();
    loop {
        if let Some(place) = app.preview_places.take(user, preview) {
            return Ok(place);
        }
        if begun.elapsed() >= PLACE_WAIT {
            let fault = Fault::failed(Code::Busy, "too many connections to previews are open");
            return Err(fault.remedy("close a page of one").retryable().into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the error that no program listens on a port, with the ports on which programs listen.
fn nothing_listens(app: &App, name: &Name, port: u16) -> ApiError {
    // The ports only help the user: a failure to list them must not replace the error.
    let ports = app.listening_ports(name).ok().flatten().unwrap_or_default();
    let mut ports: Vec<u16> = ports.into_iter().map(|port| port.port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports.truncate(MAX_PORTS_TOLD);
    let fault = Fault::failed(
        Code::NotFound,
        format!("nothing listens on port {port} in the sandbox"),
    );
    let fault = if ports.is_empty() {
        fault.remedy("start the program there, and look again")
    } else {
        let words: Vec<String> = ports.iter().map(u16::to_string).collect();
        fault.remedy(format!("programs listen on: {}", words.join(", ")))
    };
    ApiError::new(StatusCode::BAD_GATEWAY, fault).with_details(json!({ "ports": ports }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "http://80-s-a.example.com";

    fn is_own(method: &Method, headers: &[(&'static str, &'static str)]) -> bool {
        let pairs = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        is_own_page(&Heads::new(OWN.to_owned(), 80), method, &pairs.collect())
    }

    /// A request with the cookie is accepted only from the preview's own origin or from a top-level
    /// navigation.
    #[test]
    fn no_page_of_another_origin_asks_in_the_users_name() {
        let site = |site| ("sec-fetch-site", site);
        let other = ("origin", "http://81-s-b.example.com");
        let websocket = [("connection", "Upgrade"), ("upgrade", "websocket")];
        let visit = [
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let frame = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
        for headers in [
            vec![site("same-origin")],
            vec![site("none"), visit[0], visit[1]],
            vec![site("cross-site"), visit[0], visit[1]],
            vec![
                site("same-origin"),
                ("origin", OWN),
                websocket[0],
                websocket[1],
            ],
            vec![("origin", OWN), websocket[0], websocket[1]],
            vec![],
            vec![("referer", OWN)],
            vec![("referer", "http://80-s-a.example.com/page?x")],
        ] {
            assert!(is_own(&Method::GET, &headers), "{headers:?}");
        }
        for headers in [
            vec![site("same-site")],
            vec![site("cross-site"), ("sec-fetch-mode", "no-cors")],
            vec![site("same-site"), frame[0], frame[1]],
            vec![other],
            vec![other, websocket[0], websocket[1]],
            vec![site("same-origin"), websocket[0], websocket[1]],
            vec![site("same-origin"), other],
            vec![site("none"), other, websocket[0], websocket[1]],
            vec![websocket[0], websocket[1]],
            vec![("origin", "null")],
            vec![("referer", "http://81-s-b.example.com/")],
            vec![("referer", "http://80-s-a.example.com.evil.example/")],
            vec![("referer", "")],
        ] {
            assert!(!is_own(&Method::GET, &headers), "{headers:?}");
        }
        for (headers, expected) in [
            (vec![("origin", OWN)], true),
            (vec![site("same-origin"), ("origin", OWN)], true),
            (vec![], false),
            (vec![other], false),
            (vec![site("none")], false),
            (vec![site("same-site"), visit[0], visit[1]], false),
        ] {
            assert_eq!(is_own(&Method::POST, &headers), expected, "{headers:?}");
        }
    }
}
