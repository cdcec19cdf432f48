//! Logins of browsers: one cookie each, kept over restarts, a limited number per user.

use super::principal::Principal;
use crate::config::Token;
use crate::store::{ADMIN, LoginRow, Scopes};
use crate::work::App;
use axum::response::{IntoResponse as _, Redirect, Response};
use glovebox_mcp::server::usual_hosts;
use glovebox_proto::Fault;
use glovebox_session::host::now_unix_ms;
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::warn;

const COOKIE_NAME: &str = "glovebox";
/// Name of the cookie over TLS. Browsers accept it from this host only, so no page of another host
/// below the same domain, such as a preview, can replace it (RFC 6265bis, 4.1.3.2).
const HOST_COOKIE_NAME: &str = "__Host-glovebox";
/// Name of the cookie over TLS below a base path, which the `__Host-` prefix does not allow.
const SECURE_COOKIE_NAME: &str = "__Secure-glovebox";
/// Maximum number of logins of one user; a further one replaces the oldest.
const MAX_LOGINS_PER_USER: usize = 16;
/// Lifetime of a login, in milliseconds.
const LOGIN_MS: u64 = 7 * 24 * 3600 * 1000;
/// Lifetime of the printed login address, in milliseconds.
const CODE_MS: u64 = 24 * 3600 * 1000;

/// Logins of all browsers.
#[derive(Debug)]
pub(crate) struct Logins {
    app: Arc<App>,
    admin: blake3::Hash,
    state: Mutex<LoginState>,
    hosts: Vec<String>,
}

/// Form of the login cookie, which depends on how the browser reaches the server.
struct CookieForm<'a> {
    name: &'static str,
    base_path: &'a str,
    is_secure: bool,
}

impl CookieForm<'_> {
    /// Returns the `Set-Cookie` header that sets the cookie for `seconds`.
    fn to_header(&self, value: &str, seconds: u64) -> Option<HeaderValue> {
        let Self {
            name,
            base_path,
            is_secure,
        } = self;
        let secure = if *is_secure { "; Secure" } else { "" };
        // The name, hexadecimal digits and the validated path are valid in a header.
        HeaderValue::from_str(&format!(
            "{name}={value}; Path={base_path}/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}"
        ))
        .ok()
    }
}

#[derive(Debug, Default)]
struct LoginState {
    /// Digest of the code in the printed address and its expiry. None once it was used.
    code: Option<(blake3::Hash, u64)>,
    /// Principal and expiry of each cookie, by its digest.
    cookies: HashMap<blake3::Hash, (Principal, u64)>,
}

impl Logins {
    /// Loads the logins of earlier runs.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
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
        };
        for row in app.owners.logins(now_unix_ms())? {
            let is_admin = row.user == ADMIN;
            // A new administrator token ends the logins made with the old one.
            if is_admin && row.token != logins.admin_binding() {
                app.owners.remove_login(&row.digest)?;
                continue;
            }
            let principal = if is_admin {
                Principal::admin()
            } else {
                // The scopes are those of the token, which is looked up with each request.
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

    /// Returns the token digest to which the administrator's logins are bound. None if the token
    /// was generated rather than configured.
    fn admin_binding(&self) -> Option<blake3::Hash> {
        (!self.app.config.is_admin_token_made).then_some(self.admin)
    }

    /// Ends the login of a request's cookie, or all logins of its user, and removes the cookie from
    /// the browser.
    pub(super) fn end(
        &self,
        headers: &HeaderMap,
        is_secure: bool,
        user: &str,
        is_all: bool,
    ) -> Result<Response, Fault> {
        let form = self.cookie_form(is_secure);
        let shown: Vec<blake3::Hash> = cookies(headers, form.name)
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
        let mut response = StatusCode::NO_CONTENT.into_response();
        if let Some(value) = form.to_header("", 0) {
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
        // A login that cannot be stored, as on a full disk, lasts until the server ends.
        if let Err(fault) = self.app.owners.add_login(&row) {
            warn!(problem = fault.message, "a login is not kept on disk");
        }
        state.cookies.insert(digest, (principal, until_unix_ms));
        Ok(cookie)
    }

    /// Returns true for the digest of the administrator's token. Hashes are compared in constant
    /// time.
    pub(super) fn is_admin_token(&self, digest: blake3::Hash) -> bool {
        digest == self.admin
    }

    /// Returns the hosts, with ports, under which the server accepts requests.
    pub(super) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    fn cookie_form(&self, is_secure: bool) -> CookieForm<'_> {
        let base_path = self.app.config.base_path.as_str();
        let name = match (is_secure, base_path.is_empty()) {
            (false, _) => COOKIE_NAME,
            (true, true) => HOST_COOKIE_NAME,
            (true, false) => SECURE_COOKIE_NAME,
        };
        CookieForm {
            name,
            base_path,
            is_secure,
        }
    }

    /// Redirects to the interface and sets the cookie, which is limited to TLS if the browser uses
    /// TLS.
    pub(super) fn with_cookie(&self, cookie: &Token, is_secure: bool) -> Response {
        let mut response = self.lead_in();
        let form = self.cookie_form(is_secure);
        if let Some(value) = form.to_header(cookie.reveal(), LOGIN_MS / 1000) {
            response.headers_mut().insert(SET_COOKIE, value);
        }
        response
    }

    /// Redirects to the interface.
    pub(super) fn lead_in(&self) -> Response {
        let base_path = self.app.config.base_path.as_str();
        Redirect::to(&format!("{base_path}/")).into_response()
    }

    fn state(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the code that logs one browser in, once. It replaces an earlier code.
    pub(crate) fn make_code(&self) -> Result<Token, Fault> {
        let code = Token::random()?;
        self.state().code = Some((code.digest(), now_unix_ms() + CODE_MS));
        Ok(code)
    }

    /// Exchanges the code for a login cookie. None if the code is wrong, used or expired.
    pub(super) fn redeem(&self, code: &str) -> Option<Result<Token, Fault>> {
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
        // The code stays valid if no cookie could be made, so that the user can try again.
        if cookie.is_ok() {
            state.code = None;
        }
        Some(cookie)
    }

    /// Creates a login cookie for a user who was authenticated by a token.
    pub(super) fn admit(&self, principal: Principal) -> Result<Token, Fault> {
        self.add(&mut self.state(), principal, now_unix_ms())
    }

    pub(super) fn of_cookie(&self, headers: &HeaderMap, is_secure: bool) -> Option<Principal> {
        let form = self.cookie_form(is_secure);
        let now = now_unix_ms();
        let state = self.state();
        cookies(headers, form.name).find_map(|shown| {
            let (principal, until) = state.cookies.get(&blake3::hash(shown.as_bytes()))?;
            (*until > now).then(|| principal.clone())
        })
    }
}

/// Returns the values of all cookies of this name. A page of the same domain may have added one.
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

/// Returns true if a cookie of this name is a login to the interface, under any way of serving.
pub(super) fn is_login_cookie(name: &[u8]) -> bool {
    [COOKIE_NAME, HOST_COOKIE_NAME, SECURE_COOKIE_NAME]
        .iter()
        .any(|own| own.as_bytes() == name)
}

/// Removes expired logins, and the oldest of `user` so that one more fits. Returns the user's
/// removed logins.
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
