//! What a session's workspace began with, where that was chosen.

use super::{Owners, broken};
use glovebox_proto::Fault;
use rusqlite::{OptionalExtension as _, Row, params};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use utoipa::ToSchema;

/// What the workspace of a session begins with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WorkspaceChoice {
    /// A directory of the operator's, by its name: one of `GET /api/sources`.
    Source(String),
    /// A workspace that the user has uploaded, by the id that `PUT /api/workspaces` has answered.
    Upload(String),
}

const SOURCE: &str = "source";
const UPLOAD: &str = "upload";

impl WorkspaceChoice {
    fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Source(name) => (SOURCE, name),
            Self::Upload(id) => (UPLOAD, id),
        }
    }

    fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Self> {
        let (kind, name) = (row.get::<_, String>(at)?, row.get(at + 1)?);
        match kind.as_str() {
            SOURCE => Ok(Self::Source(name)),
            UPLOAD => Ok(Self::Upload(name)),
            // A later version wrote it: what it allows is not known here.
            _ => Err(rusqlite::Error::InvalidQuery),
        }
    }
}

impl Owners {
    /// Writes down what a session begins with.
    pub(crate) fn set_workspace(
        &self,
        session: &str,
        choice: &WorkspaceChoice,
    ) -> Result<(), Fault> {
        let sql = "INSERT OR REPLACE INTO workspace VALUES (?1, ?2, ?3)";
        let (kind, name) = choice.words();
        let set = self.db().execute(sql, params![session, kind, name]);
        set.map(drop).map_err(|error| broken(&error))
    }

    /// What a session began with; `None` for the server's project, or a workspace of its own.
    pub(crate) fn workspace(&self, session: &str) -> Result<Option<WorkspaceChoice>, Fault> {
        let sql = "SELECT kind, name FROM workspace WHERE session = ?1";
        let found = self
            .db()
            .query_row(sql, [session], |row| WorkspaceChoice::read(row, 0));
        found.optional().map_err(|error| broken(&error))
    }

    /// The same of every session that has chosen.
    pub(crate) fn workspaces(&self) -> Result<HashMap<String, WorkspaceChoice>, Fault> {
        let db = self.db();
        let read = || {
            let mut statement = db.prepare_cached("SELECT session, kind, name FROM workspace")?;
            let rows =
                statement.query_map([], |row| Ok((row.get(0)?, WorkspaceChoice::read(row, 1)?)))?;
            rows.collect::<Result<HashMap<_, _>, _>>()
        };
        read().map_err(|error: rusqlite::Error| broken(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_began_with_is_kept_as_long_as_the_session() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let app = WorkspaceChoice::Source("app".to_owned());
        owners.set_workspace("s-1", &app).unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        assert_eq!(owners.workspace("s-1").unwrap(), Some(app.clone()));
        assert_eq!(owners.workspace("s-2").unwrap(), None);
        assert_eq!(owners.workspaces().unwrap()["s-1"], app);
        owners.remove_session("s-1").unwrap();
        assert_eq!(owners.workspace("s-1").unwrap(), None);
    }
}
