//! Uploaded workspaces: owner, size, and time of the last use.

use super::{Owners, broken};
use glovebox_proto::Fault;
use rusqlite::{OptionalExtension as _, Row, params};

/// An uploaded workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upload {
    pub id: String,
    pub user: String,
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    /// Sum of the lengths of all files.
    pub bytes: u64,
    pub created_unix_ms: u64,
    /// Time at which a session last began with the upload or was found to use it.
    pub used_unix_ms: u64,
}

/// Bytes counted for each entry besides its content.
const ENTRY_BYTES: u64 = 4096;

impl Upload {
    /// Returns the bytes that the upload counts for. Each entry adds a fixed amount, so that many
    /// small files are not free.
    pub(crate) fn charged_bytes(&self) -> u64 {
        let entries = self.files + self.directories + self.links;
        self.bytes
            .saturating_add(entries.saturating_mul(ENTRY_BYTES))
    }
}

const COLUMNS: &str = "id, user, files, directories, links, bytes, created, used";

fn read(row: &Row<'_>) -> rusqlite::Result<Upload> {
    let number = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)? as u64);
    Ok(Upload {
        id: row.get(0)?,
        user: row.get(1)?,
        files: number(2)?,
        directories: number(3)?,
        links: number(4)?,
        bytes: number(5)?,
        created_unix_ms: number(6)?,
        used_unix_ms: number(7)?,
    })
}

impl Owners {
    pub(crate) fn add_upload(&self, upload: &Upload) -> Result<(), Fault> {
        let sql = format!("INSERT INTO upload ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
        let values = params![
            upload.id,
            upload.user,
            upload.files as i64,
            upload.directories as i64,
            upload.links as i64,
            upload.bytes as i64,
            upload.created_unix_ms as i64,
            upload.used_unix_ms as i64,
        ];
        let added = self.db().execute(&sql, values);
        added.map(drop).map_err(|error| broken(&error))
    }

    pub(crate) fn upload(&self, id: &str) -> Result<Option<Upload>, Fault> {
        let sql = format!("SELECT {COLUMNS} FROM upload WHERE id = ?1");
        let found = self.db().query_row(&sql, [id], read);
        found.optional().map_err(|error| broken(&error))
    }

    /// Returns all uploads, newest first.
    pub(crate) fn uploads(&self) -> Result<Vec<Upload>, Fault> {
        let db = self.db();
        let list = || {
            let sql = format!("SELECT {COLUMNS} FROM upload ORDER BY created DESC, id");
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map([], read)?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        list().map_err(|error: rusqlite::Error| broken(&error))
    }

    /// Sets the time of the last use.
    pub(crate) fn touch_upload(&self, id: &str, now_unix_ms: u64) -> Result<(), Fault> {
        let sql = "UPDATE upload SET used = ?2 WHERE id = ?1";
        let set = self.db().execute(sql, params![id, now_unix_ms as i64]);
        set.map(drop).map_err(|error| broken(&error))
    }

    pub(crate) fn remove_upload(&self, id: &str) -> Result<(), Fault> {
        let removed = self.db().execute("DELETE FROM upload WHERE id = ?1", [id]);
        removed.map(drop).map_err(|error| broken(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_are_kept_with_what_they_count_for() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let upload = Upload {
            id: "u-1".to_owned(),
            user: "ann".to_owned(),
            files: 2,
            directories: 1,
            links: 1,
            bytes: 10,
            created_unix_ms: 5,
            used_unix_ms: 5,
        };
        assert_eq!(upload.charged_bytes(), 10 + 4 * 4096);
        owners.add_upload(&upload).unwrap();
        assert!(owners.add_upload(&upload).is_err(), "one of each name");
        owners.touch_upload("u-1", 9).unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let found = owners.upload("u-1").unwrap().unwrap();
        assert_eq!((found.used_unix_ms, found.created_unix_ms), (9, 5));
        assert_eq!(owners.uploads().unwrap(), [found]);
        owners.remove_upload("u-1").unwrap();
        assert_eq!(owners.upload("u-1").unwrap(), None);
    }
}
