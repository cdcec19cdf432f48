//! Where the pieces of a sandbox's workspace lie on this machine, for whoever compares them with the
//! project they came from.

use crate::state::layout::Layout;
use crate::state::layout::WORKSPACE_UPPER;
use crate::state::sandbox_dir::read_spec;
use crate::{checkpoint, fault};
use glovebox_proto::{Code, Fault};
use glovebox_spec::{Layers, WorkspaceAccess};
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// File in a sandbox's directory that is made with it and never written: its time is that of the first
/// sight of the project.
const SEEN: &str = "lock";
/// File in a sandbox's directory for the index of the project at that time.
pub(crate) const BASE: &str = "base";
/// Beside it: what pulls have made of the project since.
const PULLED: &str = "base.pulled";
/// Beside each: what the files held.
const KEPT: &str = "base.kept";
const PULLED_KEPT: &str = "base.pulled.kept";

/// The layers of a native sandbox's workspace.
#[derive(Debug, Clone)]
pub struct WorkspaceLayers {
    /// The project, below all layers; `None` for a workspace that began empty.
    pub project: Option<PathBuf>,
    /// What was written, newest first: the writable layer, then what checkpoints froze. Any of them
    /// may hold whiteouts and opaque directories, and all of it comes from inside.
    pub layers: Vec<PathBuf>,
    /// Directory of the git seed: the git directories that the sandbox began with, their objects and a record.
    pub seed: Option<PathBuf>,
    /// Paths of the project, relative to it, that the sandbox does not see.
    pub hidden: Vec<PathBuf>,
    /// File for the index of the project as it was when the sandbox first saw it.
    pub base: PathBuf,
    /// When that was. What changed on the host at this time or later changed since.
    pub pushed_unix_ns: u128,
    /// Where the layers are in memory, what their paths lead through: they can be opened as long as this
    /// is there.
    _held: Option<Arc<OwnedFd>>,
}

/// Finds the layers of the sandbox in `dir`. `in_memory` gives the directory of those that are in memory.
pub(crate) fn layers(
    layout: &Layout,
    dir: &Path,
    in_memory: impl FnOnce() -> Result<OwnedFd, Fault>,
) -> Result<WorkspaceLayers, Fault> {
    let spec = read_spec(dir)?;
    let unsupported = |message: &str| Err(Fault::failed(Code::Unsupported, message));
    if !spec.backend.has_layers() {
        return unsupported("only a native sandbox has layers on this machine");
    }
    if spec.jail.workspace_access == WorkspaceAccess::Live {
        return unsupported(
            "a live workspace has no layers: what was written is on the host already",
        );
    }
    let held = match spec.jail.layers {
        Layers::Memory => Some(Arc::new(in_memory()?)),
        Layers::Disk => None,
    };
    let stack = checkpoint::stack::read(dir)?;
    let frozen = checkpoint::frozen(layout, &stack.layers);
    // A fork that was never started has written nothing yet.
    let upper = match &held {
        Some(held) => in_fd(held),
        None => dir.join(WORKSPACE_UPPER),
    };
    let upper = Some(upper).filter(|path| path.is_dir());
    // What an earlier guest left on disk lies below what this one has in memory.
    let saved = dir.join(WORKSPACE_UPPER);
    let saved = (held.is_some() && saved.is_dir()).then_some(saved);
    Ok(WorkspaceLayers {
        project: spec.jail.workspace,
        seed: checkpoint::seed_layer(layout, &stack.layers),
        layers: upper
            .into_iter()
            .chain(saved)
            .chain(frozen.into_iter().filter_map(|layer| layer.workspace))
            .collect(),
        hidden: spec.jail.hidden,
        base: dir.join(BASE),
        pushed_unix_ns: pushed(dir)?,
        _held: held,
    })
}

/// The writable layer of the workspace in a directory of layers that has no path of its own.
fn in_fd(layers: &OwnedFd) -> PathBuf {
    let name = WORKSPACE_UPPER.rsplit('/').next().unwrap_or_default();
    PathBuf::from(format!("/proc/self/fd/{}/{name}", layers.as_raw_fd()))
}

/// There are layers in memory no more.
pub(crate) fn gone_with_memory() -> Fault {
    let message = "the sandbox's layers were in memory and have gone with it";
    Fault::failed(Code::Unsupported, message)
}

fn pushed(dir: &Path) -> Result<u128, Fault> {
    let path = dir.join(SEEN);
    let meta = fs::symlink_metadata(&path).map_err(|error| fault::io("inspect", &path, error))?;
    let seconds = u128::from(meta.mtime().max(0).unsigned_abs());
    // The kernel stamps all files with one clock, coarse as it may be: what is changed after this file
    // was made bears no earlier time. Taking anything off would make the host's work of what a script
    // wrote just before it started the sandbox.
    Ok(seconds * 1_000_000_000 + u128::from(meta.mtime_nsec().max(0).unsigned_abs()))
}

/// Gives a fork the memory of when its files saw the project: their first sight of it counts, and what
/// pulls brought back before `checkpoint`, the file of the one it begins with, was written.
///
/// What a later pull brought back the fork has never seen: for it that is a change of the host.
pub(crate) fn inherit(from: &Path, to: &Path, checkpoint: &Path) -> Result<(), Fault> {
    copy(&from.join(BASE), &to.join(BASE))?;
    copy(&from.join(KEPT), &to.join(KEPT))?;
    let pulled = from.join(PULLED);
    // Both times are of the same clock. Within one tick of it nobody can tell, and then a conflict too
    // many is better than one too few.
    if let Some(noted) = modified(&pulled)?
        && modified(checkpoint)?.is_some_and(|taken| noted < taken)
    {
        copy(&pulled, &to.join(PULLED))?;
        copy(&from.join(PULLED_KEPT), &to.join(PULLED_KEPT))?;
        set_modified(&to.join(PULLED), noted)?;
    }
    let seen = from.join(SEEN);
    match modified(&seen)? {
        Some(at) => set_modified(&to.join(SEEN), at),
        None => Err(fault::io("inspect", &seen, std::io::ErrorKind::NotFound)),
    }
}

/// Copies a file that may not be there.
fn copy(from: &Path, to: &Path) -> Result<(), Fault> {
    match fs::copy(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(fault::io("copy", from, error))
        }
        _ => Ok(()),
    }
}

fn modified(path: &Path) -> Result<Option<SystemTime>, Fault> {
    match fs::symlink_metadata(path).and_then(|meta| meta.modified()) {
        Ok(time) => Ok(Some(time)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fault::io("inspect", path, error)),
    }
}

fn set_modified(path: &Path, time: SystemTime) -> Result<(), Fault> {
    fs::File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.set_modified(time))
        .map_err(|error| fault::io("write", path, error))
}
