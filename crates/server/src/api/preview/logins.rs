//! Access to previews: one-time codes, which the API issues, and the cookies for which browsers
//! exchange them.
//!
//! A code or a cookie is valid for one preview and one user. The cookie serves no other purpose
//! than to view that preview, so the page shown there can steal nothing that it does not have
//! already.

use super::super::logins::{cookies, is_login_cookie};
use super::super::principal::Principal;
use crate::config::Token;
use crate::preview_domain::PreviewAddress;
use glovebox_proto::Fault;
use http::HeaderMap;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const COOKIE_NAME: &str = "glovebox-preview";
/// Name of the cookie over TLS, which no page of another host can replace.
const SECURE_COOKIE_NAME: &str = "__Host-glovebox-preview";
/// Lifetime of a code, in milliseconds.
const CODE_MS: u64 = 60 * 1000;
/// Lifetime of a login to a preview, in milliseconds.
const LOGIN_MS: u64 = 8 * 3600 * 1000;
/// Maximum number of codes and of cookies of one user; a further one replaces the oldest.
const MAX_CODES_PER_USER: usize = 64;
const MAX_LOGINS_PER_USER: usize = 256;

/// Codes and cookies of previews.
#[derive(Debug)]
pub(super) struct PreviewLogins {
    is_secure: bool,
    state: Mutex<State>,
}

/// Tickets by the digest of the code or cookie.
#[derive(Debug, Default)]
struct State {
    codes: HashMap<blake3::Hash, Ticket>,
    cookies: HashMap<blake3::Hash, Ticket>,
}

/// Access that a code or a cookie grants.
#[derive(Debug, Clone)]
struct Ticket {
    principal: Principal,
    address: PreviewAddress,
    /// Path and query to which a code redirects.
    path: String,
    until_unix_ms: u64,
}

/// Result of redeeming a code.
#[derive(Debug)]
pub(super) struct CodeOutcome {
    pub user: String,
    pub cookie: Token,
    pub path: String,
}

impl PreviewLogins {
    pub(super) fn new(is_secure: bool) -> Self {
        Self {
            is_secure,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a code for one browser. Returns it with its expiry.
    pub(super) fn make_code(
        &self,
        principal: Principal,
        address: PreviewAddress,
        path: String,
        now_unix_ms: u64,
    ) -> Result<(Token, u64), Fault> {
        let code = Token::random()?;
        let until_unix_ms = now_unix_ms + CODE_MS;
        let ticket = Ticket {
            principal,
            address,
            path,
            until_unix_ms,
        };
        let codes = &mut self.state().codes;
        make_room(codes, &ticket, MAX_CODES_PER_USER, now_unix_ms);
        codes.insert(code.digest(), ticket);
        Ok((code, until_unix_ms))
    }

    /// Exchanges a code of this preview for a cookie. None if the code is unknown, expired or of
    /// another preview. The code is invalid afterwards in any case.
    pub(super) fn redeem(
        &self,
        code: &str,
        address: &PreviewAddress,
        now_unix_ms: u64,
    ) -> Option<Result<CodeOutcome, Fault>> {
        let mut state = self.state();
        let ticket = state.codes.remove(&blake3::hash(code.as_bytes()))?;
        if ticket.address != *address || ticket.until_unix_ms <= now_unix_ms {
            return None;
        }
        let cookie = match Token::random() {
            Ok(cookie) => cookie,
            Err(fault) => return Some(Err(fault)),
        };
        let redeemed = CodeOutcome {
            user: ticket.principal.name.clone(),
            cookie: cookie.clone(),
            path: ticket.path.clone(),
        };
        let ticket = Ticket {
            until_unix_ms: now_unix_ms + LOGIN_MS,
            ..ticket
        };
        make_room(
            &mut state.cookies,
            &ticket,
            MAX_LOGINS_PER_USER,
            now_unix_ms,
        );
        state.cookies.insert(cookie.digest(), ticket);
        Some(Ok(redeemed))
    }

    /// Ends all logins of a user and revokes the user's codes.
    pub(super) fn forget_user(&self, user: &str) {
        let mut state = self.state();
        let State { codes, cookies } = &mut *state;
        for tickets in [codes, cookies] {
            tickets.retain(|_, ticket| ticket.principal.name != user);
        }
    }

    /// Returns the principal of a request's cookie for this preview. None if it has no valid one.
    pub(super) fn find(
        &self,
        headers: &HeaderMap,
        address: &PreviewAddress,
        now_unix_ms: u64,
    ) -> Option<Principal> {
        let state = self.state();
        cookies(headers, self.cookie_name()).find_map(|shown| {
            let ticket = state.cookies.get(&blake3::hash(shown.as_bytes()))?;
            let holds = ticket.address == *address && ticket.until_unix_ms > now_unix_ms;
            holds.then(|| ticket.principal.clone())
        })
    }

    /// Returns the `Set-Cookie` header of a login.
    pub(super) fn set_cookie(&self, cookie: &Token) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        // `Lax`: the browser is redirected from the interface, which is another site; it would not
        // send a `Strict` cookie then.
        format!(
            "{}={}; Path=/; HttpOnly; SameSite=Lax; Max-Age={}{secure}",
            self.cookie_name(),
            cookie.reveal(),
            LOGIN_MS / 1000
        )
    }

    const fn cookie_name(&self) -> &'static str {
        if self.is_secure {
            SECURE_COOKIE_NAME
        } else {
            COOKIE_NAME
        }
    }
}

