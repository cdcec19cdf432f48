//! Session log: the stored events of every session, in one SQLite file with a write-ahead log.
//!
//! An event is stored before the loop acts on it, so that a killed process leaves a log that is at
//! most one step short. A process that works on a session holds the lock on the session's file in
//! `locks/`. The kernel releases the lock when the process dies.

use crate::event::{EVENT_VERSION, Event, LoggedEvent};
use glovebox_proto::{Code, Fault};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum time to wait for another process that writes to the file.
const BUSY: Duration = Duration::from_secs(10);
/// Version of the table layout.
const TABLES: i64 = 1;

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// The session is waiting for its turn.
    Queued,
    /// A process works on the session.
    Running,
    /// The process that worked on the session died before the run ended.
    Interrupted,
    /// The model ended its work.
    Completed,
    /// A limit ended the run.
    StoppedByLimit,
    /// The user stopped the run.
    Aborted,
    /// The sandbox was lost.
    Lost,
    /// The run failed.
    Failed,
}

impl SessionState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::Interrupted,
        Self::Completed,
        Self::StoppedByLimit,
        Self::Aborted,
        Self::Lost,
        Self::Failed,
    ];

    /// Returns the name of the state in lists and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Completed => "completed",
            Self::StoppedByLimit => "stopped_by_limit",
            Self::Aborted => "aborted",
            Self::Lost => "lost",
            Self::Failed => "failed",
        }
    }

    /// Returns the state of this name; `None` if there is none.
    pub fn named(word: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.as_str() == word)
    }
}

/// Summary of a session, available without its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionInfo {
    /// Id of the session.
    pub id: String,
    /// State of the session.
    pub state: SessionState,
    /// Task of the user.
    pub task: String,
    /// Model with which the session began, as `PROVIDER/NAME`.
    pub model: String,
    /// Placement of the tools: `local`, `sandbox` or `bundle`.
    pub placement: String,
    /// Name of the sandbox; `None` without one.
    pub sandbox: Option<String>,
    /// Directory of the project.
    pub project: PathBuf,
    /// Time of the beginning, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Time of the last stored event, in milliseconds since 1970.
    pub updated_unix_ms: u64,
    /// Number of stored events.
    pub events: u64,
}

/// Session log of one state directory.
#[derive(Debug)]
pub struct Log {
    db: Connection,
    dir: PathBuf,
    clock: fn() -> u64,
}

/// Position of an event in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// Number, from 1 without gaps.
    pub seq: u64,
    /// Time in milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// Lock on a session. Dropping it releases the session.
#[derive(Debug)]
pub struct SessionLock(File);

impl Drop for SessionLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that another thread has just forked has the file
        // open until its execve(2), and with it the lock (flock(2)).
        let _ = self.0.unlock();
    }
}

