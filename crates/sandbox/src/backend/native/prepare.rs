//! Preparation of a start: resolves host paths, reads facts about the host, and finds or builds the
//! base layers of the root.

use crate::fault;
use crate::image::kept;
use crate::state::layout::{Layout, open_dir};
use crate::state::trash;
use glovebox_jail::facts::HostFacts;
use glovebox_jail::mask;
use glovebox_jail::plan::{MASK, REPLACED};
use glovebox_jail::skeleton::{Recipe, give_to_range};
use glovebox_proto::{Code, Fault, Setting};
use glovebox_spec::{Isolation, Limits, RootFs, WorkspaceAccess};
use rustix::fs::{FlockOperation, Timestamps, flock};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Makes every host path of the spec absolute and free of links, and refuses unsafe ones. `state`
/// is the state directory, also free of links if it exists.
pub(super) fn resolve(spec: &Isolation, state: &Path) -> Result<Isolation, Fault> {
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
            .remedy(["name a directory with ".into(), Setting::Project.of("DIR")]));
        }
        if state.starts_with(&*path) {
            return Err(Fault::failed(
                Code::InvalidArgument,
                format!(
                    "the workspace {} contains Glovebox's own state directory {}",
                    path.display(),
                    state.display()
                ),
            )
            .remedy([
                "choose a smaller workspace with ".into(),
                Setting::Project.of("DIR"),
                ", or set GLOVEBOX_STATE elsewhere".into(),
            ]));
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
        // There the host's home directories are mounted read-only, so the sandbox needs another
        // home.
        spec.home = PathBuf::from("/tmp/home");
    }
    for grant in &mut spec.grants {
        grant.source = canonical("grant", &grant.source)?;
        if grant.source.starts_with(state) {
            return Err(Fault::failed(
                Code::InvalidArgument,
                format!(
                    "{} cannot be granted: it is in Glovebox's own state directory",
                    grant.source.display()
                ),
            ));
        }
    }
    for cache in &mut spec.caches {
        // A source that is missing or must not be visible becomes an empty cache.
        cache.source = cache
            .source
            .take()
            .and_then(|source| fs::canonicalize(source).ok())
            .filter(|source| {
                source.is_dir() && !source.starts_with(state) && !state.starts_with(source)
            });
    }
    // A grant inside another one that shows the same path needs no mount of its own.
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

/// Reads the facts about the host that a plan for `spec` depends on. `state` is as for [`resolve`].
pub(super) fn facts(spec: &Isolation, state: &Path) -> Result<HostFacts, Fault> {
    let mut facts = HostFacts::read(spec).map_err(|error| {
        let path = spec.workspace.clone().unwrap_or_else(|| PathBuf::from("/"));
        fault::io("look at", &path, error)
    })?;
    // The state directory is covered: it has the sockets of supervisors and layers of other
    // sandboxes.
    facts.covers.push(state.to_owned());
    Ok(facts)
}

/// Generated base layers below the root overlay. `None` for one that is not needed.
#[derive(Debug, Clone, Default)]
pub(super) struct Skeletons {
    /// Layer with mount points, accounts and the link from the project's own path to the workspace.
    pub(super) root: Option<PathBuf>,
    /// Layer with the parts of the host's `/etc` that programs need.
    pub(super) machine: Option<PathBuf>,
}

/// Finds or builds the base layers for a spec. Safe if other processes do the same at the same
/// time.
pub(super) fn skeletons(
    spec: &Isolation,
    facts: &HostFacts,
    state_dir: &Path,
) -> Result<Skeletons, Fault> {
    /// Time for which a layer found earlier is assumed to match the host's `/etc`.
    const FRESH: Duration = Duration::from_secs(5);
    type SandboxDirState = (Isolation, PathBuf, Option<u32>, Instant, Skeletons);
    static LAST: Mutex<Option<SandboxDirState>> = Mutex::new(None);

    let key = Isolation {
        workspace_access: WorkspaceAccess::Overlay,
        hidden: Vec::new(),
        replaced: Vec::new(),
        // The layer depends only on whether there are repositories.
        repositories: spec.repositories.first().cloned().into_iter().collect(),
        start_dir: PathBuf::new(),
        protected: Vec::new(),
        limits: Limits::default(),
        env: Vec::new(),
        ..spec.clone()
    };
    // Held during the build, so that threads that start together build once.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((spec, state, first_id, at, found)) = &*last
        && *spec == key
        && state == state_dir
        && *first_id == facts.skeleton_first_id
        && at.elapsed() < FRESH
        && [&found.root, &found.machine]
            .into_iter()
            .flatten()
            .all(|path| path.is_dir())
    {
        return Ok(found.clone());
    }
    let base = state_dir.join(BASE);
    let project = spec.workspace.as_deref();
    let layer = |prefix: &str, recipe: &Recipe| find_or_build(prefix, recipe, facts, &base);
    let found = Skeletons {
        root: Some(note_project(layer("", &Recipe::new(spec, facts))?, project)),
        machine: Recipe::machine(spec)
            .map(|machine| layer(MACHINE, &machine))
            .transpose()?,
    };
    *last = Some((
        key,
        state_dir.to_owned(),
        facts.skeleton_first_id,
        Instant::now(),
        found.clone(),
    ));
    Ok(found)
}

