//! Sandboxes with a copy of the project: pushed and collected over the link.
//!
//! The sandbox's directory stores the starting point of later pushes and collections: the manifest
//! of the last push, the index of the project, and a record of the copy's origin.

use super::{SandboxChanges, copied_git};
use crate::Error;
use crate::spec::{hide_rules, renew_credential};
use glovebox_proto::{Code, Fault, JobState, Request, WriteMode};
use glovebox_sandbox::{Backend, COPY_MANIFEST, COPY_NOTE, Name, Registry, Sandbox, SandboxState};
use glovebox_settings::{Settings, Surroundings};
use glovebox_spec::{WORKSPACE, json_path};
use glovebox_workspace::apply::BaseFile;
use glovebox_workspace::base;
use glovebox_workspace::branch::{HostRepository, SentRepositories, build_sent};
use glovebox_workspace::collect::{LayerPaths, from_layers};
use glovebox_workspace::copy::{
    self, CopyInputs, Packing, PushOptions, PushRecords, PushTotals, SandboxRoot,
};
use glovebox_workspace::{
    CollectedChanges, Filter, HiddenPaths, Quota, RelPath, Stage, SyncError, Watch, find_hidden,
    write_layer,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// File of the origin record, in a sandbox's directory.
/// Directory beside it for git directories that are about to be sent.
const MADE_GIT_DIRS: &str = "git.new";

/// Origin of a copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyOrigin {
    /// Project directory.
    #[serde(with = "json_path")]
    pub project: PathBuf,
    #[serde(with = "json_path::list")]
    hidden: Vec<PathBuf>,
    /// The `.git` paths of repositories that were sent separately when the copy was made.
    #[serde(with = "json_path::list")]
    git_dirs: Vec<PathBuf>,
    pushed_unix_ns: u128,
    /// Commits that the references and stashes of the project's repository pointed to.
    pub(super) git: Vec<String>,
}

impl CopyOrigin {
    /// Reads the record in a sandbox's directory; `None` if the sandbox has no copy.
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(dir.join(COPY_NOTE)).ok()?).ok()
    }

    fn write(&self, dir: &Path) -> Result<(), Fault> {
        let new = dir.join("copied.json.new");
        serde_json::to_vec(self)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&new, text))
            .and_then(|()| std::fs::rename(&new, dir.join(COPY_NOTE)))
            .map_err(|error| {
                Fault::failed(
                    Code::Io,
                    format!("cannot note the push in {}: {error}", dir.display()),
                )
            })
    }
}

/// Returns the directory of the copy inside: the workspace, or a directory of its own if commands
/// start elsewhere.
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

/// Returns the path of a remote directory that the end of the sandbox does not remove; `None` if
/// there is none.
fn removable(sandbox: &Sandbox) -> Option<ByteBuf> {
    if sandbox.info().backend.keeps_copy_here() {
        // The copy lies in the sandbox's own directory, which is removed with it.
        return None;
    }
    if !sandbox.info().backend.capabilities().has_own_dir {
        return start_dir(sandbox);
    }
    // TRUST: the guest reports this path; it is sent back only to the same guest.
    sandbox.facts().ok().map(|facts| facts.cwd)
}

/// Returns the directory in which commands start; `None` if it is the sandbox's default.
pub fn start_dir(sandbox: &Sandbox) -> Option<ByteBuf> {
    let is_elsewhere = !sandbox.info().backend.has_layers();
    (is_elsewhere && CopyOrigin::read(sandbox.dir()).is_some()).then(|| root(sandbox).into())
}

/// Returns the packing of transfers: compressed over a carrier.
pub fn packing(sandbox: &Sandbox) -> Packing {
    if sandbox.info().backend.has_layers() {
        Packing::Stored
    } else {
        Packing::Zstd
    }
}

