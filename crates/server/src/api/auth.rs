//! Authentication of requests: by a bearer token, or by the cookie of a browser that has logged in.
//!
//! Every route but health and the login needs one of them. A request with a cookie that changes
//! state or opens a WebSocket must come from a page of this server (`Origin`, `Sec-Fetch-Site`),
//! because browsers send the cookie with requests of any page.

use super::body::JsonBody;
use super::chat::OpenChats;
use super::error::{ApiError, ApiResult};
use super::interface;
use super::logins::Logins;
use super::mcp::McpServices;
use super::nest::HEALTH_PATHS;
use super::preview::Previews;
use super::principal::Principal;
use super::query::CheckedQuery;
use super::request_id;
use crate::peer::Peer;
use crate::store::{ADMIN, AuditEntry, Decision, Scope, Via};
use crate::work::{App, ConnectionPlace};
use axum::Extension;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use glovebox_mcp::server::Connection;
use glovebox_proto::{AdvicePart, Code, Fault, Setting};
use glovebox_session::host::now_unix_ms;
use http::header::{AUTHORIZATION, HOST, ORIGIN, UPGRADE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Value of `Retry-After` when a limit of connections is reached.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// State that all routes share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub app: Arc<App>,
    pub logins: Arc<Logins>,
    pub mcp: Arc<McpServices>,
    pub previews: Arc<Previews>,
    pub chats: Arc<OpenChats>,
}

