//! Who asks: a bearer token, or the cookie of a browser that has logged in.
//!
//! Everything but health and the login needs one of them. A request that changes something, or opens a WebSocket, and comes
//! with a cookie must come from a page of this server's own (`Origin`, `Sec-Fetch-Site`): a cookie is sent by whatever
//! page asks for it.

use super::body::JsonBody;
use super::chat::OpenChats;
use super::error::{ApiError, ApiResult};
use super::interface;
use super::mcp::McpServices;
use super::preview::Previews;
use super::query::CheckedQuery;
use super::request_id;
use crate::config::Token;
use crate::store::{ADMIN, LoginRow, Scope, Scopes};
use crate::work::{App, ConnectionPlace};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use glovebox_mcp::server::Connection;
use glovebox_proto::{AdvicePart, Code, Fault, Setting};
use glovebox_session::host::now_unix_ms;
use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN, SET_COOKIE, UPGRADE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::warn;

const COOKIE_NAME: &str = "glovebox";
/// Over TLS, browsers take a cookie of this name from this very host only: no page of another host below the same
/// domain, such as a preview, can put one in its place (RFC 6265bis, 4.1.3.2).
const SECURE_COOKIE_NAME: &str = "__Host-glovebox";
/// Browsers of one user that are logged in at the same time; the oldest makes room.
const MAX_LOGINS_PER_USER: usize = 16;
/// How long a login lasts.
const LOGIN_MS: u64 = 7 * 24 * 3600 * 1000;
/// How long the printed address logs a browser in.
const CODE_MS: u64 = 24 * 3600 * 1000;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    pub name: String,
    pub scopes: Scopes,
    /// The digest of the token it has shown; none for the administrator.
    pub token: Option<blake3::Hash>,
}

impl Principal {
    fn admin() -> Self {
        Self {
            name: ADMIN.to_owned(),
            scopes: Scopes::new([Scope::Admin, Scope::Apply, Scope::Run]),
            token: None,
        }
    }

    /// Refuses what the token is not good for.
    pub(crate) fn require(&self, scope: Scope) -> ApiResult<()> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        Err(ApiError::forbidden(
            format!("this token is not good for `{}`", scope.as_str()),
            "ask the administrator for a token with that scope",
        ))
    }

    /// Whether what belongs to `user` may be seen.
    pub(crate) fn sees(&self, user: &str) -> bool {
        self.name == user || self.scopes.has(Scope::Admin)
    }
}

/// Browsers that have logged in.
#[derive(Debug)]
pub(crate) struct Logins {
    app: Arc<App>,
    admin: blake3::Hash,
    state: Mutex<LoginState>,
    hosts: Vec<String>,
    /// Whether browsers come over TLS, and so may keep the cookie from plain HTTP.
    is_secure: bool,
}

#[derive(Debug, Default)]
struct LoginState {
    /// The digest of the code in the printed address, until it is used, and when it ends.
    code: Option<(blake3::Hash, u64)>,
    /// Digests of cookies, whose they are, and when they end.
    cookies: HashMap<blake3::Hash, (Principal, u64)>,
}

