//! Owners of bundles, and the sessions of chats.
//!
//! A source that two users upload in one language is stored once and belongs to both; it is removed
//! with its last row. Language and signature of an upload are in its user's row.

use super::{Owners, broken};
use glovebox_bundle::Language;
use glovebox_proto::Fault;
use rusqlite::{Connection, OptionalExtension as _, params};

/// Row of a user's upload of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BundleRow {
    pub language: Language,
    /// Bytes of the signature. None if the server asked for none at that time.
    pub signature: Option<Vec<u8>>,
    /// Time of the user's first upload of the bundle, in milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// Session of a chat, and the position of each of the user's messages in its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChatTurns {
    pub session: String,
    /// Number of events in the log before each message.
    pub begun: Vec<u64>,
}

impl Owners {
    /// Adds the bundle `hash` to those of `user`. A second upload replaces language and signature.
    pub(crate) fn add_bundle(&self, user: &str, hash: &str, row: &BundleRow) -> Result<(), Fault> {
        let sql = "INSERT INTO bundle VALUES (?1, ?2, ?3, ?4, ?5)
                   ON CONFLICT DO UPDATE SET is_typescript = ?4, signature = ?5";
        let (at, is_typescript) = (row.at_unix_ms as i64, is_typescript(row.language));
        let values = params![user, hash, at, is_typescript, row.signature];
        let added = self.db().execute(sql, values);
        added.map(drop).map_err(|error| broken(&error))
    }

    /// Returns the row of a user's upload. None if the user does not have the bundle.
    pub(crate) fn bundle(&self, user: &str, hash: &str) -> Result<Option<BundleRow>, Fault> {
        let sql = "SELECT is_typescript, signature, at FROM bundle WHERE user = ?1 AND hash = ?2";
        let found = self.db().query_row(sql, [user, hash], |row| {
            let language = if row.get(0)? {
                Language::TypeScript
            } else {
                Language::JavaScript
            };
            Ok(BundleRow {
                language,
                signature: row.get(1)?,
                at_unix_ms: row.get::<_, i64>(2)? as u64,
            })
        });
        found.optional().map_err(|error| broken(&error))
    }

    /// Returns true if any user has the bundle in this language.
    pub(crate) fn is_bundle_used(&self, hash: &str, language: Language) -> Result<bool, Fault> {
        is_used(&self.db(), hash, language).map_err(|error| broken(&error))
    }

    /// Returns the bundles of `user`, newest first, as digest and time of upload.
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

    /// Removes a bundle from those of `user`.
    pub(crate) fn remove_bundle(&self, user: &str, hash: &str) -> Result<(), Fault> {
        let sql = "DELETE FROM bundle WHERE user = ?1 AND hash = ?2";
        let removed = self.db().execute(sql, [user, hash]);
        removed.map(drop).map_err(|error| broken(&error))
    }

    /// Returns the session of a chat of `user`. None if the chat is unknown.
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

    /// Sets the session of a chat and the positions of its messages.
    pub(crate) fn set_chat(&self, user: &str, chat: &str, turns: &ChatTurns) -> Result<(), Fault> {
        let sql = "INSERT OR REPLACE INTO chat VALUES (?1, ?2, ?3, ?4)";
        // A list of numbers has a JSON form.
        let begun = serde_json::to_string(&turns.begun).unwrap_or_default();
        let set = self.db().execute(sql, [user, chat, &turns.session, &begun]);
        set.map(drop).map_err(|error| broken(&error))
    }
}

const fn is_typescript(language: Language) -> bool {
    matches!(language, Language::TypeScript)
}

fn is_used(db: &Connection, hash: &str, language: Language) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM bundle WHERE hash = ?1 AND is_typescript = ?2)";
    db.query_row(sql, params![hash, is_typescript(language)], |row| {
        row.get(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_of_two_users_is_of_each_until_that_one_has_it_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let owners = Owners::open(dir.path()).unwrap();
        let row = |at_unix_ms, language| BundleRow {
            language,
            signature: Some(vec![7]),
            at_unix_ms,
        };
        let (js, ts) = (Language::JavaScript, Language::TypeScript);
        owners.add_bundle("ann", "h", &row(1, ts)).unwrap();
        owners.add_bundle("ann", "h", &row(2, js)).unwrap();
        owners.add_bundle("bob", "h", &row(3, js)).unwrap();
        assert_eq!(owners.bundles("ann").unwrap(), [("h".to_owned(), 1)]);
        assert_eq!(owners.bundle("ann", "h").unwrap(), Some(row(1, js)));
        assert_eq!(owners.bundle("eve", "h").unwrap(), None);
        owners.remove_bundle("ann", "h").unwrap();
        assert!(owners.is_bundle_used("h", js).unwrap(), "bob has it");
        assert!(!owners.is_bundle_used("h", ts).unwrap());
        assert_eq!(owners.bundle("ann", "h").unwrap(), None);
        owners.remove_bundle("bob", "h").unwrap();
        assert!(!owners.is_bundle_used("h", js).unwrap());
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
