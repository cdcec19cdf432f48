//! Named tokens with their scopes. Only digests of the tokens are stored.

use super::{broken, open};
use crate::config::Token;
use glovebox_proto::{Code, Fault};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum length of a user's name.
const MAX_NAME_CHARS: usize = 64;
/// Maximum number of tokens.
const MAX_TOKENS: i64 = 10_000;
/// User name of the administrator.
pub(crate) const ADMIN: &str = "admin";

/// Permission of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Read one's own sessions and sandboxes.
    Read,
    /// Create, continue and end one's own sessions and sandboxes.
    Run,
    /// Apply changes to the directory from which a session began.
    Apply,
    /// Every permission, on the objects of all users.
    Admin,
}

impl Scope {
    const ALL: [Self; 4] = [Self::Read, Self::Run, Self::Apply, Self::Admin];

    /// Returns the name on the command line and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Apply => "apply",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is no scope; there are read, run, apply and admin"))
    }
}

/// Set of permissions of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// Creates a set. [`Scope::Run`] and [`Scope::Apply`] include [`Scope::Read`].
    pub fn new(scopes: impl IntoIterator<Item = Scope>) -> Self {
        let mut scopes: Vec<Scope> = scopes.into_iter().collect();
        if scopes.contains(&Scope::Run) || scopes.contains(&Scope::Apply) {
            scopes.push(Scope::Read);
        }
        scopes.sort();
        scopes.dedup();
        Self(scopes)
    }

    /// Returns true if the set grants `scope`. [`Scope::Admin`] grants every scope.
    pub fn has(&self, scope: Scope) -> bool {
        self.0.contains(&scope) || self.0.contains(&Scope::Admin)
    }

    /// Returns the names of the scopes.
    pub fn words(&self) -> Vec<&'static str> {
        self.0.iter().map(|scope| scope.as_str()).collect()
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(","))
    }
}

/// Description of a token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenInfo {
    /// Name of the user.
    pub name: String,
    /// Names of the scopes.
    pub scopes: Vec<&'static str>,
    /// Time of creation, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Time of expiry, in milliseconds since 1970. None if it never expires.
    pub expires_unix_ms: Option<u64>,
}

/// Database of tokens.
#[derive(Debug)]
pub struct TokenStore {
    db: Mutex<Connection>,
}