impl Logins {
    /// Reads the logins of earlier runs.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn open(app: &Arc<App>, addr: SocketAddr) -> Result<Self, Fault> {
        let config = &app.config;
        let mut hosts = usual_hosts(addr);
        let named = config.allowed_hosts.iter();
        hosts.extend(named.map(|host| host.to_ascii_lowercase()));
        let logins = Self {
            app: Arc::clone(app),
            admin: config.admin_token.digest(),
            state: Mutex::default(),
            hosts,
            is_secure: config.tls.is_some(),
        };
        for row in app.owners.logins(now_unix_ms())? {
            let is_admin = row.user == ADMIN;
            // A new token logs the administrator out.
            if is_admin && row.token != logins.admin_binding() {
                app.owners.remove_login(&row.digest)?;
                continue;
            }
            let principal = if is_admin {
                Principal::admin()
            } else {
                // Scopes are those of the token, which is looked up with each request.
                Principal {
                    name: row.user,
                    scopes: Scopes::new([]),
                    token: row.token,
                }
            };
            let mut state = logins.state();
            state
                .cookies
                .insert(row.digest, (principal, row.until_unix_ms));
        }
        Ok(logins)
    }

    /// What an administrator's login is bound to: the configured token, or that none is configured.
    fn admin_binding(&self) -> Option<blake3::Hash> {
        (!self.app.config.is_admin_token_made).then_some(self.admin)
    }

    /// Ends the login of a request's cookie, or all of its user. The browser forgets the cookie.
    fn end(&self, headers: &HeaderMap, user: &str, is_all: bool) -> Result<Response, Fault> {
        let shown: Vec<blake3::Hash> = cookies(headers, self.cookie_name())
            .map(|cookie| blake3::hash(cookie.as_bytes()))
            .collect();
        let mut state = self.state();
        let ended: Vec<blake3::Hash> = state
            .cookies
            .iter()
            .filter(|(digest, (principal, _))| {
                principal.name == user && (is_all || shown.contains(*digest))
            })
            .map(|(digest, _)| *digest)
            .collect();
        for digest in ended {
            self.app.owners.remove_login(&digest)?;
            state.cookies.remove(&digest);
        }
        drop(state);
        let secure = if self.is_secure { "; Secure" } else { "" };
        let name = self.cookie_name();
        let text = format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{secure}");
        let mut response = StatusCode::NO_CONTENT.into_response();
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().insert(SET_COOKIE, value);
        }
        Ok(response)
    }

    fn add(&self, state: &mut LoginState, principal: Principal, now: u64) -> Result<Token, Fault> {
        let cookie = Token::random()?;
        let digest = cookie.digest();
        let until_unix_ms = now + LOGIN_MS;
        let row = LoginRow {
            digest,
            user: principal.name.clone(),
            token: principal.token.or_else(|| self.admin_binding()),
            until_unix_ms,
        };
        for gone in make_room(&mut state.cookies, &principal.name, now) {
            let _ = self.app.owners.remove_login(&gone);
        }
        // A login that cannot be written (a full disk) lasts until the server ends.
        if let Err(fault) = self.app.owners.add_login(&row) {
            warn!(problem = fault.message, "a login is not kept on disk");
        }
        state.cookies.insert(digest, (principal, until_unix_ms));
        Ok(cookie)
    }

    /// The names by which the server may be called, with their ports.
    pub(super) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    const fn cookie_name(&self) -> &'static str {
        if self.is_secure {
            SECURE_COOKIE_NAME
        } else {
            COOKIE_NAME
        }
    }

    /// Answers with a cookie, and leads to the interface.
    fn with_cookie(&self, cookie: &Token) -> Response {
        let seconds = LOGIN_MS / 1000;
        let secure = if self.is_secure { "; Secure" } else { "" };
        let text = format!(
            "{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}",
            self.cookie_name(),
            cookie.reveal()
        );
        let mut response = Redirect::to("/").into_response();
        // A cookie of hexadecimal digits is a header value.
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().insert(SET_COOKIE, value);
        }
        response
    }

    fn state(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A code that logs one browser in, once.
    pub(crate) fn make_code(&self) -> Result<Token, Fault> {
        let code = Token::random()?;
        self.state().code = Some((code.digest(), now_unix_ms() + CODE_MS));
        Ok(code)
    }

    /// A cookie for whoever shows the code.
    fn redeem(&self, code: &str) -> Option<Result<Token, Fault>> {
        let shown = blake3::hash(code.as_bytes());
        let now = now_unix_ms();
        let mut state = self.state();
        let is_right = state
            .code
            .is_some_and(|(digest, until)| digest == shown && until > now);
        if !is_right {
            return None;
        }
        let cookie = self.add(&mut state, Principal::admin(), now);
        // A code that let nobody in is good for another try.
        if cookie.is_ok() {
            state.code = None;
        }
        Some(cookie)
    }

    /// A cookie for a user who has shown a token.
    fn admit(&self, principal: Principal) -> Result<Token, Fault> {
        self.add(&mut self.state(), principal, now_unix_ms())
    }

    fn of_cookie(&self, headers: &HeaderMap) -> Option<Principal> {
        let now = now_unix_ms();
        let state = self.state();
        cookies(headers, self.cookie_name()).find_map(|shown| {
            let (principal, until) = state.cookies.get(&blake3::hash(shown.as_bytes()))?;
            (*until > now).then(|| principal.clone())
        })
    }
}