/// Records beside a base layer the project it was made for, and returns the layer.
fn note_project(skeleton: PathBuf, project: Option<&Path>) -> PathBuf {
    let note = skeleton.with_extension(PROJECT);
    if let Some(project) = project
        && !note.exists()
    {
        // Without the record the layer is removed after [`UNUSED`] instead of with its project.
        let _ = fs::write(&note, project.as_os_str().as_bytes());
    }
    skeleton
}

/// Returns true if a base layer was made for a project that no longer exists.
fn is_of_gone_project(skeleton: &Path) -> bool {
    let Ok(project) = fs::read(skeleton.with_extension(PROJECT)) else {
        return false;
    };
    let project = Path::new(OsStr::from_bytes(&project));
    let found = fs::symlink_metadata(project);
    project.is_absolute() && found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Returns the layer of a recipe in `base`, named by `prefix` and the recipe's digest, and builds
/// it if it is missing.
fn find_or_build(
    prefix: &str,
    recipe: &Recipe,
    facts: &HostFacts,
    base: &Path,
) -> Result<PathBuf, Fault> {
    /// Attempts: a sweep may remove a layer after it was found and before it is locked.
    const TURNS: usize = 3;
    let owner = match facts.skeleton_first_id {
        Some(first_id) => format!("range {first_id}"),
        None if facts.is_privileged => "root".to_owned(),
        None => "user".to_owned(),
    };
    let digest = blake3::hash(format!("{owner}\n{}", recipe.fingerprint()).as_bytes());
    let path = base.join(format!("{prefix}{}", &digest.to_hex()[..32]));
    for _ in 0..TURNS {
        if hold(&path) {
            return Ok(path);
        }
        fs::create_dir_all(base).map_err(|error| fault::io("make", base, error))?;
        let draft = base.join(format!("{DRAFT}{}", std::process::id()));
        // Left unfinished by a dead process that had the same id.
        let _ = fs::remove_dir_all(&draft);
        let built = recipe.build(&draft, facts.is_privileged).and_then(|()| {
            match facts.skeleton_first_id {
                Some(first_id) => give_to_range(&draft, first_id),
                None => Ok(()),
            }
        });
        if let Err(error) = built {
            let _ = fs::remove_dir_all(&draft);
            return Err(fault::io("build the root skeleton in", &draft, error));
        }
        if let Err(error) = fs::rename(&draft, &path) {
            let _ = fs::remove_dir_all(&draft);
            // Another process has built an equal layer first.
            if !path.is_dir() {
                return Err(fault::io("put in place", &path, error));
            }
        }
    }
    Err(fault::internal(format!(
        "the root skeleton {} vanishes whenever it is built",
        path.display()
    )))
}

/// Directory of the base layers below the state directory.
const BASE: &str = "base";
/// Prefix of the names of layers with parts of the host's `/etc`.
const MACHINE: &str = "etc-";
/// Extension of the file that names the project of a base layer.
const PROJECT: &str = "project";
/// Prefix of the names of unfinished base layers.
const DRAFT: &str = "new-";
/// Time without use after which a base layer is removed.
const UNUSED: Duration = Duration::from_hours(168);
/// Age at which an unfinished base layer counts as abandoned.
const ABANDONED: Duration = Duration::from_hours(1);
/// Precision of the recorded time of last use.
const USE_GRAIN: Duration = Duration::from_hours(24);

/// Protects a base layer from sweeps while this process lives, by a shared lock on its directory,
/// and updates its time of last use. Returns false if there is no such layer.
fn hold(path: &Path) -> bool {
    static HELD: Mutex<BTreeMap<PathBuf, OwnedFd>> = Mutex::new(BTreeMap::new());
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(dir) = held.get(path)
        && is_at(dir, path)
    {
        return true;
    }
    let Ok(dir) = open_dir(path) else {
        return false;
    };
    // A sweep that holds the lock is about to remove the layer; then another one is built.
    if flock(&dir, FlockOperation::LockShared).is_err() || !is_at(&dir, path) {
        return false;
    }
    if age(path).is_some_and(|age| age > USE_GRAIN) {
        let now = Timestamps {
            last_access: NOW,
            last_modification: NOW,
        };
        // If this fails the layer counts as unused one day and is built again.
        let _ = rustix::fs::futimens(&dir, &now);
    }
    held.insert(path.to_owned(), dir);
    true
}

const NOW: rustix::fs::Timespec = rustix::fs::Timespec {
    tv_sec: 0,
    tv_nsec: rustix::fs::UTIME_NOW,
};

fn is_at(dir: &OwnedFd, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (rustix::fs::fstat(dir), rustix::fs::lstat(path)) else {
        return false;
    };
    (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
}

/// Returns the time since the last modification. `None` if it is unknown.
fn age(path: &Path) -> Option<Duration> {
    let modified = fs::symlink_metadata(path).ok()?.modified().ok()?;
    SystemTime::now().duration_since(modified).ok()
}

/// Removes base layers of projects that are gone, base layers that were not used for [`UNUSED`] (of
/// other settings or of an older `/etc`), and guest programs of other versions. Layers in use are
/// protected by their locks. Files that cannot be removed are left for the next sweep.
pub(crate) fn sweep_base(layout: &Layout) {
    let Ok(entries) = fs::read_dir(layout.base()) else {
        return;
    };
    let guest = kept::name();
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_draft = name.starts_with(DRAFT) || name.contains(".new-");
        let limit = if is_draft { ABANDONED } else { UNUSED };
        if path.extension().is_some_and(|end| end == PROJECT) {
            if !path.with_extension("").exists() {
                let _ = fs::remove_file(&path);
            }
            continue;
        }
        let is_ours = !is_draft && name.starts_with(&guest);
        let is_young = age(&path).is_none_or(|age| age < limit);
        if is_ours || (is_young && !is_of_gone_project(&path)) {
            continue;
        }
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // A guest that runs from the file keeps its content.
            let _ = fs::remove_file(&path);
            continue;
        }
        let Ok(dir) = open_dir(&path) else { continue };
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        if let Ok(Some(place)) = trash::discard(layout, &path) {
            let _ = trash::remove(layout, &place);
            // An equal layer may exist again already. The next start records its project anew.
            let _ = fs::remove_file(path.with_extension(PROJECT));
        }
    }
}