impl TokenStore {
    /// Opens the tokens of the server whose state directory is `state_dir`.
    ///
    /// # Errors
    /// Fails if the database cannot be opened.
    pub fn open(state_dir: &Path) -> Result<Self, Fault> {
        Ok(Self {
            db: Mutex::new(open(&state_dir.join("server"))?),
        })
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a token for the user `name`. Its text is returned here and not stored.
    ///
    /// # Errors
    /// Fails if the name is invalid or has a token, or if there are too many tokens.
    pub fn create(
        &self,
        name: &str,
        scopes: &Scopes,
        expires_unix_ms: Option<u64>,
        now_unix_ms: u64,
    ) -> Result<Token, Fault> {
        check_name(name)?;
        let token = Token::random()?;
        let db = self.db();
        let count: i64 = db
            .query_row("SELECT count(*) FROM token", [], |row| row.get(0))
            .map_err(|error| broken(&error))?;
        if count >= MAX_TOKENS {
            return Err(
                Fault::failed(Code::Busy, format!("there are {MAX_TOKENS} tokens"))
                    .remedy("revoke those that are not needed"),
            );
        }
        let made = db.execute(
            "INSERT INTO token VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
            params![
                name,
                token.digest().as_bytes(),
                scopes.to_string(),
                now_unix_ms as i64,
                expires_unix_ms.map(|at| at as i64)
            ],
        );
        match made.map_err(|error| broken(&error))? {
            0 => Err(Fault::failed(
                Code::AlreadyExists,
                format!("there is a token `{name}` already"),
            )
            .remedy("revoke it first, or choose another name")),
            _ => Ok(token),
        }
    }

    /// Returns all tokens, sorted by name.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn list(&self) -> Result<Vec<TokenInfo>, Fault> {
        let db = self.db();
        let read = || {
            let sql = "SELECT name, scopes, created, expires FROM token ORDER BY name";
            let mut statement = db.prepare(sql)?;
            let rows = statement.query_map([], |row| {
                Ok(TokenInfo {
                    name: row.get(0)?,
                    scopes: parse_scopes(&row.get::<_, String>(1)?).words(),
                    created_unix_ms: row.get::<_, i64>(2)? as u64,
                    expires_unix_ms: row.get::<_, Option<i64>>(3)?.map(|at| at as u64),
                })
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        read().map_err(|error: rusqlite::Error| broken(&error))
    }

    /// Deletes the token of a user, which is refused from then on.
    ///
    /// # Errors
    /// `not-found` if there is none.
    pub fn revoke(&self, name: &str) -> Result<(), Fault> {
        let gone = self
            .db()
            .execute("DELETE FROM token WHERE name = ?1", [name])
            .map_err(|error| broken(&error))?;
        if gone == 0 {
            return Err(
                Fault::failed(Code::NotFound, format!("there is no token `{name}`"))
                    .remedy("`glovebox token list` shows those there are"),
            );
        }
        Ok(())
    }

    /// Returns the user and scopes of the token with this digest. None if it is unknown or has
    /// expired.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub(crate) fn find(
        &self,
        digest: blake3::Hash,
        now_unix_ms: u64,
    ) -> Result<Option<(String, Scopes)>, Fault> {
        // The comparison need not take constant time: it compares digests, which reveal nothing
        // about a token.
        let sql = "SELECT name, scopes FROM token WHERE digest = ?1 AND (expires IS NULL OR expires > ?2)";
        let found =
            self.db()
                .query_row(sql, params![digest.as_bytes(), now_unix_ms as i64], |row| {
                    Ok((row.get(0)?, parse_scopes(&row.get::<_, String>(1)?)))
                });
        found.optional().map_err(|error| broken(&error))
    }
}

fn parse_scopes(words: &str) -> Scopes {
    Scopes::new(words.split(',').filter_map(|word| word.parse().ok()))
}

fn check_name(name: &str) -> Result<(), Fault> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let is_good = !name.is_empty()
        && name.len() <= MAX_NAME_CHARS
        && name.chars().all(is_word)
        && name != ADMIN;
    if is_good {
        return Ok(());
    }
    Err(Fault::failed(
        Code::InvalidArgument,
        format!(
            "`{}` cannot be the name of a token",
            name.escape_debug().take(MAX_NAME_CHARS).collect::<String>()
        ),
    )
    .remedy(format!(
        "choose letters, digits, `-`, `_`, `.` or `@`, at most {MAX_NAME_CHARS}, and not `{ADMIN}`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_user_until_it_is_revoked_or_ends() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenStore::open(dir.path()).unwrap();
        let run = Scopes::new([Scope::Run]);
        let token = tokens.create("ann", &run, Some(100), 1).unwrap();
        let found = tokens.find(token.digest(), 99).unwrap().unwrap();
        assert_eq!(found.0, "ann");
        assert!(found.1.has(Scope::Read) && found.1.has(Scope::Run));
        assert!(!found.1.has(Scope::Apply) && !found.1.has(Scope::Admin));
        assert_eq!(tokens.find(token.digest(), 100).unwrap(), None);
        assert_eq!(tokens.find(blake3::hash(b"x"), 1).unwrap(), None);
        let again = tokens.create("ann", &run, None, 1).unwrap_err();
        assert_eq!(again.code, Code::AlreadyExists);
        let file = std::fs::read(dir.path().join("server/server.db")).unwrap();
        let text = token.reveal().as_bytes();
        assert!(!file.windows(text.len()).any(|bytes| bytes == text));
        tokens.revoke("ann").unwrap();
        assert_eq!(tokens.find(token.digest(), 1).unwrap(), None);
        assert_eq!(tokens.revoke("ann").unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn names_are_bounded_words() {
        for name in ["ann", "ci@example.com", "a-b_c.d"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "admin", "a b", "a\n", "ä", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