/// The values of all cookies of this name: another page of the same domain may have added one.
pub(super) fn cookies<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let headers = headers.get_all(COOKIE).iter();
    let pairs = headers
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(';'));
    pairs.filter_map(move |pair| {
        let (found, value) = pair.trim().split_once('=')?;
        (found == name).then_some(value)
    })
}

/// Whether a cookie of this name is one of the interface's logins, in any way of serving.
pub(super) fn is_login_cookie(name: &[u8]) -> bool {
    [COOKIE_NAME, SECURE_COOKIE_NAME]
        .iter()
        .any(|own| own.as_bytes() == name)
}

/// Forgets logins that are over, and the oldest of a user while one more has no place. Returns those of the user.
fn make_room(
    cookies: &mut HashMap<blake3::Hash, (Principal, u64)>,
    user: &str,
    now: u64,
) -> Vec<blake3::Hash> {
    cookies.retain(|_, (_, until)| *until > now);
    let own = cookies
        .iter()
        .filter(|(_, (principal, _))| principal.name == user);
    let mut own: Vec<(u64, blake3::Hash)> =
        own.map(|(digest, (_, until))| (*until, *digest)).collect();
    own.sort_by_key(|(until, _)| *until);
    let surplus = (own.len() + 1).saturating_sub(MAX_LOGINS_PER_USER);
    let gone: Vec<blake3::Hash> = own
        .into_iter()
        .take(surplus)
        .map(|(_, digest)| digest)
        .collect();
    for digest in &gone {
        cookies.remove(digest);
    }
    gone
}

/// The names by which a server at this address may be called.
fn usual_hosts(addr: SocketAddr) -> Vec<String> {
    let port = addr.port();
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .map(|name| format!("{name}:{port}"))
        .collect();
    if !addr.ip().is_unspecified() && !addr.ip().is_loopback() {
        hosts.push(addr.to_string());
    }
    hosts
}

/// The shared state of all routes.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub app: Arc<App>,
    pub logins: Arc<Logins>,
    pub mcp: Arc<McpServices>,
    pub previews: Arc<Previews>,
    pub chats: Arc<OpenChats>,
}

/// Lets a request in, with its [`Principal`], or answers it.
pub(crate) async fn require_user(
    State(shared): State<Shared>,
    mut request: Request,
    next: Next,
) -> Response {
    // The body is not looked at, and cannot be shared.
    let (method, headers) = (request.method().clone(), request.headers().clone());
    match find_user(&shared, &method, &headers).await {
        Ok(principal) => {
            if let Err(refused) = count_in(&shared, &principal, &request) {
                return refused.into_response();
            }
            request_id::note_user(&principal.name);
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

/// Gives the connection a client's place, and counts the request as one of the user's.
fn count_in(shared: &Shared, principal: &Principal, request: &Request) -> ApiResult<()> {
    keep_connection(request)?;
    let is_admin = principal.scopes.has(Scope::Admin);
    let of_user = request.extensions().get::<Arc<ConnectionPlace>>();
    let places = &shared.app.connections;
    if of_user.is_some_and(|of_user| !places.keep(of_user, &principal.name, is_admin)) {
        let fault = Fault::failed(Code::Busy, "too many of your connections are open").retryable();
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, fault));
    }
    let taken = shared.app.rate.take(&principal.name, Instant::now());
    taken.map_err(|_| {
        let fault = Fault::failed(Code::Busy, "too many requests in a short time");
        ApiError::from(fault.remedy("send fewer in a second").retryable())
    })
}

/// Gives the connection of a request whose user is known a client's place.
pub(super) fn keep_connection(request: &Request) -> ApiResult<()> {
    let connection = request.extensions().get::<Arc<Connection>>();
    if connection.is_none_or(|connection| connection.authenticate()) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        Fault::failed(Code::Busy, "too many connections are open").retryable(),
    ))
}

/// Whose token this is, if it is one of this server's.
pub(super) async fn find_by_token(shared: &Shared, token: &str) -> ApiResult<Option<Principal>> {
    let digest = blake3::hash(token.as_bytes());
    // Hashes are compared in constant time.
    if digest == shared.logins.admin {
        return Ok(Some(Principal::admin()));
    }
    find_by_digest(shared, digest).await
}

