//! Before the start: host paths made absolute, facts read, the root skeleton found or built.

use crate::fault;
use glovebox_jail::facts::HostFacts;
use glovebox_jail::skeleton::Recipe;
use glovebox_jail::spec::{Limits, RootFs, Spec, WorkspaceAccess};
use glovebox_proto::{Code, Fault};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Makes every host path of the spec absolute and free of links, and refuses what would be unsafe.
pub(super) fn resolve(spec: &Spec, state_dir: &Path) -> Result<Spec, Fault> {
    let mut spec = spec.clone();
    let canonical = |what: &str, path: &Path| {
        fs::canonicalize(path).map_err(|error| fault::io(what, path, error))
    };
    if let Some(path) = &mut spec.workspace {
        *path = canonical("use as workspace", path)?;
        if !path.is_dir() {
            return Err(Fault::failed(
                Code::NotDirectory,
                format!("the workspace {} is not a directory", path.display()),
            )
            .remedy("name a directory with `-C DIR`"));
        }
        let state = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
        if state.starts_with(&*path) {
            return Err(Fault::failed(
                Code::InvalidArgument,
                format!(
                    "the workspace {} contains Glovebox's own state directory {}",
                    path.display(),
                    state.display()
                ),
            )
            .remedy("choose a smaller workspace with `-C DIR`, or set GLOVEBOX_STATE elsewhere"));
        }
    }
    if let RootFs::Dir(path) = &mut spec.rootfs {
        *path = canonical("use as root file system", path)?;
        if !path.is_dir() {
            return Err(Fault::failed(
                Code::NotDirectory,
                format!("the root file system {} is not a directory", path.display()),
            ));
        }
    }
    if spec.rootfs == RootFs::HostAll {
        // The host's homes are shown read-only there, so the sandbox user lives elsewhere.
        spec.home = PathBuf::from("/tmp/home");
    }
    for grant in &mut spec.grants {
        grant.source = canonical("grant", &grant.source)?;
        let state = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
        if grant.source.starts_with(&state) {
            return Err(Fault::failed(
                Code::InvalidArgument,
                format!(
                    "{} cannot be granted: it is in Glovebox's own state directory",
                    grant.source.display()
                ),
            ));
        }
    }
    // A grant inside another one that shows the same thing already needs no mount of its own.
    let all = spec.grants.clone();
    spec.grants.retain(|grant| {
        !all.iter().any(|other| {
            other != grant
                && grant.target.starts_with(&other.target)
                && grant.target.strip_prefix(&other.target).ok()
                    == grant.source.strip_prefix(&other.source).ok()
        })
    });
    Ok(spec)
}

/// Reads the facts that a plan for `spec` depends on.
pub(super) fn facts(spec: &Spec, state_dir: &Path) -> Result<HostFacts, Fault> {
    let mut facts = HostFacts::read(spec).map_err(|error| {
        let path = spec.workspace.clone().unwrap_or_else(|| PathBuf::from("/"));
        fault::io("look at", &path, error)
    })?;
    // Sockets of supervisors and layers of other sandboxes.
    facts.covers.extend(fs::canonicalize(state_dir));
    Ok(facts)
}

/// Finds or builds the root skeleton that fits, whoever else is doing the same.
pub(super) fn skeleton(spec: &Spec, facts: &HostFacts, state_dir: &Path) -> Result<PathBuf, Fault> {
    /// How long a skeleton that was found is trusted to still fit the host's `/etc`.
    const FRESH: Duration = Duration::from_secs(5);
    type Found = (Spec, PathBuf, Instant, PathBuf);
    static LAST: Mutex<Option<Found>> = Mutex::new(None);

    let key = Spec {
        workspace: None,
        workspace_access: WorkspaceAccess::Overlay,
        hidden: Vec::new(),
        protected: Vec::new(),
        limits: Limits::default(),
        env: Vec::new(),
        ..spec.clone()
    };
    // Held while building, so that threads that start together build once.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((spec, state, at, path)) = &*last
        && *spec == key
        && state == state_dir
        && at.elapsed() < FRESH
        && path.is_dir()
    {
        return Ok(path.clone());
    }
    let recipe = Recipe::new(spec, facts);
    let owner = if facts.is_privileged { "root" } else { "user" };
    let digest = blake3::hash(format!("{owner}\n{}", recipe.fingerprint()).as_bytes());
    let base = state_dir.join("base");
    let path = base.join(&digest.to_hex()[..32]);
    if !path.is_dir() {
        fs::create_dir_all(&base).map_err(|error| fault::io("make", &base, error))?;
        let draft = base.join(format!("new-{}", std::process::id()));
        // What a process with the same id left unfinished is of no use to anybody.
        let _ = fs::remove_dir_all(&draft);
        recipe
            .build(&draft, facts.is_privileged)
            .map_err(|error| fault::io("build the root skeleton in", &draft, error))?;
        if let Err(error) = fs::rename(&draft, &path) {
            let _ = fs::remove_dir_all(&draft);
            // Somebody else was first with an equal one.
            if !path.is_dir() {
                return Err(fault::io("put in place", &path, error));
            }
        }
    }
    *last = Some((key, state_dir.to_owned(), Instant::now(), path.clone()));
    Ok(path)
}
