//! Sprites of one state directory, with those that may be removed.

use crate::client::{Client, Sprite};
use crate::names::{name_prefix, read_until};
use glovebox_proto::Fault;
use std::time::Instant;

/// Sprite whose name has the form of the owner's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeSprite {
    /// Name of the Sprite.
    pub name: String,
    /// The service's word for its state. None if there is none.
    pub status: Option<String>,
    /// Claim that follows from its labels and the registry.
    pub claim: Claim,
}

/// Decision whether a Sprite may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Sprite of a sandbox that the registry knows. Never removed.
    Kept,
    /// Sprite whose labels name the owner, and which the registry does not know.
    Unknown,
    /// As [`Self::Unknown`], and the time in its label has passed.
    Expired,
    /// Sprite whose labels do not name the owner. Never removed.
    NotOurs,
}

impl Client {
    /// Returns the Sprites whose names begin like those of the owner, each with its claim. The
    /// labels come from a request for each Sprite, because listings may leave them out.
    ///
    /// `is_known` returns true if the registry knows a Sprite with this name; `now` is in seconds
    /// since 1970.
    pub fn list_made(
        &self,
        owner: &str,
        is_known: &dyn Fn(&str) -> bool,
        now: u64,
        deadline: Instant,
    ) -> Result<Vec<MadeSprite>, Fault> {
        let mut made = Vec::new();
        for listed in self.list(&name_prefix(owner), deadline)? {
            // A Sprite that has been destroyed meanwhile is left out.
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
        // The label may be outdated: it is not renewed while the sandbox is stopped, and its files
        // are work.
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
