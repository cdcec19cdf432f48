//! Sandboxes that have a copy of the project: pushed over the wire, collected the same way.
//!
//! What a later push and every collection start from lies beside the sandbox's other files: the
//! manifest of the last push, the index of the project, and a note of where it came from.

use super::{SandboxChanges, copied_git};
use crate::Error;
use crate::spec::{hide_rules, renew_credential};
use glovebox_proto::{Code, Fault, JobState, Request, WriteMode};
use glovebox_sandbox::{Backend, Name, Registry, Sandbox, SandboxState};
use glovebox_settings::{Settings, Surroundings};
use glovebox_spec::{WORKSPACE, json_path};
use glovebox_workspace::apply::BaseFile;
use glovebox_workspace::base;
use glovebox_workspace::branch::HostRepository;
use glovebox_workspace::collect::{LayerPaths, from_layers};
use glovebox_workspace::copy::{
    self, CopyInputs, Packing, PushOptions, PushRecords, PushTotals, SandboxRoot,
};
use glovebox_workspace::{
    CollectedChanges, Filter, Quota, RelPath, Stage, SyncError, Watch, find_hidden, write_layer,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// File of the note, in a sandbox's directory.
const NOTE: &str = "copied.json";

/// Where a copy came from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyOrigin {
    /// The project.
    #[serde(with = "json_path")]
    pub project: PathBuf,
    #[serde(with = "json_path::list")]
    hidden: Vec<PathBuf>,
    pushed_unix_ns: u128,
    /// Commits that the references and stashes of the project's repository led to.
    pub(super) git: Vec<String>,
}

impl CopyOrigin {
    /// The note in a sandbox's directory; `None` when it has no copy.
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(dir.join(NOTE)).ok()?).ok()
    }

    fn write(&self, dir: &Path) -> Result<(), Fault> {
        let new = dir.join("copied.json.new");
        serde_json::to_vec(self)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&new, text))
            .and_then(|()| std::fs::rename(&new, dir.join(NOTE)))
            .map_err(|error| {
                Fault::failed(
                    Code::Io,
                    format!("cannot note the push in {}: {error}", dir.display()),
                )
            })
    }
}

/// Where the copy is inside: the workspace, or a directory of its own where commands start elsewhere.
pub fn root(sandbox: &Sandbox) -> Vec<u8> {
    let backend = sandbox.info().backend;
    if backend.has_layers() {
        WORKSPACE.into()
    } else if backend.capabilities().has_own_dir {
        b".".into()
    } else {
        sandbox.info().name.directory_elsewhere().into_bytes()
    }
}

/// Where a sandbox elsewhere has a directory that its end does not remove: a path that can be removed.
fn removable(sandbox: &Sandbox) -> Option<ByteBuf> {
    if sandbox.info().backend.keeps_copy_here() {
        // It lies in the sandbox's own directory.
        return None;
    }
    if !sandbox.info().backend.capabilities().has_own_dir {
        return start_dir(sandbox);
    }
    // TRUST: a path inside; it is sent back to the same guest only.
    sandbox.facts().ok().map(|facts| facts.cwd)
}

/// Where commands start, if it is another place than the sandbox's own.
pub fn start_dir(sandbox: &Sandbox) -> Option<ByteBuf> {
    let is_elsewhere = !sandbox.info().backend.has_layers();
    (is_elsewhere && CopyOrigin::read(sandbox.dir()).is_some()).then(|| root(sandbox).into())
}

/// What comes over a carrier is compressed.
pub fn packing(sandbox: &Sandbox) -> Packing {
    if sandbox.info().backend.has_layers() {
        Packing::Stored
    } else {
        Packing::Zstd
    }
}