/// Sends the project into the sandbox: everything the first time, later only differences.
///
/// # Errors
/// The project cannot be read or sent, or `watch` stops the push.
pub fn push(
    sandbox: &Sandbox,
    project: &Path,
    settings: &Settings,
    watch: &mut Watch<'_>,
) -> Result<PushTotals, Error> {
    let failed = |fault| Error::from(SyncError::push(Stage::Collect, fault));
    let dir = sandbox.dir();
    let mut hidden = find_hidden(project, &hide_rules(settings)).map_err(failed)?;
    let made = MadeDir::new(dir.join(MADE_GIT_DIRS));
    let earlier = CopyOrigin::read(dir);
    let repositories = if sandbox.info().backend.is_elsewhere() {
        make_git_dirs(project, settings, &hidden, earlier.as_ref(), &made).map_err(failed)?
    } else {
        SentRepositories::default()
    };
    hidden.paths.retain(|(path, _)| !repositories.covers(path));
    hidden
        .replaced
        .retain(|(path, _)| !repositories.covers(path));
    let replaced = hidden.replaced.iter().map(|(path, _)| path);
    let paths = hidden.paths.iter().map(|(path, _)| path);
    let origin = CopyOrigin {
        project: project.to_owned(),
        hidden: paths.chain(replaced).cloned().collect(),
        git_dirs: repositories.git_dirs.clone(),
        pushed_unix_ns: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos()),
        git: known_commits(project, earlier.as_ref()),
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
        manifest: &dir.join(COPY_MANIFEST),
        index: &dir.join("base"),
        spool_dir: dir,
    };
    let is_hidden = |path: &RelPath, _| {
        let as_sent = Path::new(OsStr::from_bytes(path.as_bytes()));
        names.contains(path) || repositories.covers(as_sent)
    };
    let options = PushOptions::default();
    let mut pushed = copy::push(&place, project, &is_hidden, &recorded, options, watch)?;
    if earlier.is_none() {
        push_git_dirs(&place, &repositories, &made, &mut pushed, watch)?;
    }
    // Git directories are sent separately, so they do not count as hidden files.
    pushed.hidden_paths.retain(|path| {
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        let is_git_dir = repositories.covers(path);
        pushed.hidden -= u64::from(is_git_dir);
        !is_git_dir
    });
    pushed.unsent_git = repositories.left_out;
    for (path, content) in &hidden.replaced {
        let path = Path::new(OsStr::from_bytes(&root)).join(path);
        sandbox
            .write_file(path.as_os_str().as_bytes(), WriteMode::Replace, content)
            .map_err(failed)?;
    }
    // Written after everything was sent: with a record, the next push would not send the git
    // directories again.
    origin.write(dir).map_err(failed)?;
    // If it fails, files that both sides change will conflict as a whole.
    let (index, pushed_at) = (dir.join("base"), origin.pushed_unix_ns);
    let _ = base::keep(project, &index, pushed_at, &origin.hidden, &|| false);
    Ok(pushed)
}

/// Builds the git directories for a copy on another machine. An existing copy keeps its own, so
/// that no work in them is lost.
fn make_git_dirs(
    project: &Path,
    settings: &Settings,
    hidden: &HiddenPaths,
    earlier: Option<&CopyOrigin>,
    made: &MadeDir,
) -> Result<SentRepositories, Fault> {
    if let Some(earlier) = earlier {
        return Ok(SentRepositories {
            git_dirs: earlier.git_dirs.clone(),
            left_out: Vec::new(),
        });
    }
    made.make()?;
    let paths: Vec<PathBuf> = hidden.paths.iter().map(|(path, _)| path.clone()).collect();
    build_sent(
        project,
        &hidden.repositories,
        &paths,
        settings.git.value,
        Path::new(super::GIT),
        &made.path,
    )
}

/// Sends the git directories of a new copy.
fn push_git_dirs(
    place: &SandboxRoot<'_>,
    repositories: &SentRepositories,
    made: &MadeDir,
    pushed: &mut PushTotals,
    watch: &mut Watch<'_>,
) -> Result<(), Error> {
    let (manifest, index) = (made.path.join("manifest"), made.path.join("index"));
    let recorded = PushRecords {
        manifest: &manifest,
        index: &index,
        spool_dir: &made.path,
    };
    for git_dir in &repositories.git_dirs {
        let root = Path::new(OsStr::from_bytes(place.root)).join(git_dir);
        let place = SandboxRoot {
            root: root.as_os_str().as_bytes(),
            ..*place
        };
        let options = PushOptions {
            is_new: true,
            ..PushOptions::default()
        };
        // Each directory is new on the other side, so there is no earlier manifest to compare with.
        let _ = std::fs::remove_file(&manifest);
        let from = made.path.join(git_dir);
        let sent = copy::push(&place, &from, &|_, _| false, &recorded, options, watch)?;
        pushed.files += sent.files;
        pushed.bytes += sent.bytes;
        pushed.made += sent.made;
    }
    Ok(())
}

