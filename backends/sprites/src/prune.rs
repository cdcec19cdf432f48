//! The Sprites of one state directory, with what may be removed of them.

use crate::client::{Client, Sprite};
use crate::names::{name_prefix, read_until};
use glovebox_proto::Fault;
use std::time::Instant;

/// A Sprite whose name is one of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeSprite {
    /// Its name.
    pub name: String,
    /// The service's word for its state, if there is one.
    pub status: Option<String>,
    /// What its labels and the registry say about it.
    pub claim: Claim,
}

/// Whether a Sprite may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It belongs to a sandbox that the registry knows, or may still be wanted.
    Kept,
    /// It is ours, and the registry does not know it.
    Unknown,
    /// It is ours, the registry does not know it, and the time in its label has passed.
    Expired,
    /// Its name looks like one of ours, and its labels do not prove it: it is never removed.
    NotOurs,
}

impl Client {
    /// Returns the Sprites whose names begin like those of the owner, each with its claim. The
    /// labels that decide are those of a request for each, since listings may leave them out.
    ///
    /// `is_known` says whether the registry knows a Sprite of this name; `now` is in seconds since
    /// 1970.
    pub fn list_made(
        &self,
        owner: &str,
        is_known: &dyn Fn(&str) -> bool,
        now: u64,
        deadline: Instant,
    ) -> Result<Vec<MadeSprite>, Fault> {
        let mut made = Vec::new();
        for listed in self.list(&name_prefix(owner), deadline)? {
            // One that has gone meanwhile needs no word.
            if let Some(sprite) = self.get(&listed.name, deadline)? {
                let claim = judge(&sprite, owner, is_known(&sprite.name), now);
                made.push(MadeSprite {
                    name: sprite.name,
                    status: sprite.status.or(listed.status),
                    claim,
                });
            }
        }
        Ok(made)
    }
}

fn judge(sprite: &Sprite, owner: &str, is_known: bool, now: u64) -> Claim {
    if !sprite.is_owned_by(owner) {
        return Claim::NotOurs;
    }
    let until = sprite.labels.as_deref().and_then(read_until);
    match until {
        // The label may be old: nothing renews it while the sandbox is stopped, and its files are work.
        _ if is_known => Claim::Kept,
        Some(until) if until < now => Claim::Expired,
        _ => Claim::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::labels;

    const OWNER: &str = "0011223344556677";

    #[test]
    fn labels_and_registry_decide() {
        let sprite = |labels: Option<Vec<String>>| Sprite {
            name: "gb-001122-x-abcd".to_owned(),
            status: None,
            labels,
            created_at: None,
        };
        let ours = sprite(Some(labels(OWNER, 100)));
        assert_eq!(judge(&ours, OWNER, true, 50), Claim::Kept);
        assert_eq!(judge(&ours, OWNER, false, 50), Claim::Unknown);
        assert_eq!(judge(&ours, OWNER, true, 101), Claim::Kept);
        assert_eq!(judge(&ours, OWNER, false, 101), Claim::Expired);
        for other in [None, Some(vec![]), Some(labels("0011223344556688", 0))] {
            assert_eq!(judge(&sprite(other), OWNER, false, 101), Claim::NotOurs);
        }
    }
}
