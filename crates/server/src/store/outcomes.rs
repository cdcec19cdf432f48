//! Outcome of each session's last Apply.

use super::{Owners, broken};
use glovebox_proto::Fault;
use rusqlite::{OptionalExtension as _, params};
use serde_json::Value;

impl Owners {
    /// Replaces the outcome of a session's last Apply.
    pub(crate) fn set_outcome(&self, session: &str, outcome: &Value) -> Result<(), Fault> {
        let sql = "INSERT INTO outcome VALUES (?1, ?2) ON CONFLICT DO UPDATE SET outcome = ?2";
        let set = self
            .db()
            .execute(sql, params![session, outcome.to_string()]);
        set.map(drop).map_err(|error| broken(&error))
    }

    /// Returns the outcome of a session's last Apply. Null if there is none.
    pub(crate) fn outcome(&self, session: &str) -> Result<Value, Fault> {
        let sql = "SELECT outcome FROM outcome WHERE session = ?1";
        let found = self
            .db()
            .query_row(sql, [session], |row| row.get::<_, String>(0));
        let found = found.optional().map_err(|error| broken(&error))?;
        let read = found.and_then(|text| serde_json::from_str(&text).ok());
        Ok(read.unwrap_or_default())
    }
}
