//! Sessions on disk: every kept event of every session, in one SQLite file with a write-ahead log.
//!
//! An event is in the file before what follows from it happens, so whoever is killed leaves a log that
//! ends at most one step short. Who has a session open holds the lock on its file in `locks/`; a lock
//! cannot be left behind by the dead.

use crate::event::{EVENT_VERSION, Event, LoggedEvent};
use glovebox_proto::{Code, Fault};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long another process may keep the file busy.
const BUSY: Duration = Duration::from_secs(10);
/// Version of the tables.
const TABLES: i64 = 1;

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// It waits for its turn, and nobody works on it yet.
    Queued,
    /// Somebody works on it.
    Running,
    /// Whoever worked on it is gone without a word.
    Interrupted,
    /// The model said it is done.
    Completed,
    /// A limit ended it.
    StoppedByLimit,
    /// The user ended it.
    Aborted,
    /// Its sandbox went away.
    Lost,
    /// It could not go on.
    Failed,
}

impl SessionState {
    /// All of them.
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

    /// The word in lists and JSON.
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

    /// The state that a word is for.
    pub fn named(word: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.as_str() == word)
    }
}

/// What is known about a session without reading its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionInfo {
    /// Its name.
    pub id: String,
    /// How it stands.
    pub state: SessionState,
    /// What it was asked to do.
    pub task: String,
    /// `PROVIDER/NAME` it began with.
    pub model: String,
    /// `local`, `sandbox` or `bundle`.
    pub placement: String,
    /// The sandbox it works in, by name.
    pub sandbox: Option<String>,
    /// The project.
    pub project: PathBuf,
    /// When it began.
    pub created_unix_ms: u64,
    /// When something last happened.
    pub updated_unix_ms: u64,
    /// How many events it has.
    pub events: u64,
}

/// All sessions of one state directory.
#[derive(Debug)]
pub struct Log {
    db: Connection,
    dir: PathBuf,
    clock: fn() -> u64,
}

/// The place of an event in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// From 1, without gaps.
    pub seq: u64,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// Held while somebody works on a session.
#[derive(Debug)]
pub struct SessionLock(File);

impl Drop for SessionLock {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread has just forked has the file open until it runs its
        // program, and with it the lock (flock(2)).
        let _ = self.0.unlock();
    }
}

/// Makes the file of a database if it is not there, readable for its owner alone: SQLite would make it so for whoever the
/// umask lets.
///
/// One that is there is not opened: closing it again would take away the locks of this process's other connections, and
/// another process could then remove the write-ahead log under them.
///
/// # Errors
/// Whatever keeps it from being made.
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
    /// Opens the sessions below `dir`, making what is missing. `clock` gives milliseconds since 1970.
    ///
    /// # Errors
    /// When that cannot be read or written, or a newer version wrote it.
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
            db.busy_timeout(BUSY)?;
            db.pragma_update(None, "journal_mode", "WAL")?;
            // Safe against the death of this process; the last moments may be lost with the machine.
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

    /// Writes down a new session. Times and number of events of `info` are not looked at.
    ///
    /// # Errors
    /// `already-exists`, and when it cannot be written.
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

    /// Appends an event, if it is one that is kept, and says which place it has.
    ///
    /// # Errors
    /// When it cannot be written.
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

    /// Notes how a session stands.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_state(&self, id: &str, state: SessionState) -> Result<(), Fault> {
        self.db
            .execute(
                "UPDATE session SET state = ?2 WHERE id = ?1",
                params![id, state.as_str()],
            )
            .map_err(|error| broken(&error))?;
        Ok(())
    }

    /// Notes which sandbox a session works in.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_sandbox(&self, id: &str, sandbox: Option<&str>) -> Result<(), Fault> {
        self.db
            .execute(
                "UPDATE session SET sandbox = ?2 WHERE id = ?1",
                params![id, sandbox],
            )
            .map_err(|error| broken(&error))?;
        Ok(())
    }

    /// All sessions, the newest first.
    ///
    /// # Errors
    /// When they cannot be read.
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

    /// One session, by its name, the beginning of it, or `last`.
    ///
    /// # Errors
    /// `not-found`, and `ambiguous-match` when several begin so.
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

    /// The events of a session, in order.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn events(&self, id: &str) -> Result<Vec<LoggedEvent>, Fault> {
        self.events_after(id, 0, u32::MAX)
    }

    /// The events of a session after `seq`, in order, at most `limit` of them.
    ///
    /// # Errors
    /// When they cannot be read.
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

    /// Copies a session's events up to `upto` (all without it) under the name `to`.
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

    /// Forgets a session.
    ///
    /// # Errors
    /// `busy` while somebody works on it.
    pub fn delete(&self, id: &str) -> Result<(), Fault> {
        let lock = self.lock(id)?;
        self.db
            .execute("DELETE FROM event WHERE session = ?1", [id])
            .and_then(|_| self.db.execute("DELETE FROM session WHERE id = ?1", [id]))
            .map_err(|error| broken(&error))?;
        let _ = fs::remove_file(self.lock_path(id));
        drop(lock);
        Ok(())
    }

    /// Takes a session for this process.
    ///
    /// # Errors
    /// `busy` while another works on it.
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
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => Code::Busy,
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
