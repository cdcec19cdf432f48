//! Whose a bundle is, and which session a chat of a user's goes on in.
//!
//! A text that two users upload is stored once and belongs to both; it goes when nobody has it any more.

use super::{Owners, broken};
use glovebox_proto::Fault;
use rusqlite::{OptionalExtension as _, params};

/// A chat: the session it goes on in, and where in its log each message of the user's begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChatTurns {
    pub session: String,
    /// For each message: how many events there were before it.
    pub begun: Vec<u64>,
}

impl Owners {
    /// Writes down that `user` has the bundle `hash`.
    pub(crate) fn add_bundle(&self, user: &str, hash: &str, now_unix_ms: u64) -> Result<(), Fault> {
        let sql = "INSERT INTO bundle VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
        let added = self
            .db()
            .execute(sql, params![user, hash, now_unix_ms as i64]);
        added.map(drop).map_err(|error| broken(&error))
    }

    /// Whether `user` has it.
    pub(crate) fn has_bundle(&self, user: &str, hash: &str) -> Result<bool, Fault> {
        let sql = "SELECT 1 FROM bundle WHERE user = ?1 AND hash = ?2";
        let found = self.db().query_row(sql, [user, hash], |_| Ok(()));
        let found = found.optional().map_err(|error| broken(&error))?;
        Ok(found.is_some())
    }

    /// The bundles of `user`, the newest first: digest, and when it came.
    pub(crate) fn bundles(&self, user: &str) -> Result<Vec<(String, u64)>, Fault> {
        let db = self.db();
        let read = || {
            let sql = "SELECT hash, at FROM bundle WHERE user = ?1 ORDER BY at DESC, hash";
            let mut statement = db.prepare_cached(sql)?;
            let rows = statement.query_map([user], |row| {
                Ok((row.get(0)?, row.get::<_, i64>(1)? as u64))
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        read().map_err(|error: rusqlite::Error| broken(&error))
    }

    /// Writes down that `user` has it no more: whether anybody else does.
    pub(crate) fn remove_bundle(&self, user: &str, hash: &str) -> Result<bool, Fault> {
        let db = self.db();
        let remove = || {
            db.execute(
                "DELETE FROM bundle WHERE user = ?1 AND hash = ?2",
                [user, hash],
            )?;
            db.query_row(
                "SELECT count(*) FROM bundle WHERE hash = ?1",
                [hash],
                |row| row.get::<_, i64>(0),
            )
        };
        let left = remove().map_err(|error: rusqlite::Error| broken(&error))?;
        Ok(left > 0)
    }

    /// Where a chat of `user` goes on.
    pub(crate) fn chat(&self, user: &str, chat: &str) -> Result<Option<ChatTurns>, Fault> {
        let sql = "SELECT session, begun FROM chat WHERE user = ?1 AND chat = ?2";
        let found = self.db().query_row(sql, [user, chat], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        });
        let found = found.optional().map_err(|error| broken(&error))?;
        Ok(found.map(|(session, begun)| ChatTurns {
            session,
            begun: serde_json::from_str(&begun).unwrap_or_default(),
        }))
    }

    /// From now on the chat goes on there.
    pub(crate) fn set_chat(&self, user: &str, chat: &str, turns: &ChatTurns) -> Result<(), Fault> {
        let sql = "INSERT OR REPLACE INTO chat VALUES (?1, ?2, ?3, ?4)";
        // Numbers have a JSON form.
        let begun = serde_json::to_string(&turns.begun).unwrap_or_default();
        let set = self.db().execute(sql, [user, chat, &turns.session, &begun]);
        set.map(drop).map_err(|error| broken(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_of_two_users_is_of_each_until_that_one_has_it_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        owners.add_bundle("ann", "h", 1).unwrap();
        owners.add_bundle("ann", "h", 2).unwrap();
        owners.add_bundle("bob", "h", 3).unwrap();
        assert_eq!(owners.bundles("ann").unwrap(), [("h".to_owned(), 1)]);
        assert!(!owners.has_bundle("eve", "h").unwrap());
        assert!(owners.remove_bundle("ann", "h").unwrap(), "bob has it");
        assert!(!owners.has_bundle("ann", "h").unwrap());
        assert!(!owners.remove_bundle("bob", "h").unwrap());
    }

    #[test]
    fn chats_of_one_name_are_of_their_users() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let turns = |session: &str, begun: &[u64]| ChatTurns {
            session: session.to_owned(),
            begun: begun.to_vec(),
        };
        owners.set_chat("ann", "c", &turns("s-1", &[0])).unwrap();
        assert_eq!(owners.chat("bob", "c").unwrap(), None);
        let longer = turns("s-2", &[0, 7]);
        owners.set_chat("ann", "c", &longer).unwrap();
        assert_eq!(owners.chat("ann", "c").unwrap().unwrap(), longer);
        owners.remove_session("s-2").unwrap();
        assert_eq!(owners.chat("ann", "c").unwrap(), None);
    }
}
