//! The part of planning that shows caches: of package managers, one overlay each, over what the host has and what
//! earlier sandboxes of the project left; of build output, layers of the workspace's own overlay. A mount there
//! could not be removed, which programs that clean up do, and its content would not go back with the sources.

use super::builder::Builder;
use super::{CACHE, HostResources, Idmap, PlanError, check_target};
use crate::facts::HostFacts;
use glovebox_spec::{CacheDir, Isolation, WorkspaceAccess};
use std::path::{Component, Path, PathBuf};

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
        spec: &Isolation,
        facts: &HostFacts,
        place: &HostResources,
    ) -> Result<(), PlanError> {
        for cache in &spec.caches {
            check_name(cache)?;
            if let Some(path) = cache.in_workspace() {
                check_in_workspace(path, spec)?;
                continue;
            }
            check_target(&cache.target)?;
            let mut lowers = self.kept(&cache.name, place);
            if let Some(source) = &cache.source {
                lowers.push((source, cache_owner(cache, facts)));
            }
            self.overlay(&cache.target, &lowers, &cache_layer(&cache.name), false);
        }
        Ok(())
    }

    /// What is kept of build output in the workspace, newest first.
    pub(super) fn kept_in_workspace<'a>(
        &self,
        spec: &Isolation,
        place: &'a HostResources,
    ) -> Vec<(&'a Path, Idmap)> {
        let caches = spec.caches.iter();
        caches
            .filter(|cache| cache.in_workspace().is_some())
            .flat_map(|cache| self.kept(&cache.name, place))
            .collect()
    }

    /// What is kept of one cache, newest first.
    fn kept<'a>(&self, name: &str, place: &'a HostResources) -> Vec<(&'a Path, Idmap)> {
        let frozen = place.caches.iter().filter(|frozen| frozen.name == name);
        frozen
            .map(|frozen| (frozen.path.as_path(), self.thaw(frozen.first_id)))
            .collect()
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

/// A layer says what its directories are like: one for a directory further down would say it of those above as well.
fn check_in_workspace(path: &Path, spec: &Isolation) -> Result<(), PlanError> {
    let mut parts = path.components();
    let is_top = matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    );
    let wrong = if !is_top {
        "it must be directly in the workspace"
    } else if spec.workspace.is_none() || spec.workspace_access != WorkspaceAccess::Overlay {
        "the workspace must be an overlay over a project"
    } else {
        return Ok(());
    };
    Err(PlanError::Invalid(format!(
        "`{}` cannot be kept: {wrong}",
        path.display()
    )))
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