/// Builds the layers that hide names of the project and that replace files of the project and of
/// grants.
pub(super) fn mask_project(
    spec: &Isolation,
    layers: &Path,
    is_privileged: bool,
) -> Result<(), Fault> {
    let is_layer = spec.workspace_access != WorkspaceAccess::Live;
    let in_workspace: Vec<_> = spec.replaced_in_workspace().collect();
    if let Some(project) = &spec.workspace
        && spec.has_mask()
        && (is_layer || !in_workspace.is_empty())
    {
        let mask = layers.join(MASK);
        // A live workspace has no layers; there mounts cover the hidden names.
        let hidden = if is_layer { spec.masked() } else { Vec::new() };
        mask::build(&mask, project, &hidden, &in_workspace, is_privileged)
            .map_err(|error| fault::io("hide names of the project in", &mask, error))?;
    }
    let in_grants: Vec<_> = spec.replaced_in_grants().collect();
    if !in_grants.is_empty() {
        let dir = layers.join(REPLACED);
        fs::symlink_metadata(spec.workspace.as_deref().unwrap_or(layers))
            .and_then(|owner| mask::write_replaced(&dir, &owner, &in_grants, is_privileged))
            .map_err(|error| fault::io("write what is shown in place of files to", &dir, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_old(path: &Path) {
        let then = rustix::fs::Timespec {
            tv_sec: 1_000_000_000,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: then,
            last_modification: then,
        };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
    }

    #[test]
    fn only_what_is_old_and_unused_is_swept() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::open(&temp.path().join("state")).unwrap();
        let base = layout.base();
        for name in ["unused", "in-use", "new", "new-7"] {
            fs::create_dir_all(base.join(name).join("etc")).unwrap();
            fs::write(base.join(name).join("etc/file"), "x").unwrap();
        }
        fs::write(base.join("guest-of-another-version"), "x").unwrap();
        fs::write(base.join(kept::name()), "x").unwrap();
        for name in ["unused", "new-7", "guest-of-another-version", &kept::name()] {
            make_old(&base.join(name));
        }
        assert!(hold(&base.join("in-use")));
        make_old(&base.join("in-use"));
        assert!(!hold(&base.join("no-such")));
        // A layer of a project that is gone is removed at once, unless it is in use.
        for (name, project) in [("gone", "/no/such"), ("kept", "/"), ("held", "/no/such")] {
            fs::create_dir(base.join(name)).unwrap();
            note_project(base.join(name), Some(Path::new(project)));
        }
        assert!(hold(&base.join("held")));
        sweep_base(&layout);
        let mut left: Vec<_> = fs::read_dir(&base)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let guest = kept::name();
        let own = [
            "held",
            "held.project",
            "in-use",
            "kept",
            "kept.project",
            "new",
        ];
        let mut expected: Vec<&str> = own.into_iter().chain([guest.as_str()]).collect();
        expected.sort_unstable();
        assert_eq!(left, expected);
        assert_eq!(fs::read_dir(layout.trash()).unwrap().count(), 0);
    }

    #[test]
    fn using_a_skeleton_makes_it_young() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("skeleton");
        fs::create_dir(&path).unwrap();
        make_old(&path);
        assert!(hold(&path));
        assert!(age(&path).is_some_and(|age| age < USE_GRAIN));
    }
}