/// Brings the project in: everything the first time, then what differs.
pub fn push(
    sandbox: &Sandbox,
    project: &Path,
    settings: &Settings,
    watch: &mut Watch<'_>,
) -> Result<PushTotals, Error> {
    let failed = |fault| Error::from(SyncError::push(Stage::Collect, fault));
    let dir = sandbox.dir();
    let hidden = find_hidden(project, &hide_rules(settings)).map_err(failed)?;
    let replaced = hidden.replaced.iter().map(|(path, _)| path);
    let paths = hidden.paths.iter().map(|(path, _)| path);
    let origin = CopyOrigin {
        project: project.to_owned(),
        hidden: paths.chain(replaced).cloned().collect(),
        pushed_unix_ns: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos()),
        git: known_commits(project),
    };
    let names: HashSet<RelPath> = origin
        .hidden
        .iter()
        .filter_map(|path| RelPath::new(path.as_os_str().as_bytes()).ok())
        .collect();
    let root = root(sandbox);
    if !sandbox.info().backend.has_layers() {
        make_root(sandbox, &root).map_err(failed)?;
    }
    let place = SandboxRoot {
        sandbox,
        root: &root,
        packing: packing(sandbox),
    };
    let recorded = PushRecords {
        manifest: &dir.join("copied"),
        index: &dir.join("base"),
        spool_dir: dir,
    };
    let pushed = copy::push(
        &place,
        project,
        &|path, _| names.contains(path),
        &recorded,
        PushOptions::default(),
        watch,
    )?;
    for (path, content) in &hidden.replaced {
        let path = Path::new(OsStr::from_bytes(&root)).join(path);
        sandbox
            .write_file(path.as_os_str().as_bytes(), WriteMode::Replace, content)
            .map_err(failed)?;
    }
    origin.write(dir).map_err(failed)?;
    // Without it, what both sides change is in conflict as a whole.
    let (index, pushed_at) = (dir.join("base"), origin.pushed_unix_ns);
    let _ = base::keep(project, &index, pushed_at, &origin.hidden, &|| false);
    Ok(pushed)
}

/// Returns the commits that references and stashes of a project's repository lead to; none without one.
fn known_commits(project: &Path) -> Vec<String> {
    let Ok(host) = HostRepository::open(project, Path::new(super::GIT)) else {
        return Vec::new();
    };
    let tips = host.known_tips().unwrap_or_default();
    tips.into_iter().chain(host.stashes()).collect()
}

fn make_root(sandbox: &Sandbox, root: &[u8]) -> Result<(), Fault> {
    sandbox
        .call(glovebox_proto::Request::Mkdir {
            path: root.to_vec().into(),
            permissions: 0o755,
            make_parents: true,
        })
        .map(drop)
}

/// Removes a copy that lies where the sandbox's end does not remove it.
pub fn clean(sandbox: &Sandbox) {
    if let Some(path) = removable(sandbox) {
        // Whoever is on the other side finds the directory under the sandbox's name.
        let _ = sandbox.call(glovebox_proto::Request::Remove {
            path,
            recursive: true,
        });
    }
}

/// What became of the copy of a sandbox that is about to end.
#[derive(Debug)]
pub enum CopyRemoval {
    /// There was none, or none that does not end with the sandbox.
    None,
    /// It has been removed.
    Removed,
    /// It is where it was, on the other side: its directory there.
    Left(String),
    /// The service that has it did not remove it.
    Unreachable(Error),
}

/// How long removing a copy may take.
const CLEAN_WAIT: Duration = Duration::from_mins(1);

/// Removes the copy of a named sandbox that is about to be killed, with what might still write to it.
pub fn clean_named(host: &Surroundings, registry: &Registry, name: &Name) -> CopyRemoval {
    let Ok(Some(entry)) = registry.entry(name) else {
        return CopyRemoval::None;
    };
    let backend = Backend::named(&entry.backend);
    let has_own_dir = backend.is_some_and(|backend| backend.capabilities().has_own_dir);
    let has_layers = backend.is_some_and(Backend::has_layers);
    let keeps_here = backend.is_some_and(Backend::keeps_copy_here);
    if has_layers || keeps_here || (!has_own_dir && CopyOrigin::read(&entry.dir).is_none()) {
        return CopyRemoval::None;
    }
    let left = CopyRemoval::Left(name.directory_elsewhere());
    if entry.state != SandboxState::Ready
        && let Ok(mut spec) = registry.spec(name)
        && spec.backend.capabilities().keeps_files
    {
        let destroyed = renew_credential(&mut spec, host)
            .and_then(|()| Ok(registry.destroy_remote(&spec, name)?));
        return match destroyed {
            Ok(()) => CopyRemoval::Removed,
            Err(error) => CopyRemoval::Unreachable(error),
        };
    }
    if entry.state != SandboxState::Ready || !entry.is_supervised {
        return left;
    }
    let cleaned = registry.connect(name).and_then(|sandbox| {
        for job in sandbox.jobs()? {
            if !matches!(job.state, JobState::Ended(_)) {
                let (job, grace_ms) = (job.job, 0);
                sandbox.call(Request::JobKill { job, grace_ms })?;
            }
        }
        let path = removable(&sandbox).unwrap_or_else(|| root(&sandbox).into());
        let remove = Request::Remove {
            path,
            recursive: true,
        };
        match sandbox.call_for(remove, Some(CLEAN_WAIT)) {
            Err(fault) if fault.code != Code::NotFound => Err(fault),
            _ => Ok(()),
        }
    });
    match cleaned {
        Ok(()) => CopyRemoval::Removed,
        Err(_) => left,
    }
}

