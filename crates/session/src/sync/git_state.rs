//! Git work of a sandbox: commits, branches, tags and stashes that exist only there.
//!
//! The layers are examined first, as data: a sandbox that has written no reference has no git work.
//! Only otherwise is git inside queried.

use super::git_inside::SandboxGit;
use super::{GIT, copied, copied_git};
use crate::{Error, GitWork};
use glovebox_proto::Fault;
use glovebox_sandbox::{Name, Registry, RegistryEntry, Sandbox, SandboxState, WorkspaceLayers};
use glovebox_workspace::SeedReferences;
use glovebox_workspace::branch::{
    CommitOrigin, HostRepository, changed_repositories, find_layer_tips,
};
use std::path::{Path, PathBuf};

/// Maximum number of branches and tags examined.
const MAX_REFERENCES: usize = 1000;
/// Maximum number of stashes counted.
const MAX_STASHES: usize = 100;

/// Layers of a sandbox that has a repository of its own, and the initial state of that repository.
pub(super) struct OwnRepository {
    pub(super) layers: WorkspaceLayers,
    pub(super) seed: PathBuf,
    pub(super) origin: CommitOrigin,
}

impl OwnRepository {
    /// Finds the repository of a sandbox; `None` for a sandbox without a seed.
    pub(super) fn of(sandbox: &Sandbox) -> Result<Option<Self>, Fault> {
        // A copy is on another machine, or has no layers here.
        if copied::CopyOrigin::read(sandbox.dir()).is_some() {
            return Ok(None);
        }
        let layers = sandbox.workspace_layers()?;
        let Some(seed) = layers.seed.clone() else {
            return Ok(None);
        };
        let origin = CommitOrigin::of_seed(
            &seed,
            layers.layers.clone(),
            layers.hidden.clone(),
            layers.base.clone(),
        );
        Ok(origin.map(|origin| Self {
            layers,
            seed,
            origin,
        }))
    }
}

/// Returns true if the sandbox has a repository of its own in place of the project's.
pub(super) fn has_own_repository(sandbox: &Sandbox) -> bool {
    if let Some(origin) = copied::CopyOrigin::read(sandbox.dir()) {
        return !origin.git.is_empty();
    }
    OwnRepository::of(sandbox).is_ok_and(|own| own.is_some())
}

/// Finds the git work of a named sandbox. Only a running one can be queried; for others the layers
/// tell which repositories have work, but not how much.
///
/// # Errors
/// As [`find_git_work`].
pub fn find_git_work_named(registry: &Registry, name: &Name) -> Result<GitWork, Error> {
    let Some(entry) = registry.entry(name)? else {
        return Err(Error::no_sandbox(name));
    };
    if entry.state == SandboxState::Ready {
        return find_git_work(&registry.connect(name)?);
    }
    Ok(find_in_layers(registry, &entry))
}

/// Finds git work in the layers of a named sandbox, without running git: which repositories have
/// some, but not how much.
pub(super) fn find_in_layers(registry: &Registry, entry: &RegistryEntry) -> GitWork {
    // A copy is on another machine, or has no layers here.
    let layers = registry.workspace_layers(&entry.name).ok();
    let is_copy = copied::CopyOrigin::read(&entry.dir).is_some();
    let Some(layers) = layers.filter(|_| !is_copy) else {
        return GitWork::default();
    };
    let Some(seed) = &layers.seed else {
        return GitWork::default();
    };
    let mut repositories = changed_repositories(seed, &layers.layers);
    let all = repositories.len();
    repositories.retain(|path| !path.as_os_str().is_empty());
    let is_own_changed = repositories.len() < all;
    GitWork {
        is_uncounted: is_own_changed && !has_host_all(&layers, seed),
        repositories,
        ..GitWork::default()
    }
}

/// Returns true if the host has every object that references and stashes in the layers point to.
/// False if that is unknown.
fn has_host_all(layers: &WorkspaceLayers, seed: &Path) -> bool {
    let (Some(tips), Some(project)) = (find_layer_tips(&layers.layers), &layers.project) else {
        return false;
    };
    let began = SeedReferences::read(seed);
    let is_new =
        |tip: &String| !began.has_stash(tip) && !began.objects.values().any(|object| object == tip);
    let tips: Vec<String> = tips.into_iter().filter(is_new).collect();
    if tips.is_empty() {
        return true;
    }
    let host = HostRepository::open(project, Path::new(GIT));
    let missing = host.and_then(|host| host.find_missing(&tips));
    missing.is_ok_and(|missing| missing.is_empty())
}

/// Finds the git work of a running sandbox that the host does not have.
///
/// # Errors
/// Git inside does not answer; then there may be work that is unknown.
pub fn find_git_work(sandbox: &Sandbox) -> Result<GitWork, Error> {
    if let Some(origin) = copied::CopyOrigin::read(sandbox.dir()) {
        return copied_git::find_work(sandbox, &origin);
    }
    // Without readable layers there is no repository of its own.
    let Ok(Some(own)) = OwnRepository::of(sandbox) else {
        return Ok(GitWork::default());
    };
    let mut changed = changed_repositories(&own.seed, &own.layers.layers);
    let is_own = |path: &PathBuf| path.as_os_str().is_empty();
    let Some(at) = changed.iter().position(is_own) else {
        return Ok(GitWork {
            repositories: changed,
            ..GitWork::default()
        });
    };
    changed.remove(at);
    let inside = SandboxGit::new(sandbox);
    let began = SeedReferences::read(&own.seed);
    let mut known: Vec<String> = began.objects.values().cloned().collect();
    known.extend(own.origin.record.head.clone());
    if let Some(project) = &own.layers.project
        && let Ok(host) = HostRepository::open(project, Path::new(GIT))
    {
        known.extend(host.known_tips().unwrap_or_default());
    }
    known.sort_unstable();
    known.dedup();
    let known = inside.known(&known)?;
    let mut work = GitWork {
        branch: inside.branch()?,
        repositories: changed,
        ..GitWork::default()
    };
    let head = inside.commit("HEAD")?;
    if let Some(head) = &head {
        work.commits = inside.count(head, &known)?;
    }
    let beyond_head: Vec<String> = known.iter().cloned().chain(head).collect();
    for reference in inside.references()?.into_iter().take(MAX_REFERENCES) {
        if began.objects.get(&reference.name) == Some(&reference.object) {
            continue;
        }
        if let Some(tag) = reference.name.strip_prefix("refs/tags/") {
            work.tags.push(tag.to_owned());
        } else if let Some(branch) = reference.name.strip_prefix("refs/heads/")
            && !beyond_head.contains(&reference.object)
            && inside.count(&reference.object, &beyond_head)? > 0
        {
            work.branches.push(branch.to_owned());
        }
    }
    let stashes = inside.stashes()?;
    let stashes = stashes.iter().take(MAX_STASHES);
    work.stashes = stashes.filter(|stash| !began.has_stash(stash)).count();
    Ok(work)
}
