//! Users of service addresses that serve one user each.

use super::{ADMIN, Owners, broken};
use glovebox_proto::Fault;
use rusqlite::{OptionalExtension as _, TransactionBehavior, params};

impl Owners {
    /// Returns the address of a user. A user without one gets the first of `free` that no user has.
    /// None if every address has another user.
    ///
    /// An address becomes free when its user has no token and no sandbox any more.
    pub(crate) fn bind_address(&self, user: &str, free: &[&str]) -> Result<Option<String>, Fault> {
        let mut db = self.db();
        let mut bind = || {
            let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            change.execute(
                "DELETE FROM address WHERE user <> ?1 AND user NOT IN (SELECT name FROM token)
                 AND user NOT IN (SELECT user FROM owner WHERE kind = 'sandbox')",
                [ADMIN],
            )?;
            let sql = "SELECT url FROM address WHERE user = ?1";
            let found: Option<String> =
                change.query_row(sql, [user], |row| row.get(0)).optional()?;
            let mut bound = found;
            for url in free {
                if bound.is_some() {
                    break;
                }
                let sql = "INSERT OR IGNORE INTO address VALUES (?1, ?2)";
                if change.execute(sql, params![url, user])? == 1 {
                    bound = Some((*url).to_owned());
                }
            }
            change.commit()?;
            Ok(bound)
        };
        bind().map_err(|error: rusqlite::Error| broken(&error))
    }

    /// Removes the users of all addresses that are not in `urls`.
    pub(crate) fn keep_addresses(&self, urls: &[&str]) -> Result<(), Fault> {
        self.change(|change| {
            let mut known = change.prepare("SELECT url FROM address")?;
            let known: Vec<String> = known
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            for url in known.iter().filter(|url| !urls.contains(&url.as_str())) {
                change.execute("DELETE FROM address WHERE url = ?1", [url])?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Scope, Scopes, TokenStore};

    #[test]
    fn an_address_has_one_user_until_that_one_can_come_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = TokenStore::open(dir.path()).unwrap();
        let owners = Owners::open(&dir.path().join("server")).unwrap();
        let make = |name: &str| tokens.create(name, &Scopes::new([Scope::Run]), None, 0);
        for name in ["ann", "bob", "eve"] {
            make(name).unwrap();
        }
        let bind = |user: &str| {
            owners
                .bind_address(user, &["http://a", "http://b"])
                .unwrap()
        };
        assert_eq!(bind("ann").as_deref(), Some("http://a"));
        assert_eq!(bind("bob").as_deref(), Some("http://b"));
        assert_eq!(bind("ann").as_deref(), Some("http://a"));
        // The binding holds even if the address is down, and so not among the free ones.
        assert_eq!(
            owners.bind_address("bob", &[]).unwrap().as_deref(),
            Some("http://b")
        );
        assert_eq!(bind("eve"), None);
        owners.add_sandbox("agent-1", "ann").unwrap();
        tokens.revoke("ann").unwrap();
        assert_eq!(bind("eve"), None, "ann's files are still there");
        owners.remove_sandbox("agent-1").unwrap();
        assert_eq!(bind("eve").as_deref(), Some("http://a"));
        owners.keep_addresses(&["http://a"]).unwrap();
        assert_eq!(
            owners.bind_address("bob", &["http://a"]).unwrap(),
            None,
            "its address is gone"
        );
        let bind = |user: &str| owners.bind_address(user, &["http://c"]).unwrap();
        assert_eq!(bind(ADMIN).as_deref(), Some("http://c"));
    }
}
