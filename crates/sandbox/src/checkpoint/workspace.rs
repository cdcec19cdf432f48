//! Location of the parts of a sandbox's workspace on this machine, for a comparison with the
//! project.

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

/// File that is created with the sandbox's directory and never written. Its modification time is
/// the time at which the sandbox first saw the project.
const SEEN: &str = "lock";
/// File in a sandbox's directory with the index of the project at that time.
pub(crate) const BASE: &str = "base";
/// File beside it with the changes that pulls have made to the project since.
const PULLED: &str = "base.pulled";
/// Contents of the files in each of the two indexes.
const KEPT: &str = "base.kept";
const PULLED_KEPT: &str = "base.pulled.kept";
/// Copies that pushes wrote into the layers.
const PUSHED: &str = "base.pushed";

/// All of these. Only for copies they are replaced by older ones.
pub(crate) const RECORDS: [&str; 4] = [BASE, PULLED, KEPT, PULLED_KEPT];
/// File in a sandbox's directory that lists the project's files as a copy elsewhere last got them.
pub const COPY_MANIFEST: &str = "copied";
/// File beside it with the facts about the last push.
pub const COPY_NOTE: &str = "copied.json";

/// Layers of a native sandbox's workspace.
#[derive(Debug, Clone)]
pub struct WorkspaceLayers {
    /// Project below all layers. `None` for a workspace that began empty.
    pub project: Option<PathBuf>,
    /// Written layers, newest first: the writable layer, then the frozen ones. They may contain
    /// whiteouts and opaque directories. All content comes from inside and is untrusted.
    pub layers: Vec<PathBuf>,
    /// Directory of the git seed: the git directories that the sandbox began with, their objects
    /// and a record. `None` if there is no seed.
    pub seed: Option<PathBuf>,
    /// Paths, relative to the project, that the sandbox does not see.
    pub hidden: Vec<PathBuf>,
    /// File for the index of the project as the sandbox first saw it.
    pub base: PathBuf,
    /// Time at which the sandbox first saw the project, in nanoseconds since the Unix epoch. A file
    /// of the host that is this new or newer was changed since.
    pub pushed_unix_ns: u128,
    /// Directory of layers in memory, through which their paths lead. They can be opened while this
    /// is open.
    _held: Option<Arc<OwnedFd>>,
}

/// Finds the layers of the sandbox in `dir`. `in_memory` opens the directory of layers in memory;
/// it is called only if there are such layers.
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
    // A fork that was never started has no writable layer.
    let upper = match &held {
        Some(held) => in_fd(held),
        None => dir.join(WORKSPACE_UPPER),
    };
    let upper = Some(upper).filter(|path| path.is_dir());
    // A layer that an earlier guest saved on disk lies below the layer in memory.
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

/// Returns the writable layer of the workspace in an open directory of layers.
fn in_fd(layers: &OwnedFd) -> PathBuf {
    let name = WORKSPACE_UPPER.rsplit('/').next().unwrap_or_default();
    PathBuf::from(format!("/proc/self/fd/{}/{name}", layers.as_raw_fd()))
}

/// Returns the fault for layers in memory that ended with their sandbox.
pub(crate) fn gone_with_memory() -> Fault {
    let message = "the sandbox's layers were in memory and have gone with it";
    Fault::failed(Code::Unsupported, message)
}

fn pushed(dir: &Path) -> Result<u128, Fault> {
    let path = dir.join(SEEN);
    let meta = fs::symlink_metadata(&path).map_err(|error| fault::io("inspect", &path, error))?;
    let seconds = u128::from(meta.mtime().max(0).unsigned_abs());
    // The kernel stamps all files from one coarse clock, so a file changed after this one has no
    // earlier time. Subtracting a margin would count files that a script wrote just before the
    // start as changes of the host.
    Ok(seconds * 1_000_000_000 + u128::from(meta.mtime_nsec().max(0).unsigned_abs()))
}

/// Copies to a fork what its parent knows about the project: the time at which it first saw the
/// project, and the changes that pulls made before `checkpoint`, the checkpoint file that the fork
/// begins with, was written.
///
/// The fork does not contain changes of a later pull. For the fork they are changes of the host.
pub(crate) fn inherit(from: &Path, to: &Path, checkpoint: &Path) -> Result<(), Fault> {
    copy(&from.join(BASE), &to.join(BASE))?;
    copy(&from.join(KEPT), &to.join(KEPT))?;
    let pulled = from.join(PULLED);
    // Both times are of the same clock. If they are equal the order is unknown; then an unnecessary
    // conflict is better than a missed one.
    if let Some(noted) = modified(&pulled)?
        && modified(checkpoint)?.is_some_and(|taken| noted < taken)
    {
        copy(&pulled, &to.join(PULLED))?;
        copy(&from.join(PULLED_KEPT), &to.join(PULLED_KEPT))?;
        copy(&from.join(PUSHED), &to.join(PUSHED))?;
        set_modified(&to.join(PULLED), noted)?;
    }
    let seen = from.join(SEEN);
    match modified(&seen)? {
        Some(at) => set_modified(&to.join(SEEN), at),
        None => Err(fault::io("inspect", &seen, std::io::ErrorKind::NotFound)),
    }
}

/// Copies a file. Succeeds if there is none.
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