/// Creates the file of a database with mode 0600, unless it exists. SQLite alone would create it
/// with the permissions that the umask leaves.
///
/// An existing file is not opened: closing it would release the POSIX locks of this process's other
/// connections (fcntl(2)), and another process could then remove the write-ahead log under them.
///
/// # Errors
/// If the file does not exist and cannot be created.
pub fn make_private_database(file: &Path) -> std::io::Result<()> {
    let made = fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(file);
    match made {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

impl Log {
    /// Opens the log below `dir`, and creates it if it is missing. `clock` returns milliseconds
    /// since 1970.
    ///
    /// # Errors
    /// `unsupported` if a newer version wrote the log; otherwise if it cannot be read or written.
    pub fn open(dir: &Path, clock: fn() -> u64) -> Result<Self, Fault> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir.join("locks"))
            .map_err(|error| io("make the directory of sessions", &error))?;
        let file = dir.join("sessions.db");
        make_private_database(&file).map_err(|error| io("open the sessions", &error))?;
        let db = Connection::open(&file).map_err(|error| broken(&error))?;
        let prepared = (|| {
            // The timeout comes first: the switch to WAL needs a lock as well.
            db.busy_timeout(BUSY)?;
            db.pragma_update(None, "journal_mode", "WAL")?;
            // A commit survives the death of this process; the last ones may be lost if the machine
            // crashes.
            db.pragma_update(None, "synchronous", "NORMAL")?;
            db.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))
        })()
        .map_err(|error| broken(&error))?;
        if prepared > TABLES {
            return Err(Fault::failed(
                Code::Unsupported,
                "the sessions were written by a newer version of Glovebox",
            )
            .remedy("use that version, or another state directory"));
        }
        let log = Self {
            db,
            dir: dir.to_owned(),
            clock,
        };
        log.run(
            "CREATE TABLE IF NOT EXISTS session (
                 id TEXT PRIMARY KEY, state TEXT NOT NULL, task TEXT NOT NULL, model TEXT NOT NULL,
                 placement TEXT NOT NULL, sandbox TEXT, project BLOB NOT NULL,
                 created INTEGER NOT NULL, updated INTEGER NOT NULL) STRICT;
             CREATE TABLE IF NOT EXISTS event (
                 session TEXT NOT NULL REFERENCES session(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
                 at INTEGER NOT NULL, version INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
                 PRIMARY KEY (session, seq)) STRICT, WITHOUT ROWID;
             PRAGMA foreign_keys = ON;
             PRAGMA user_version = 1;",
        )?;
        Ok(log)
    }

    fn run(&self, sql: &str) -> Result<(), Fault> {
        self.db.execute_batch(sql).map_err(|error| broken(&error))
    }

    /// Stores a new session. The times and the number of events in `info` are ignored.
    ///
    /// # Errors
    /// `already-exists`; otherwise if the log cannot be written.
    pub fn create(&self, info: &SessionInfo) -> Result<(), Fault> {
        use std::os::unix::ffi::OsStrExt;
        let now = (self.clock)() as i64;
        let made = self
            .db
            .execute(
                "INSERT INTO session VALUES (?1, ?8, ?2, ?3, ?4, ?5, ?6, ?7, ?7) ON CONFLICT DO NOTHING",
                params![
                    info.id,
                    info.task,
                    info.model,
                    info.placement,
                    info.sandbox,
                    info.project.as_os_str().as_bytes(),
                    now,
                    info.state.as_str()
                ],
            )
            .map_err(|error| broken(&error))?;
        if made == 0 {
            return Err(Fault::failed(
                Code::AlreadyExists,
                format!("there is a session `{}` already", info.id),
            ));
        }
        Ok(())
    }

    /// Appends an event if [`Event::is_kept`], and returns its position; `None` if it is not
    /// stored.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn append(&self, id: &str, event: &Event) -> Result<Option<LogPosition>, Fault> {
        if !event.is_kept() {
            return Ok(None);
        }
        let body = serde_json::to_string(event).map_err(|error| {
            Fault::failed(
                Code::Internal,
                format!("an event cannot be written: {error}"),
            )
        })?;
        let now = (self.clock)() as i64;
        // A single statement reads the last position and inserts, so that two writers cannot take
        // the same one.
        let seq: i64 = self
            .db
            .query_row(
                "INSERT INTO event SELECT ?1, 1 + coalesce(max(seq), 0), ?2, ?3, ?4, ?5 FROM event WHERE session = ?1
                 RETURNING seq",
                params![id, now, EVENT_VERSION, event.kind(), body],
                |row| row.get(0),
            )
            .and_then(|seq| {
                self.db
                    .execute("UPDATE session SET updated = ?2 WHERE id = ?1", params![id, now])
                    .map(|_| seq)
            })
            .map_err(|error| broken(&error))?;
        Ok(Some(LogPosition {
            seq: seq as u64,
            at_unix_ms: now as u64,
        }))
    }

    /// Sets the state of a session.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn set_state(&self, id: &str, state: SessionState) -> Result<(), Fault> {
        self.db
            .execute(
                "UPDATE session SET state = ?2 WHERE id = ?1",
                params![id, state.as_str()],
            )
            .map_err(|error| broken(&error))?;
        Ok(())
    }

    /// Sets the sandbox of a session; `None` if it has none.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn set_sandbox(&self, id: &str, sandbox: Option<&str>) -> Result<(), Fault> {
        self.db
            .execute(
                "UPDATE session SET sandbox = ?2 WHERE id = ?1",
                params![id, sandbox],
            )
            .map_err(|error| broken(&error))?;
        Ok(())
    }

    /// Returns all sessions, the newest first. A session that is stored as queued or running but
    /// that no process has locked is returned as interrupted.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn list(&self) -> Result<Vec<SessionInfo>, Fault> {
        let sql = format!("{SELECT} ORDER BY created DESC, id");
        let mut found = (|| {
            let mut statement = self.db.prepare(&sql)?;
            let rows = statement.query_map([], info)?;
            rows.collect::<Result<Vec<_>, _>>()
        })()
        .map_err(|error| broken(&error))?;
        for session in &mut found {
            self.look_whether_alive(session);
        }
        Ok(found)
    }

    /// Returns the session with this id or the only one that begins with it; `last` means the
    /// newest.
    ///
    /// # Errors
    /// `not-found`, and `ambiguous-match` if several ids begin with `id`.
    pub fn find(&self, id: &str) -> Result<SessionInfo, Fault> {
        let mut all = self.list()?;
        if id == "last" {
            all.truncate(1);
        } else if all.iter().any(|session| session.id == id) {
            all.retain(|session| session.id == id);
        } else {
            all.retain(|session| !id.is_empty() && session.id.starts_with(id));
        }
        if all.len() > 1 {
            return Err(Fault::failed(
                Code::AmbiguousMatch,
                format!("{} sessions begin with `{id}`", all.len()),
            )
            .remedy("write more of the name"));
        }
        all.pop().ok_or_else(|| {
            Fault::failed(Code::NotFound, format!("there is no session `{id}`"))
                .remedy("`glovebox sessions list` shows those there are")
        })
    }

    /// Returns the events of a session, in order.
    ///
    /// # Errors
    /// If the log cannot be read, and `unsupported` for an event that this version does not
    /// understand.
    pub fn events(&self, id: &str) -> Result<Vec<LoggedEvent>, Fault> {
        self.events_after(id, 0, u32::MAX)
    }

    /// Returns at most `limit` events of a session after the position `seq`, in order.
    ///
    /// # Errors
    /// As [`Self::events`].
    pub fn events_after(&self, id: &str, seq: u64, limit: u32) -> Result<Vec<LoggedEvent>, Fault> {
        let after = i64::try_from(seq).unwrap_or(i64::MAX);
        let rows: Vec<(i64, i64, i64, String)> = (|| {
            let mut statement = self.db.prepare_cached(
                "SELECT seq, at, version, body FROM event WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
            )?;
            let rows = statement.query_map(params![id, after, limit], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        })()
        .map_err(|error| broken(&error))?;
        rows.into_iter()
            .map(|(seq, at, version, body)| {
                let event = serde_json::from_str(&body).map_err(|error| {
                    Fault::failed(
                        Code::Unsupported,
                        format!("event {seq} of session `{id}` cannot be read: {error}"),
                    )
                })?;
                Ok(LoggedEvent {
                    version: version as u32,
                    seq: seq as u64,
                    at_unix_ms: at as u64,
                    event,
                })
            })
            .collect()
    }

    /// Copies a session and its events up to position `upto` (all if `None`) to the new id `to`.
    /// The copy has no sandbox.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn fork(&self, from: &SessionInfo, to: &str, upto: Option<u64>) -> Result<(), Fault> {
        self.create(&SessionInfo {
            id: to.to_owned(),
            sandbox: None,
            ..from.clone()
        })?;
        self.db
            .execute(
                "INSERT INTO event SELECT ?2, seq, at, version, kind, body FROM event WHERE session = ?1 AND seq <= ?3",
                params![from.id, to, upto.map_or(i64::MAX, |seq| i64::try_from(seq).unwrap_or(i64::MAX))],
            )
            .map_err(|error| broken(&error))?;
        self.set_state(to, SessionState::Interrupted)
    }

    /// Deletes a session and its events.
    ///
    /// # Errors
    /// `busy` while a process works on it.
    pub fn delete(&self, id: &str) -> Result<(), Fault> {
        let lock = self.lock(id)?;
        self.db
            .execute("DELETE FROM event WHERE session = ?1", [id])
            .and_then(|_| self.db.execute("DELETE FROM session WHERE id = ?1", [id]))
            .map_err(|error| broken(&error))?;
        // Removed while the lock is held: later, it could be the file of a new session with this
        // id.
        let _ = fs::remove_file(self.lock_path(id));
        drop(lock);
        Ok(())
    }

    /// Locks a session for this process. Does not block.
    ///
    /// # Errors
    /// `busy` while another process works on it.
    pub fn lock(&self, id: &str) -> Result<SessionLock, Fault> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.lock_path(id))
            .map_err(|error| io("lock the session", &error))?;
        file.try_lock().map_err(|_| {
            Fault::failed(
                Code::Busy,
                format!("another process works on session `{id}`"),
            )
            .remedy("wait for it, or stop it with Ctrl-C where it runs")
        })?;
        Ok(SessionLock(file))
    }

    fn lock_path(&self, id: &str) -> PathBuf {
        self.dir.join("locks").join(id)
    }

    fn look_whether_alive(&self, session: &mut SessionInfo) {
        if !matches!(session.state, SessionState::Queued | SessionState::Running) {
            return;
        }
        let is_held = File::open(self.lock_path(&session.id))
            .is_ok_and(|file| file.try_lock_shared().is_err());
        if !is_held {
            session.state = SessionState::Interrupted;
        }
    }
}