/// Temporary directory for files that are built to be sent. Dropping this value removes it.
struct MadeDir {
    path: PathBuf,
}

impl MadeDir {
    fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn make(&self) -> Result<(), Fault> {
        // A crash may have left an earlier one.
        let _ = std::fs::remove_dir_all(&self.path);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&self.path)
            .map_err(|error| {
                Fault::failed(
                    Code::Io,
                    format!("cannot make {}: {error}", self.path.display()),
                )
            })
    }
}

impl Drop for MadeDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Returns the commits that references and stashes of a project's repository point to, and those of
/// an earlier push, because the repository in the copy dates from then.
fn known_commits(project: &Path, earlier: Option<&CopyOrigin>) -> Vec<String> {
    let mut known = earlier.map_or_else(Vec::new, |earlier| earlier.git.clone());
    if let Ok(host) = HostRepository::open(project, Path::new(super::GIT)) {
        known.extend(host.known_tips().unwrap_or_default());
        known.extend(host.stashes());
    }
    known.sort_unstable();
    known.dedup();
    known
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

/// Removes a copy that the end of the sandbox does not remove.
pub fn clean(sandbox: &Sandbox) {
    if let Some(path) = removable(sandbox) {
        // If this fails, the directory remains on the other machine under the sandbox's name.
        let _ = sandbox.call(glovebox_proto::Request::Remove {
            path,
            recursive: true,
        });
    }
}

/// Result of removing the copy of a sandbox that is about to end.
#[derive(Debug)]
pub enum CopyRemoval {
    /// No copy outlives the sandbox.
    None,
    /// The copy was removed.
    Removed,
    /// The copy remains on the other machine, in this directory.
    Left(String),
    /// The service that has the copy did not remove it.
    Unreachable(Error),
}

/// Maximum time for removing a copy.
const CLEAN_WAIT: Duration = Duration::from_mins(1);

/// Removes the copy of a named sandbox that is about to be killed, after killing its jobs, which
/// might still write to it.
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

/// Fetches the changes and commits of a remote copy and writes them to a layer on this machine, so
/// that they can be parked when the sandbox ends. Does nothing for a sandbox without a remote copy.
///
/// # Errors
/// They cannot be fetched or written; the copy is then unchanged.
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
    // The copy is removed only when its changes and commits are on this machine.
    clean(sandbox);
    Ok(forget(&dir)?)
}

/// Creates an empty layer over the project of a copy.
pub(super) fn make_layer(sandbox: &Sandbox, origin: &CopyOrigin) -> Result<PathBuf, Fault> {
    sandbox.make_layer(&origin.project, origin.hidden.clone())
}

/// Removes the origin record: from here on the sandbox counts as one with layers.
pub(super) fn forget(dir: &Path) -> Result<(), Fault> {
    std::fs::remove_file(dir.join(COPY_NOTE)).map_err(|error| {
        Fault::failed(
            Code::Io,
            format!(
                "cannot remove the note of the push in {}: {error}",
                dir.display()
            ),
        )
    })
}

/// Collects the changes of a copy from a layer that was fetched earlier.
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
        base: None,
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
        // The sandbox was frozen while its files were fetched; they are stored separately now.
        _frozen: None,
    }
}

/// Collects the changes of a copy.
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
        manifest: Some(&dir.join(COPY_MANIFEST)),
        project: Some(&origin.project),
        hidden: &origin.hidden,
        git_dirs: &origin.git_dirs,
        spool_dir: dir,
    };
    let collected = copy::collect(&place, &source, filter, &Quota::default(), watch)?;
    Ok(changes_of(dir, origin, collected))
}