/// Authenticates a request and attaches its [`Principal`], or responds with an error.
pub(crate) async fn require_user(
    State(shared): State<Shared>,
    mut request: Request,
    next: Next,
) -> Response {
    // Copies, because the request cannot be shared across the await: its body is not `Sync`.
    let (method, headers) = (request.method().clone(), request.headers().clone());
    let is_secure = is_secure(&request);
    match find_user(&shared, &method, &headers, is_secure).await {
        Ok((principal, via)) => {
            if let Err(refused) = count_in(&shared, &principal, &request) {
                return refused.into_response();
            }
            request_id::note_user(&principal.name);
            request.extensions_mut().insert(principal);
            request.extensions_mut().insert(via);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

/// Counts the connection and the request for the user.
///
/// # Errors
/// `unavailable` if too many connections are open, `busy` if the user sent too many requests.
fn count_in(shared: &Shared, principal: &Principal, request: &Request) -> ApiResult<()> {
    keep_connection(request)?;
    let is_admin = principal.scopes.has(Scope::Admin);
    let of_user = request.extensions().get::<Arc<ConnectionPlace>>();
    let places = &shared.app.connections;
    if of_user.is_some_and(|of_user| !places.keep(of_user, &principal.name, is_admin)) {
        return Err(no_connection("too many of your connections are open"));
    }
    let taken = shared.app.rate.take(&principal.name, Instant::now());
    taken.map_err(|wait| {
        let fault = Fault::failed(Code::Busy, "too many requests in a short time");
        ApiError::from(fault.remedy("send fewer in a second").retryable()).retry_after(wait)
    })
}

/// Counts a connection as that of a known client, once a request on it was authenticated.
pub(super) fn keep_connection(request: &Request) -> ApiResult<()> {
    let connection = request.extensions().get::<Arc<Connection>>();
    if connection.is_none_or(|connection| connection.authenticate()) {
        return Ok(());
    }
    Err(no_connection("too many connections are open"))
}

fn no_connection(message: &str) -> ApiError {
    let fault = Fault::failed(Code::Unavailable, message).retryable();
    ApiError::from(fault).retry_after(CONNECTION_WAIT)
}

/// Returns the principal of a token. None if the token is not valid here.
pub(super) async fn find_by_token(shared: &Shared, token: &str) -> ApiResult<Option<Principal>> {
    let digest = blake3::hash(token.as_bytes());
    if shared.logins.is_admin_token(digest) {
        return Ok(Some(Principal::admin()));
    }
    find_by_digest(shared, digest).await
}

/// Returns the principal of the valid token with this digest.
async fn find_by_digest(shared: &Shared, digest: blake3::Hash) -> ApiResult<Option<Principal>> {
    let app = Arc::clone(&shared.app);
    let found = super::blocking(move || app.tokens.find(digest, now_unix_ms())).await??;
    Ok(found.map(|(name, scopes)| Principal {
        name,
        scopes,
        token: Some(digest),
    }))
}

/// Returns the principal of a cookie if the token it was issued for is still valid.
pub(super) async fn still_known(
    shared: &Shared,
    by_cookie: Option<Principal>,
) -> ApiResult<Option<Principal>> {
    let Some(principal) = by_cookie else {
        return Ok(None);
    };
    match principal.token {
        Some(digest) => find_by_digest(shared, digest).await,
        None => Ok(Some(principal)),
    }
}

/// Returns true if the client's connection uses TLS.
fn is_secure(request: &Request) -> bool {
    let peer = request.extensions().get::<Peer>();
    peer.is_some_and(|peer| peer.is_secure)
}

async fn find_user(
    shared: &Shared,
    method: &Method,
    headers: &HeaderMap,
    is_secure: bool,
) -> ApiResult<(Principal, Via)> {
    if let Some(token) = bearer(headers)? {
        let found = find_by_token(shared, &token).await?;
        let found = found.ok_or_else(|| unauthorized("the token is not valid here"))?;
        return Ok((found, Via::Token));
    }
    let by_cookie = shared.logins.of_cookie(headers, is_secure);
    let Some(principal) = still_known(shared, by_cookie).await? else {
        return Err(unauthorized("a token is needed"));
    };
    // A WebSocket is opened with GET, but pages of any site may open one and read from it.
    let is_read = matches!(*method, Method::GET | Method::HEAD) && !headers.contains_key(UPGRADE);
    if !is_read && !is_same_site(headers) {
        return Err(ApiError::forbidden(
            "the request comes from a page of another site",
            "use a token in the Authorization header",
        ));
    }
    Ok((principal, Via::Cookie))
}

fn unauthorized(message: &str) -> ApiError {
    let fault = Fault::refused(Code::PermissionDenied, message).remedy(
        "send `Authorization: Bearer TOKEN`, or open the address that the server printed in a browser",
    );
    ApiError::new(StatusCode::UNAUTHORIZED, fault)
}

fn bearer(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let token = bearer_of(value).map(str::to_owned);
    match (token, values.next()) {
        (Some(token), None) => Ok(Some(token)),
        _ => Err(unauthorized(
            "the Authorization header is not `Bearer TOKEN`, once",
        )),
    }
}

/// Returns the token of a header of the form `Bearer TOKEN`.
pub(super) fn bearer_of(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns true if the request comes from a page of this server.
fn is_same_site(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site == "same-origin";
    }
    let (Some(origin), Some(host)) = (headers.get(ORIGIN), headers.get(HOST)) else {
        return false;
    };
    let (Ok(origin), Ok(host)) = (origin.to_str(), host.to_str()) else {
        return false;
    };
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority == Some(host)
}

/// Refuses requests whose `Host` is not a name of the server: a page elsewhere whose name resolves
/// to this address could send requests with the user's cookie. Health is answered under any name,
/// since probes use the machine's address. Adds response headers that keep other sites from
/// embedding pages.
pub(crate) async fn require_host(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let is_health = HEALTH_PATHS.contains(&request.uri().path());
    let mut response = if is_health || shared.is_own_host(request.headers()) {
        next.run(request).await
    } else {
        ApiError::new(
            StatusCode::MISDIRECTED_REQUEST,
            Fault::refused(
                Code::PermissionDenied,
                "the server does not go by that name",
            )
            .remedy([
                "whoever runs the server names it: ".into(),
                AdvicePart::command("glovebox serve", Setting::AllowHost, Some("HOST:PORT")),
            ]),
        )
        .into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        (
            "content-security-policy",
            "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
        ),
    ] {
        if !headers.contains_key(name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

impl Shared {
    /// Returns true if the `Host` of the request is a name of this server.
    pub(super) fn is_own_host(&self, headers: &HeaderMap) -> bool {
        host_of(headers).is_some_and(|host| self.logins.hosts().contains(&host))
    }
}

/// Returns the `Host` of a request in lower case. None if there is not exactly one.
pub(super) fn host_of(headers: &HeaderMap) -> Option<String> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok().map(str::to_ascii_lowercase),
        _ => None,
    }
}

/// Query of the login page.
#[derive(Debug, Deserialize)]
pub(crate) struct LoginQuery {
    code: Option<String>,
}

/// `GET /login?code=...`: the printed address. Logs one browser in and redirects it to the web
/// interface. A browser without a valid code is redirected as well: it has logged in already, or
/// the interface asks for a token.
pub(crate) async fn login(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    CheckedQuery(query): CheckedQuery<LoginQuery>,
) -> Response {
    let redeemed = query.code.as_deref().map(|code| shared.logins.redeem(code));
    let message = match redeemed {
        Some(Some(Ok(cookie))) => {
            write_down_login(&shared, peer, StatusCode::SEE_OTHER);
            return shared.logins.with_cookie(&cookie, peer.is_secure);
        }
        Some(Some(Err(fault))) => return ApiError::from(fault).into_response(),
        Some(None) => {
            write_down_login(&shared, peer, StatusCode::UNAUTHORIZED);
            "this address has been used, or is too old"
        }
        None => "the address of a login has a `code`",
    };
    if interface::wants_page(&headers) {
        return shared.logins.lead_in();
    }
    unauthorized(message).into_response()
}

/// Records in the audit log that the printed address was opened.
fn write_down_login(shared: &Shared, peer: Peer, status: StatusCode) {
    let is_in = status == StatusCode::SEE_OTHER;
    let entry = AuditEntry::Request {
        user: if is_in { ADMIN } else { "?" },
        address: Some(peer.address),
        via: None,
        action: "GET /login",
        object: None,
        decision: if is_in {
            Decision::Allowed
        } else {
            Decision::Refused
        },
        status: status.as_u16(),
        digest: None,
    };
    shared.app.accounting.write_down(&entry);
}

/// `POST /api/login`: sets a cookie for a client that sends a token.
pub(crate) async fn login_by_token(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Extension(peer): Extension<Peer>,
) -> Response {
    match shared.logins.admit(principal) {
        Ok(cookie) => shared.logins.with_cookie(&cookie, peer.is_secure),
        Err(fault) => ApiError::from(fault).into_response(),
    }
}

/// Body of a logout request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogoutRequest {
    /// True to end all logins of the user, not only that of this browser.
    #[serde(default)]
    all: bool,
}

/// `POST /api/logout`: ends the login of this browser, or all of the user's, and the user's logins
/// to previews.
pub(crate) async fn log_out(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    JsonBody { value: wish, .. }: JsonBody<LogoutRequest>,
) -> Response {
    shared.previews.forget_user(&principal.name);
    match shared
        .logins
        .end(&headers, peer.is_secure, &principal.name, wish.all)
    {
        Ok(response) => response,
        Err(fault) => ApiError::from(fault).into_response(),
    }
}

/// Adds the `WWW-Authenticate` header to responses with status 401.
pub(crate) fn add_challenge(response: &mut Response) {
    if response.status() == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
}