/// Returns true if a cookie of this name is a login to a preview or to the interface, under any way
/// of serving.
pub(super) fn is_own_cookie(name: &[u8]) -> bool {
    let own = [COOKIE_NAME, SECURE_COOKIE_NAME];
    own.iter().any(|own| own.as_bytes() == name) || is_login_cookie(name)
}

/// Removes expired tickets, and the oldest of the same user if there are too many.
fn make_room(
    tickets: &mut HashMap<blake3::Hash, Ticket>,
    next: &Ticket,
    most: usize,
    now_unix_ms: u64,
) {
    tickets.retain(|_, ticket| ticket.until_unix_ms > now_unix_ms);
    let of_user = |ticket: &Ticket| ticket.principal.name == next.principal.name;
    let count = tickets.values().filter(|ticket| of_user(ticket)).count();
    if count >= most {
        let own = tickets.iter().filter(|(_, ticket)| of_user(ticket));
        let oldest = own.min_by_key(|(_, ticket)| ticket.until_unix_ms);
        if let Some(digest) = oldest.map(|(digest, _)| *digest) {
            tickets.remove(&digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Scope, Scopes};
    use http::HeaderValue;
    use http::header::COOKIE;

    fn user(name: &str) -> Principal {
        Principal {
            name: name.to_owned(),
            scopes: Scopes::new([Scope::Run]),
            token: None,
        }
    }

    fn address(port: u16) -> PreviewAddress {
        PreviewAddress::new(port, "s-a").unwrap()
    }

    fn code(logins: &PreviewLogins, name: &str, port: u16, now: u64) -> String {
        let made = logins.make_code(user(name), address(port), "/".to_owned(), now);
        made.unwrap().0.reveal().to_owned()
    }

    fn with_cookie(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn a_code_lets_one_browser_into_one_preview_for_a_minute() {
        let logins = PreviewLogins::new(false);
        let first = code(&logins, "ann", 80, 0);
        let redeemed = logins.redeem(&first, &address(80), CODE_MS - 1);
        let cookie = redeemed.unwrap().unwrap().cookie;
        assert!(logins.redeem(&first, &address(80), 1).is_none(), "twice");
        let late = code(&logins, "ann", 80, 0);
        assert!(logins.redeem(&late, &address(80), CODE_MS).is_none());
        let elsewhere = code(&logins, "ann", 80, 0);
        assert!(logins.redeem(&elsewhere, &address(81), 1).is_none());
        assert!(logins.redeem(&elsewhere, &address(80), 1).is_none());

        let set = logins.set_cookie(&cookie);
        let shown = with_cookie(set.split(';').next().unwrap());
        let found = |port, now| logins.find(&shown, &address(port), now).map(|one| one.name);
        assert_eq!(found(80, CODE_MS), Some("ann".to_owned()));
        assert_eq!(found(81, CODE_MS), None);
        assert_eq!(found(80, CODE_MS + LOGIN_MS), None);
        // A planted cookie of the same name does not hide the valid one.
        let both = format!(
            "glovebox-preview=planted; {}",
            set.split(';').next().unwrap()
        );
        assert!(logins.find(&with_cookie(&both), &address(80), 1).is_some());
    }

    #[test]
    fn a_user_who_asks_for_many_codes_loses_the_oldest_and_takes_nobody_elses() {
        let logins = PreviewLogins::new(false);
        let of_bob = code(&logins, "bob", 80, 0);
        let of_ann: Vec<_> = (0..=MAX_CODES_PER_USER)
            .map(|n| code(&logins, "ann", 80, n as u64))
            .collect();
        assert_eq!(logins.state().codes.len(), MAX_CODES_PER_USER + 1);
        let redeem = |code: &str| logins.redeem(code, &address(80), 1);
        assert!(redeem(&of_ann[0]).is_none());
        assert!(redeem(&of_ann[1]).is_some() && redeem(&of_bob).is_some());
    }

    #[test]
    fn over_tls_the_cookie_is_one_that_no_other_host_can_set() {
        let logins = PreviewLogins::new(true);
        let set = logins.set_cookie(&Token::random().unwrap());
        assert!(set.starts_with("__Host-glovebox-preview=") && set.ends_with("; Secure"));
        assert!(!set.contains("Domain"));
    }
}
