//! Planning of caches.
//!
//! Each cache of a package manager is an overlay over the host's directory and the layers that
//! earlier sandboxes of the project left. Kept build output is a set of layers of the workspace's
//! own overlay instead: programs that clean up remove its directory, which a mount point would
//! refuse, and its content has to be restored together with the sources.

use super::builder::Builder;
use super::{CACHE, HostResources, Idmap, PlanError, check_target};
use crate::facts::HostFacts;
use glovebox_spec::{CacheDir, Isolation, WorkspaceAccess};
use std::path::{Component, Path, PathBuf};

/// Layer that an earlier sandbox left in one cache. It is mounted read-only between the writable
/// layer and the host's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenCache {
    /// Name of the cache, as [`CacheDir::name`].
    pub name: String,
    /// Directory of the layer on the host.
    pub path: PathBuf,
    /// First host id of the range that owns its files. `None` unless the layer was written under
    /// root.
    pub first_id: Option<u32>,
}

/// Returns the name of the writable layer of a cache.
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

    /// Returns the layers of kept build output in the workspace, newest first.
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

    /// Returns the layers of one cache, newest first.
    fn kept<'a>(&self, name: &str, place: &'a HostResources) -> Vec<(&'a Path, Idmap)> {
        let frozen = place.caches.iter().filter(|frozen| frozen.name == name);
        frozen
            .map(|frozen| (frozen.path.as_path(), self.thaw(frozen.first_id)))
            .collect()
    }
}

/// Returns the translation that gives the cache's files to commands. It depends on the owner of the
/// cache, who need not be the owner of the workspace.
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

/// Checks that a cache in the workspace is a top-level directory of an overlay. A layer carries the
/// attributes of every directory on the path: a layer for a deeper directory would override those
/// of its parents too.
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

/// Checks the name of a cache, which becomes the name of a directory.
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
