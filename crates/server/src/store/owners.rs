//! Owners of sessions and sandboxes, and the requests that created sessions.

use super::{SessionWorkspace, broken, open};
use glovebox_proto::{Code, Fault};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Owner and settings of a session or sandbox of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    /// Name of the user.
    pub user: String,
    /// True if changes are applied when the work is done.
    pub is_applied: bool,
}

/// Idempotency key of a request, and the digest of its body.
#[derive(Debug, Clone)]
pub(crate) struct RequestKey {
    pub key: String,
    pub digest: blake3::Hash,
}

/// Rows that are written before a session is created.
#[derive(Debug)]
pub(crate) struct SessionRows<'a> {
    pub id: &'a str,
    pub owned: &'a Owned,
    /// Origin of the workspace. None for a copy of a session that has no such row; its changes
    /// cannot be applied.
    pub workspace: Option<&'a SessionWorkspace>,
    pub request: Option<&'a RequestKey>,
    /// Name of the sandbox that is created with the session.
    pub sandbox: Option<&'a str>,
    pub now_unix_ms: u64,
}

/// Database of owners.
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

    /// Runs `write` in one transaction, which is rolled back if it fails.
    pub(super) fn change(
        &self,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Fault> {
        let mut db = self.db();
        let change = db.transaction().map_err(|error| broken(&error))?;
        write(&change)
            .and_then(|()| change.commit())
            .map_err(|error| broken(&error))
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

    /// Writes the rows of a session before the session itself. A session without these rows would
    /// be visible to no user, and nothing would limit where its changes are applied.
    pub(crate) fn add_session(&self, rows: &SessionRows<'_>) -> Result<(), Fault> {
        let SessionRows { id, owned, .. } = *rows;
        let owner = |change: &Transaction<'_>, kind: &str, id: &str, is_applied: bool| {
            let sql = "INSERT OR REPLACE INTO owner VALUES (?1, ?2, ?3, ?4)";
            change.execute(sql, params![kind, id, owned.user, is_applied])
        };
        self.change(|change| {
            owner(change, SESSION, id, owned.is_applied)?;
            if let Some(workspace) = rows.workspace {
                let (kind, name) = workspace.words();
                let sql = "INSERT OR REPLACE INTO workspace VALUES (?1, ?2, ?3)";
                change.execute(sql, [id, kind, name])?;
            }
            if let Some(request) = rows.request {
                add_request(change, &owned.user, request, id, rows.now_unix_ms)?;
            }
            if let Some(name) = rows.sandbox {
                owner(change, SANDBOX, name, false)?;
            }
            Ok(())
        })
    }

    pub(crate) fn remove_session(&self, id: &str) -> Result<(), Fault> {
        self.change(|change| {
            for sql in [
                "DELETE FROM owner WHERE kind = 'session' AND id = ?1",
                "DELETE FROM request WHERE session = ?1",
                "DELETE FROM chat WHERE session = ?1",
                "DELETE FROM workspace WHERE session = ?1",
                "DELETE FROM outcome WHERE session = ?1",
            ] {
                change.execute(sql, [id])?;
            }
            Ok(())
        })
    }

    pub(crate) fn sessions(&self) -> Result<Vec<(String, Owned)>, Fault> {
        self.list(SESSION)
    }

    pub(crate) fn sandbox(&self, name: &str) -> Result<Option<Owned>, Fault> {
        self.find(SANDBOX, name)
    }

    pub(crate) fn add_sandbox(&self, name: &str, user: &str) -> Result<(), Fault> {
        let sql = "INSERT OR REPLACE INTO owner VALUES (?1, ?2, ?3, FALSE)";
        let added = self.db().execute(sql, [SANDBOX, name, user]);
        added.map(drop).map_err(|error| broken(&error))
    }

    pub(crate) fn remove_sandbox(&self, name: &str) -> Result<(), Fault> {
        let sql = "DELETE FROM owner WHERE kind = ?1 AND id = ?2";
        let removed = self.db().execute(sql, [SANDBOX, name]);
        removed.map(drop).map_err(|error| broken(&error))
    }

    pub(crate) fn sandboxes(&self) -> Result<Vec<(String, Owned)>, Fault> {
        self.list(SANDBOX)
    }

    /// Returns the session that an earlier request of `user` with this key created.
    ///
    /// # Errors
    /// `conflict` if that request had another body.
    pub(crate) fn request(
        &self,
        user: &str,
        request: &RequestKey,
    ) -> Result<Option<String>, Fault> {
        let RequestKey { key, digest } = request;
        let sql = "SELECT session, digest FROM request WHERE user = ?1 AND key = ?2";
        let found = self.db().query_row(sql, [user, key.as_str()], |row| {
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

    /// Stores the session that a request created.
    pub(crate) fn add_request(
        &self,
        user: &str,
        request: &RequestKey,
        session: &str,
        now_unix_ms: u64,
    ) -> Result<(), Fault> {
        self.change(|change| add_request(change, user, request, session, now_unix_ms))
    }
}

fn add_request(
    change: &Transaction<'_>,
    user: &str,
    request: &RequestKey,
    session: &str,
    now_unix_ms: u64,
) -> rusqlite::Result<()> {
    let RequestKey { key, digest } = request;
    let sql = "INSERT INTO request VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = params![user, key, digest.as_bytes(), session, now_unix_ms as i64];
    change.execute(sql, values).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_repeated_leads_to_what_it_made() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let key = |body: &[u8]| RequestKey {
            key: "k".to_owned(),
            digest: blake3::hash(body),
        };
        let (one, other) = (key(b"one"), key(b"other"));
        assert_eq!(owners.request("ann", &one).unwrap(), None);
        let owned = Owned {
            user: "ann".to_owned(),
            is_applied: true,
        };
        let rows = SessionRows {
            id: "s-1",
            owned: &owned,
            workspace: Some(&SessionWorkspace::Own),
            request: Some(&one),
            sandbox: Some("x"),
            now_unix_ms: 0,
        };
        owners.add_session(&rows).unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        assert_eq!(owners.request("ann", &one).unwrap().unwrap(), "s-1");
        assert_eq!(owners.request("bob", &one).unwrap(), None);
        let refused = owners.request("ann", &other).unwrap_err();
        assert_eq!(refused.code, Code::Conflict);
        // The key is taken, so the transaction fails and writes no row at all.
        let twice = SessionRows { id: "s-2", ..rows };
        owners.add_session(&twice).unwrap_err();
        assert_eq!(owners.session("s-2").unwrap(), None);
        owners.remove_session("s-1").unwrap();
        assert_eq!(owners.request("ann", &one).unwrap(), None);
        assert_eq!(owners.session("s-1").unwrap(), None);
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
