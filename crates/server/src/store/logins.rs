//! Logins of browsers, kept so that they survive a restart of the server.

use super::{Owners, broken};
use glovebox_proto::Fault;
use rusqlite::params;

/// A login of a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginRow {
    /// Digest of the cookie.
    pub digest: blake3::Hash,
    pub user: String,
    /// Digest of the token on which the login depends. None for the administrator if the token was
    /// generated for one run.
    pub token: Option<blake3::Hash>,
    pub until_unix_ms: u64,
}

impl Owners {
    /// Returns the logins that have not expired, and deletes expired ones.
    pub(crate) fn logins(&self, now_unix_ms: u64) -> Result<Vec<LoginRow>, Fault> {
        let db = self.db();
        let read = || {
            db.execute("DELETE FROM login WHERE until <= ?1", [now_unix_ms as i64])?;
            let mut statement = db.prepare("SELECT digest, user, token, until FROM login")?;
            let rows = statement.query_map([], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)?))
            })?;
            rows.collect::<Result<Vec<(Vec<u8>, String, Option<Vec<u8>>, i64)>, _>>()
        };
        let rows = read().map_err(|error: rusqlite::Error| broken(&error))?;
        let row = |(digest, user, token, until): (Vec<u8>, String, Option<Vec<u8>>, i64)| {
            let token = match token {
                Some(token) => Some(read_digest(&token)?),
                None => None,
            };
            Some(LoginRow {
                digest: read_digest(&digest)?,
                user,
                token,
                until_unix_ms: u64::try_from(until).ok()?,
            })
        };
        Ok(rows.into_iter().filter_map(row).collect())
    }

    pub(crate) fn add_login(&self, login: &LoginRow) -> Result<(), Fault> {
        let token = login.token.map(|token| token.as_bytes().to_vec());
        let added = self.db().execute(
            "INSERT OR REPLACE INTO login VALUES (?1, ?2, ?3, ?4)",
            params![
                login.digest.as_bytes(),
                login.user,
                token,
                login.until_unix_ms as i64
            ],
        );
        added.map(drop).map_err(|error| broken(&error))
    }

    pub(crate) fn remove_login(&self, digest: &blake3::Hash) -> Result<(), Fault> {
        let sql = "DELETE FROM login WHERE digest = ?1";
        let removed = self.db().execute(sql, [digest.as_bytes()]);
        removed.map(drop).map_err(|error| broken(&error))
    }
}

fn read_digest(bytes: &[u8]) -> Option<blake3::Hash> {
    blake3::Hash::from_slice(bytes).ok()
}