/// Whose token has this digest, if one that holds does.
async fn find_by_digest(shared: &Shared, digest: blake3::Hash) -> ApiResult<Option<Principal>> {
    let app = Arc::clone(&shared.app);
    let found = super::blocking(move || app.tokens.find(digest, now_unix_ms())).await??;
    Ok(found.map(|(name, scopes)| Principal {
        name,
        scopes,
        token: Some(digest),
    }))
}

/// Whoever a cookie stands for, as long as the token holds that it was given for.
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

async fn find_user(shared: &Shared, method: &Method, headers: &HeaderMap) -> ApiResult<Principal> {
    if let Some(token) = bearer(headers)? {
        let found = find_by_token(shared, &token).await?;
        return found.ok_or_else(|| unauthorized("the token is not valid here"));
    }
    let by_cookie = shared.logins.of_cookie(headers);
    let Some(principal) = still_known(shared, by_cookie).await? else {
        return Err(unauthorized("a token is needed"));
    };
    // Pages of any site may open a WebSocket, and read what comes from it.
    let is_read = matches!(*method, Method::GET | Method::HEAD) && !headers.contains_key(UPGRADE);
    if !is_read && !is_same_site(headers) {
        return Err(ApiError::forbidden(
            "the request comes from a page of another site",
            "use a token in the Authorization header",
        ));
    }
    Ok(principal)
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

/// The token of a header in the form `Bearer TOKEN`.
pub(super) fn bearer_of(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a page of this server's own asks.
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

/// Refuses requests under a name that is not the server's: a page elsewhere whose name leads here could ask in the
/// user's place. Health is answered under every name, since probes use the machine's address. Answers get headers that
/// keep pages from being used by others.
pub(crate) async fn require_host(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let is_health = matches!(request.uri().path(), "/health/live" | "/health/ready");
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
    /// Returns true if the request names this server in its `Host`.
    pub(super) fn is_own_host(&self, headers: &HeaderMap) -> bool {
        host_of(headers).is_some_and(|host| self.logins.hosts.contains(&host))
    }
}

/// The name, in lower case, under which a request comes: its only `Host`.
pub(super) fn host_of(headers: &HeaderMap) -> Option<String> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok().map(str::to_ascii_lowercase),
        _ => None,
    }
}

/// What the login is asked for.
#[derive(Debug, Deserialize)]
pub(crate) struct LoginQuery {
    code: Option<String>,
}

/// `GET /login?code=...`: the printed address, which logs one browser in and leads to the interface. A browser that
/// comes without a code that holds is led there as well: it has logged in already, or is asked for a token.
pub(crate) async fn login(
    State(shared): State<Shared>,
    headers: HeaderMap,
    CheckedQuery(query): CheckedQuery<LoginQuery>,
) -> Response {
    let redeemed = query.code.as_deref().map(|code| shared.logins.redeem(code));
    let message = match redeemed {
        Some(Some(Ok(cookie))) => return shared.logins.with_cookie(&cookie),
        Some(Some(Err(fault))) => return ApiError::from(fault).into_response(),
        Some(None) => "this address has been used, or is too old",
        None => "the address of a login has a `code`",
    };
    if interface::wants_page(&headers) {
        return Redirect::to("/").into_response();
    }
    unauthorized(message).into_response()
}

/// `POST /api/login`: a cookie for whoever shows a token.
pub(crate) async fn login_by_token(
    State(shared): State<Shared>,
    axum::Extension(principal): axum::Extension<Principal>,
) -> Response {
    match shared.logins.admit(principal) {
        Ok(cookie) => shared.logins.with_cookie(&cookie),
        Err(fault) => ApiError::from(fault).into_response(),
    }
}

/// Which logins end.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogoutRequest {
    /// All of the user's, not only that of the browser that asks.
    #[serde(default)]
    all: bool,
}

/// `POST /api/logout`: ends the login of this browser, or all of the user's, and the user's logins to previews.
pub(crate) async fn log_out(
    State(shared): State<Shared>,
    axum::Extension(principal): axum::Extension<Principal>,
    headers: HeaderMap,
    JsonBody { value: wish, .. }: JsonBody<LogoutRequest>,
) -> Response {
    shared.previews.forget_user(&principal.name);
    match shared.logins.end(&headers, &principal.name, wish.all) {
        Ok(response) => response,
        Err(fault) => ApiError::from(fault).into_response(),
    }
}

/// Says how to come in where nobody has.
pub(crate) fn add_challenge(response: &mut Response) {
    if response.status() == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
}
