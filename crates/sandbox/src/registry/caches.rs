//! Listing and removal of kept caches.

use crate::cache::store;
use crate::state::trash;
use crate::{Registry, fault};
use glovebox_proto::{Code, Fault};
use glovebox_spec::json_path;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Kept caches of one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProjectCache {
    /// Directory of the project. `None` if the index of the caches cannot be read.
    #[serde(with = "json_path::option")]
    pub project: Option<PathBuf>,
    /// User of a server that owns them. `None` for the user of this machine.
    pub owner: Option<String>,
    /// Directory of the caches.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// Disk usage, in bytes.
    pub bytes: u64,
    /// Time at which a sandbox that adds to them last started or ended, in milliseconds since the
    /// Unix epoch.
    pub used_unix_ms: u64,
    /// Names of the caches, such as `npm`.
    pub names: Vec<String>,
    /// True if a sandbox uses them now.
    pub is_in_use: bool,
}

impl Registry {
    /// Returns the kept caches of all projects, the most recently used first.
    ///
    /// # Errors
    /// Fails if they cannot be listed.
    pub fn caches(&self) -> Result<Vec<ProjectCache>, Fault> {
        let mut found = Vec::new();
        for path in store::project_dirs(self.layout())? {
            let is_in_use = store::lock_alone(&path)?.is_none();
            found.push(match store::read(&path) {
                Ok(index) => {
                    let Some(index) = index else { continue };
                    let mut names: Vec<String> = index
                        .layers
                        .iter()
                        .flat_map(|layer| layer.names.iter().cloned())
                        .collect();
                    names.sort();
                    names.dedup();
                    ProjectCache {
                        bytes: index.bytes(),
                        used_unix_ms: index.used_unix_ms,
                        project: Some(index.project),
                        owner: index.owner,
                        path,
                        names,
                        is_in_use,
                    }
                }
                Err(_) => ProjectCache {
                    project: None,
                    owner: None,
                    path,
                    bytes: 0,
                    used_unix_ms: 0,
                    names: Vec::new(),
                    is_in_use,
                },
            });
        }
        found.sort_by(|a, b| {
            let key = |cache: &ProjectCache| std::cmp::Reverse(cache.used_unix_ms);
            key(a).cmp(&key(b)).then_with(|| a.path.cmp(&b.path))
        });
        Ok(found)
    }

    /// Removes the kept caches at `path`, which is one of [`ProjectCache::path`]. Succeeds if there
    /// are none.
    ///
    /// # Errors
    /// `busy` while a sandbox uses them; the errors of removing files.
    pub fn remove_cache(&self, path: &Path) -> Result<(), Fault> {
        let layout = self.layout();
        if path.parent() != Some(&layout.caches()) {
            return Err(Fault::failed(
                Code::InvalidArgument,
                format!("{} is no package cache of Glovebox's", path.display()),
            ));
        }
        if !path.exists() {
            return Ok(());
        }
        let Some(_locks) = store::lock_alone(path)? else {
            return Err(Fault::failed(
                Code::Busy,
                format!("a sandbox has the package caches in {}", path.display()),
            )
            .remedy("end it first: `glovebox list` shows what runs")
            .retryable());
        };
        match trash::discard(layout, path)? {
            Some(place) => trash::remove(layout, &place),
            None => Err(fault::internal("the package caches went away under a lock")),
        }
    }
}
