//! Origin of each session's workspace, which decides where its changes may be applied.

use super::{Owners, broken};
use glovebox_proto::Fault;
use rusqlite::{OptionalExtension as _, Row};
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

/// Origin of a session's workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionWorkspace {
    /// A source or an upload.
    Chosen(WorkspaceChoice),
    /// The server's project.
    Project,
    /// A directory of the session's own, which is empty at first. Also for agents of bundles, which
    /// have no files.
    Own,
}

const SOURCE: &str = "source";
const UPLOAD: &str = "upload";
const PROJECT: &str = "project";
const OWN: &str = "own";

impl SessionWorkspace {
    /// Returns kind and name as stored.
    pub(super) fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Chosen(WorkspaceChoice::Source(name)) => (SOURCE, name),
            Self::Chosen(WorkspaceChoice::Upload(id)) => (UPLOAD, id),
            Self::Project => (PROJECT, ""),
            Self::Own => (OWN, ""),
        }
    }

    /// Reads kind and name from a row. None for an unknown kind, which permits nothing.
    fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Self>> {
        let (kind, name) = (row.get::<_, String>(at)?, row.get(at + 1)?);
        Ok(match kind.as_str() {
            SOURCE => Some(Self::Chosen(WorkspaceChoice::Source(name))),
            UPLOAD => Some(Self::Chosen(WorkspaceChoice::Upload(name))),
            PROJECT => Some(Self::Project),
            OWN => Some(Self::Own),
            _ => None,
        })
    }

    /// Returns the source or the upload. None for the other origins.
    pub(crate) fn into_choice(self) -> Option<WorkspaceChoice> {
        match self {
            Self::Chosen(choice) => Some(choice),
            Self::Project | Self::Own => None,
        }
    }
}

impl Owners {
    /// Returns the origin of a session's workspace. None if there is no row.
    pub(crate) fn workspace(&self, session: &str) -> Result<Option<SessionWorkspace>, Fault> {
        let sql = "SELECT kind, name FROM workspace WHERE session = ?1";
        let found = self
            .db()
            .query_row(sql, [session], |row| SessionWorkspace::read(row, 0));
        let found = found.optional().map_err(|error| broken(&error))?;
        Ok(found.flatten())
    }

    /// Returns the origins of the workspaces of all sessions.
    pub(crate) fn workspaces(&self) -> Result<HashMap<String, SessionWorkspace>, Fault> {
        let db = self.db();
        let read = || {
            let mut statement = db.prepare_cached("SELECT session, kind, name FROM workspace")?;
            let rows = statement
                .query_map([], |row| Ok((row.get(0)?, SessionWorkspace::read(row, 1)?)))?;
            rows.filter_map(|row| match row {
                Ok((session, workspace)) => Some(Ok((session, workspace?))),
                Err(error) => Some(Err(error)),
            })
            .collect::<Result<HashMap<_, _>, _>>()
        };
        read().map_err(|error: rusqlite::Error| broken(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Owned, SessionRows};

    #[test]
    fn what_a_session_began_with_is_kept_as_long_as_the_session() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let app = SessionWorkspace::Chosen(WorkspaceChoice::Source("app".to_owned()));
        let owned = Owned {
            user: "ann".to_owned(),
            is_applied: false,
        };
        let rows = SessionRows {
            id: "s-1",
            owned: &owned,
            workspace: Some(&app),
            request: None,
            sandbox: None,
            now_unix_ms: 0,
        };
        owners.add_session(&rows).unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        assert_eq!(owners.workspace("s-1").unwrap(), Some(app.clone()));
        assert_eq!(owners.workspace("s-2").unwrap(), None);
        assert_eq!(owners.workspaces().unwrap()["s-1"], app);
        let unknown = "UPDATE workspace SET kind = 'moon'";
        owners.db().execute(unknown, []).unwrap();
        assert_eq!(owners.workspace("s-1").unwrap(), None);
        assert!(owners.workspaces().unwrap().is_empty());
        owners.remove_session("s-1").unwrap();
        assert_eq!(owners.workspace("s-1").unwrap(), None);
    }
}
