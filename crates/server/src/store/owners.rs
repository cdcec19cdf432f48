//! Whose a session or a sandbox is, and which request made it.

use super::{broken, open};
use glovebox_proto::{Code, Fault};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the server knows of a session or sandbox of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    /// The user.
    pub user: String,
    /// Whether changes are taken over when its work is done.
    pub is_applied: bool,
}

/// Owners on disk.
#[derive(Debug)]
pub(crate) struct Owners {
    db: Mutex<Connection>,
}

const SESSION: &str = "session";
const SANDBOX: &str = "sandbox";

impl Owners {
    pub(crate) fn open(dir: &Path) -> Result<Self, Fault> {
        Ok(Self {
            db: Mutex::new(open(dir)?),
        })
    }

    pub(super) fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, kind: &str, id: &str) -> Result<Option<Owned>, Fault> {
        let sql = "SELECT user, applies FROM owner WHERE kind = ?1 AND id = ?2";
        let found = self.db().query_row(sql, [kind, id], |row| {
            Ok(Owned {
                user: row.get(0)?,
                is_applied: row.get(1)?,
            })
        });
        found.optional().map_err(|error| broken(&error))
    }

    fn add(&self, kind: &str, id: &str, owned: &Owned) -> Result<(), Fault> {
        let sql = "INSERT OR REPLACE INTO owner VALUES (?1, ?2, ?3, ?4)";
        let values = params![kind, id, owned.user, owned.is_applied];
        let added = self.db().execute(sql, values);
        added.map(drop).map_err(|error| broken(&error))
    }

    fn remove(&self, kind: &str, id: &str) -> Result<(), Fault> {
        let sql = "DELETE FROM owner WHERE kind = ?1 AND id = ?2";
        let removed = self.db().execute(sql, [kind, id]);
        removed.map(drop).map_err(|error| broken(&error))
    }

    fn list(&self, kind: &str) -> Result<Vec<(String, Owned)>, Fault> {
        let db = self.db();
        let read = || {
            let mut statement =
                db.prepare_cached("SELECT id, user, applies FROM owner WHERE kind = ?1")?;
            let rows = statement.query_map([kind], |row| {
                let owned = Owned {
                    user: row.get(1)?,
                    is_applied: row.get(2)?,
                };
                Ok((row.get(0)?, owned))
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        read().map_err(|error: rusqlite::Error| broken(&error))
    }

    pub(crate) fn session(&self, id: &str) -> Result<Option<Owned>, Fault> {
        self.find(SESSION, id)
    }

    pub(crate) fn add_session(&self, id: &str, owned: &Owned) -> Result<(), Fault> {
        self.add(SESSION, id, owned)
    }

    pub(crate) fn remove_session(&self, id: &str) -> Result<(), Fault> {
        self.remove(SESSION, id)?;
        let db = self.db();
        let removed = db
            .execute("DELETE FROM request WHERE session = ?1", [id])
            .and_then(|_| db.execute("DELETE FROM chat WHERE session = ?1", [id]))
            .and_then(|_| db.execute("DELETE FROM workspace WHERE session = ?1", [id]));
        removed.map(drop).map_err(|error| broken(&error))
    }

    pub(crate) fn sessions(&self) -> Result<Vec<(String, Owned)>, Fault> {
        self.list(SESSION)
    }

    pub(crate) fn sandbox(&self, name: &str) -> Result<Option<Owned>, Fault> {
        self.find(SANDBOX, name)
    }

    pub(crate) fn add_sandbox(&self, name: &str, user: &str) -> Result<(), Fault> {
        let owned = Owned {
            user: user.to_owned(),
            is_applied: false,
        };
        self.add(SANDBOX, name, &owned)
    }

    pub(crate) fn remove_sandbox(&self, name: &str) -> Result<(), Fault> {
        self.remove(SANDBOX, name)
    }

    pub(crate) fn sandboxes(&self) -> Result<Vec<(String, Owned)>, Fault> {
        self.list(SANDBOX)
    }

    /// The session that an earlier request of `user` with this key has made.
    ///
    /// # Errors
    /// `conflict` when that request was a different one.
    pub(crate) fn request(
        &self,
        user: &str,
        key: &str,
        digest: blake3::Hash,
    ) -> Result<Option<String>, Fault> {
        let sql = "SELECT session, digest FROM request WHERE user = ?1 AND key = ?2";
        let found = self.db().query_row(sql, [user, key], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
        });
        match found.optional().map_err(|error| broken(&error))? {
            None => Ok(None),
            Some((session, before)) if before == digest.as_bytes() => Ok(Some(session)),
            Some(_) => Err(Fault::failed(
                Code::Conflict,
                "this Idempotency-Key was used with another request",
            )
            .remedy("use a new key for a new request")),
        }
    }

    /// Remembers which session a request has made.
    pub(crate) fn add_request(
        &self,
        user: &str,
        key: &str,
        digest: blake3::Hash,
        session: &str,
        now_unix_ms: u64,
    ) -> Result<(), Fault> {
        let sql = "INSERT INTO request VALUES (?1, ?2, ?3, ?4, ?5)";
        let values = params![user, key, digest.as_bytes(), session, now_unix_ms as i64];
        let added = self.db().execute(sql, values);
        added.map(drop).map_err(|error| broken(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_repeated_leads_to_what_it_made() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let (one, other) = (blake3::hash(b"one"), blake3::hash(b"other"));
        assert_eq!(owners.request("ann", "k", one).unwrap(), None);
        owners.add_request("ann", "k", one, "s-1", 0).unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        assert_eq!(owners.request("ann", "k", one).unwrap().unwrap(), "s-1");
        assert_eq!(owners.request("bob", "k", one).unwrap(), None);
        let refused = owners.request("ann", "k", other).unwrap_err();
        assert_eq!(refused.code, Code::Conflict);
        owners.remove_session("s-1").unwrap();
        assert_eq!(owners.request("ann", "k", one).unwrap(), None);
    }

    #[test]
    fn a_session_and_a_sandbox_of_one_name_have_owners_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        owners.add_sandbox("x", "ann").unwrap();
        assert_eq!(owners.session("x").unwrap(), None);
        assert_eq!(owners.sandbox("x").unwrap().unwrap().user, "ann");
        owners.remove_sandbox("x").unwrap();
        assert!(owners.sandboxes().unwrap().is_empty());
    }
}