/// Fetches the changes and commits of a copy elsewhere and lays them down on this machine, so that they can be parked when the
/// sandbox ends. A sandbox without a copy elsewhere is left alone.
///
/// # Errors
/// What keeps them from being fetched or written: they are still in the copy then.
pub fn fetch_to_layer(sandbox: &Sandbox, watch: &mut Watch<'_>) -> Result<(), Error> {
    if sandbox.info().backend.has_layers() {
        return Ok(());
    }
    let dir = sandbox.dir().to_owned();
    let Some(origin) = CopyOrigin::read(&dir) else {
        return Ok(());
    };
    let changes = collect(sandbox, origin.clone(), &Filter::default(), watch)?;
    copied_git::fetch(sandbox, &origin)?;
    let layer = make_layer(sandbox, &origin)?;
    write_layer(&changes.collected, &layer)?;
    clean(sandbox);
    Ok(forget(&dir)?)
}

/// Makes an empty layer over the project of a copy.
pub(super) fn make_layer(sandbox: &Sandbox, origin: &CopyOrigin) -> Result<PathBuf, Fault> {
    sandbox.make_layer(&origin.project, origin.hidden.clone())
}

/// Removes the note of the copy: from here on its sandbox is one with layers.
pub(super) fn forget(dir: &Path) -> Result<(), Fault> {
    std::fs::remove_file(dir.join(NOTE)).map_err(|error| {
        Fault::failed(
            Code::Io,
            format!(
                "cannot remove the note of the push in {}: {error}",
                dir.display()
            ),
        )
    })
}

/// Collects what changed in a copy from a layer with what was fetched of it.
pub(super) fn from_fetched(
    dir: &Path,
    layer: PathBuf,
    origin: CopyOrigin,
    filter: &Filter,
    watch: &mut Watch<'_>,
) -> Result<SandboxChanges, Error> {
    let source = LayerPaths {
        project: Some(&origin.project),
        layers: &[layer],
        hidden: &origin.hidden,
    };
    let collected = from_layers(&source, filter, &Quota::default(), watch)?;
    Ok(changes_of(dir, origin, collected))
}

fn changes_of(dir: &Path, origin: CopyOrigin, collected: CollectedChanges) -> SandboxChanges {
    SandboxChanges {
        collected,
        base: Some(BaseFile {
            index: dir.join("base"),
            pushed_unix_ns: origin.pushed_unix_ns,
            git: PathBuf::from(super::GIT),
        }),
        project: Some(origin.project),
        is_whole: true,
        // It was held while its files were fetched; they are kept apart now.
        _frozen: None,
    }
}

/// Collects what changed in a copy.
pub fn collect(
    sandbox: &Sandbox,
    origin: CopyOrigin,
    filter: &Filter,
    watch: &mut Watch<'_>,
) -> Result<SandboxChanges, Error> {
    let dir = sandbox.dir();
    let root = root(sandbox);
    let place = SandboxRoot {
        sandbox,
        root: &root,
        packing: packing(sandbox),
    };
    let source = CopyInputs {
        manifest: Some(&dir.join("copied")),
        project: Some(&origin.project),
        hidden: &origin.hidden,
        spool_dir: dir,
    };
    let collected = copy::collect(&place, &source, filter, &Quota::default(), watch)?;
    Ok(changes_of(dir, origin, collected))
}
