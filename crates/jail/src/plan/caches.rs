//! The part of planning that shows caches of package managers: one overlay each, over what the host has and
//! what earlier sandboxes of the project left.

use super::builder::Builder;
use super::{CACHE, Idmap, Place, PlanError, check_target};
use crate::facts::HostFacts;
use crate::spec::{CacheDir, Spec};
use std::path::{Path, PathBuf};

/// What an earlier sandbox left in one cache: read-only, between the writable layer and the host's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenCache {
    /// [`CacheDir::name`].
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// First host id of the range its files belong to, when they were written under root.
    pub first_id: Option<u32>,
}

/// Name of the writable layer of a cache.
pub fn cache_layer(name: &str) -> String {
    format!("{CACHE}{name}")
}

impl Builder {
    pub(super) fn caches(
        &mut self,
        spec: &Spec,
        facts: &HostFacts,
        place: &Place,
    ) -> Result<(), PlanError> {
        for cache in &spec.caches {
            check_name(cache)?;
            check_target(&cache.target)?;
            let frozen = place
                .caches
                .iter()
                .filter(|frozen| frozen.name == cache.name)
                .map(|frozen| (frozen.path.as_path(), self.thaw(frozen.first_id)));
            let mut lowers: Vec<(&Path, Idmap)> = frozen.collect();
            if let Some(source) = &cache.source {
                lowers.push((source, cache_owner(cache, facts)));
            }
            self.overlay(&cache.target, &lowers, &cache_layer(&cache.name), false);
        }
        Ok(())
    }
}

/// Commands own what the owner of the cache has in it, whoever owns the workspace.
fn cache_owner(cache: &CacheDir, facts: &HostFacts) -> Idmap {
    let owner = facts
        .cache_owners
        .iter()
        .find(|owner| owner.name == cache.name);
    match owner {
        Some(owner) if (owner.uid, owner.gid) != (facts.workspace_uid, facts.workspace_gid) => {
            Idmap::OwnedBy {
                uid: owner.uid,
                gid: owner.gid,
            }
        }
        _ => Idmap::Owner,
    }
}

/// The name becomes that of a directory.
fn check_name(cache: &CacheDir) -> Result<(), PlanError> {
    let is_plain = !cache.name.is_empty()
        && cache.name.len() <= 32
        && cache
            .name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if is_plain {
        return Ok(());
    }
    Err(PlanError::Invalid(format!(
        "`{}` cannot be the name of a cache: it must be lower-case letters, digits and `-`",
        cache.name.escape_debug()
    )))
}