const SELECT: &str = "SELECT id, state, task, model, placement, sandbox, project, created, updated,
    (SELECT count(*) FROM event WHERE session = id) FROM session";

fn info(row: &Row<'_>) -> rusqlite::Result<SessionInfo> {
    use std::os::unix::ffi::OsStringExt;
    let project: Vec<u8> = row.get(6)?;
    Ok(SessionInfo {
        id: row.get(0)?,
        state: SessionState::named(&row.get::<_, String>(1)?).unwrap_or(SessionState::Interrupted),
        task: row.get(2)?,
        model: row.get(3)?,
        placement: row.get(4)?,
        sandbox: row.get::<_, Option<String>>(5).optional()?.flatten(),
        project: std::ffi::OsString::from_vec(project).into(),
        created_unix_ms: row.get::<_, i64>(7)? as u64,
        updated_unix_ms: row.get::<_, i64>(8)? as u64,
        events: row.get::<_, i64>(9)? as u64,
    })
}

fn io(what: &str, error: &std::io::Error) -> Fault {
    Fault::failed(Code::Io, format!("cannot {what}: {error}"))
}

fn broken(error: &rusqlite::Error) -> Fault {
    let code = match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => Code::NoSpace,
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            Code::Unavailable
        }
        _ => Code::Io,
    };
    Fault::failed(code, format!("the session log cannot be used: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> SessionInfo {
        SessionInfo {
            id: id.to_owned(),
            state: SessionState::Running,
            task: "do it".to_owned(),
            model: "openai/x".to_owned(),
            placement: "sandbox".to_owned(),
            sandbox: Some("agent-1".to_owned()),
            project: "/p".into(),
            created_unix_ms: 0,
            updated_unix_ms: 0,
            events: 0,
        }
    }

    fn said(text: &str) -> Event {
        Event::Said {
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_session_is_free_though_a_child_has_its_lock_open() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path(), || 42).unwrap();
        let lock = log.lock("one").unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .stdin(lock.0.try_clone().unwrap())
            .spawn()
            .unwrap();
        assert!(log.lock("one").is_err());
        drop(lock);
        let again = log.lock("one");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(again.is_ok(), "{again:?}");
    }

    #[test]
    fn what_was_written_is_read_by_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path(), || 42).unwrap();
        log.create(&session("one")).unwrap();
        assert_eq!(
            log.create(&session("one")).unwrap_err().code,
            Code::AlreadyExists
        );
        let lock = log.lock("one").unwrap();
        log.append("one", &said("a")).unwrap();
        log.append(
            "one",
            &Event::Text {
                text: "not kept".to_owned(),
            },
        )
        .unwrap();
        log.append("one", &said("b")).unwrap();

        let other = Log::open(dir.path(), || 43).unwrap();
        let found = other.find("on").unwrap();
        assert_eq!((found.state, found.events), (SessionState::Running, 2));
        assert_eq!(found.sandbox.as_deref(), Some("agent-1"));
        assert_eq!(other.lock("one").unwrap_err().code, Code::Busy);
        assert_eq!(other.delete("one").unwrap_err().code, Code::Busy);
        drop(lock);
        assert_eq!(other.find("last").unwrap().state, SessionState::Interrupted);
        let events = other.events("one").unwrap();
        assert_eq!(
            events.iter().map(|logged| logged.seq).collect::<Vec<_>>(),
            [1, 2]
        );
        assert_eq!(events[1].event, said("b"));

        other.fork(&found, "two", Some(1)).unwrap();
        assert_eq!(other.events("two").unwrap().len(), 1);
        assert_eq!(other.find("two").unwrap().sandbox, None);
        other.delete("one").unwrap();
        assert_eq!(other.find("one").unwrap_err().code, Code::NotFound);
        assert!(other.events("one").unwrap().is_empty());
    }
}
