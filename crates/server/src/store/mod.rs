//! Database and audit log of the server. The database holds owners, tokens, logins, requests and
//! uploads.
//!
//! Sessions are in the log of `glovebox_agent`, sandboxes in the registry. The database holds only
//! what those do not know.

mod addresses;
mod audit;
mod audit_log;
mod bundles;
mod logins;
mod outcomes;
mod owners;
mod tokens;
mod uploads;
mod workspaces;

pub(crate) use audit::{AuditEntry, Decision, EgressEntry, ToolEntry, Via};
pub(crate) use audit_log::AuditLog;
pub use audit_log::{AuditFilter, export_audit_log};
pub(crate) use bundles::{BundleRow, ChatTurns};
pub(crate) use logins::LoginRow;
pub(crate) use owners::{Owned, Owners, RequestKey, SessionRows};
pub(crate) use tokens::ADMIN;
pub use tokens::{Scope, Scopes, TokenInfo, TokenStore};
pub(crate) use uploads::Upload;
pub(crate) use workspaces::{SessionWorkspace, WorkspaceChoice};

use glovebox_agent::make_private_database;
use glovebox_proto::{Code, Fault};
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

/// Maximum time to wait for another process that holds a lock on the database.
const BUSY: Duration = Duration::from_secs(10);

/// Version of the tables. A database of another version is refused, not converted.
const LAYOUT: i64 = 3;

/// Opens `server.db` in `dir`, and creates the directory and the tables if they are missing.
fn open(dir: &Path) -> Result<Connection, Fault> {
    let cannot = |error: &std::io::Error| {
        Fault::failed(
            Code::Io,
            format!(
                "cannot open the server's files in {}: {error}",
                dir.display()
            ),
        )
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| cannot(&error))?;
    let file = dir.join("server.db");
    make_private_database(&file).map_err(|error| cannot(&error))?;
    let mut db = Connection::open(&file).map_err(|error| broken(&error))?;
    let mut prepare = || {
        // First: the change of the journal mode needs a lock that another process may hold.
        db.busy_timeout(BUSY)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        // With WAL, a power failure may undo the last transactions but cannot corrupt the file
        // (https://www.sqlite.org/pragma.html#pragma_synchronous).
        db.pragma_update(None, "synchronous", "NORMAL")?;
        // Immediate, because another process, such as `glovebox token`, may create the tables at
        // the same moment.
        let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let layout: i64 = change.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let has_tables = "SELECT EXISTS (SELECT 1 FROM sqlite_master)";
        let is_new = layout == 0 && !change.query_row(has_tables, [], |row| row.get(0))?;
        if !is_new && layout != LAYOUT {
            return Ok(false);
        }
        // Added without a new version: programs that do not know these tables do not need them.
        change.execute_batch(
            "CREATE TABLE IF NOT EXISTS login (
                 digest BLOB PRIMARY KEY, user TEXT NOT NULL, token BLOB, until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS address (
                 url TEXT PRIMARY KEY, user TEXT NOT NULL UNIQUE) STRICT, WITHOUT ROWID;",
        )?;
        if !is_new {
            change.commit()?;
            return Ok(true);
        }
        change.execute_batch(
            "CREATE TABLE token (
                 name TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, scopes TEXT NOT NULL,
                 created INTEGER NOT NULL, expires INTEGER) STRICT;
             CREATE TABLE owner (
                 kind TEXT NOT NULL, id TEXT NOT NULL, user TEXT NOT NULL, applies INTEGER NOT NULL,
                 PRIMARY KEY (kind, id)) STRICT, WITHOUT ROWID;
             CREATE TABLE request (
                 user TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, session TEXT NOT NULL,
                 at INTEGER NOT NULL, PRIMARY KEY (user, key)) STRICT, WITHOUT ROWID;
             CREATE TABLE bundle (
                 user TEXT NOT NULL, hash TEXT NOT NULL, at INTEGER NOT NULL, is_typescript INTEGER NOT NULL,
                 signature BLOB,
                 PRIMARY KEY (user, hash)) STRICT, WITHOUT ROWID;
             CREATE TABLE chat (
                 user TEXT NOT NULL, chat TEXT NOT NULL, session TEXT NOT NULL, begun TEXT NOT NULL,
                 PRIMARY KEY (user, chat)) STRICT, WITHOUT ROWID;
             CREATE TABLE workspace (
                 session TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL) STRICT, WITHOUT ROWID;
             CREATE TABLE outcome (
                 session TEXT PRIMARY KEY, outcome TEXT NOT NULL) STRICT, WITHOUT ROWID;
             CREATE TABLE upload (
                 id TEXT PRIMARY KEY, user TEXT NOT NULL, files INTEGER NOT NULL, directories INTEGER NOT NULL,
                 links INTEGER NOT NULL, bytes INTEGER NOT NULL, created INTEGER NOT NULL,
                 used INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
        )?;
        change.pragma_update(None, "user_version", LAYOUT)?;
        change.commit()?;
        Ok(true)
    };
    let is_ours = prepare().map_err(|error: rusqlite::Error| broken(&error))?;
    if is_ours {
        return Ok(db);
    }
    let file = file.display();
    let message = format!("{file} was made by another version of Glovebox");
    let remedy = format!("remove it with `rm {file}*`: users need new tokens then");
    Err(Fault::failed(Code::Unsupported, message).remedy(remedy))
}

fn broken(error: &rusqlite::Error) -> Fault {
    let message = format!("the server's database cannot be used: {error}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            Fault::failed(Code::NoSpace, message).remedy("make room in the state directory")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Fault::failed(Code::Unavailable, message)
                .remedy("another process holds it: try again in a while")
                .retryable()
        }
        _ => Fault::failed(Code::Io, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_layout_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        let db = open(dir.path()).unwrap();
        db.pragma_update(None, "user_version", LAYOUT + 1).unwrap();
        drop(db);
        let refused = open(dir.path()).unwrap_err();
        assert_eq!(refused.code, Code::Unsupported);
        assert!(refused.message.contains("another version"), "{refused:?}");
        // A database with tables but without a version.
        let file = dir.path().join("server.db");
        let db = Connection::open(&file).unwrap();
        db.pragma_update(None, "user_version", 0).unwrap();
        drop(db);
        assert_eq!(open(dir.path()).unwrap_err().code, Code::Unsupported);
    }
}
