//! Where the pieces of a sandbox's workspace lie on this machine, for whoever compares them with the
//! project they came from.

use crate::backend::WORKSPACE_UPPER;
use crate::cell::read_spec;
use crate::layout::Layout;
use crate::{Backend, checkpoint, fault};
use glovebox_jail::spec::{Layers, WorkspaceAccess};
use glovebox_proto::{Code, Fault};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// File in a sandbox's directory that is made with it and never written: its time is that of the first
/// sight of the project.
const SEEN: &str = "lock";
/// File in a sandbox's directory for the index of the project at that time.
pub(crate) const BASE: &str = "base";

/// The layers of a native sandbox's workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceLayers {
    /// The project, below all layers; `None` for a workspace that began empty.
    pub project: Option<PathBuf>,
    /// What was written, newest first: the writable layer, then what checkpoints froze. Any of them
    /// may hold whiteouts and opaque directories, and all of it comes from inside.
    pub layers: Vec<PathBuf>,
    /// Paths of the project, relative to it, that the sandbox does not see.
    pub hidden: Vec<PathBuf>,
    /// File for the index of the project as it was when the sandbox first saw it.
    pub base: PathBuf,
    /// When that was. What changed on the host at this time or later changed since.
    pub pushed_unix_ns: u128,
}

/// Finds the layers of the sandbox in `dir`.
pub(crate) fn layers(layout: &Layout, dir: &Path) -> Result<WorkspaceLayers, Fault> {
    let spec = read_spec(dir)?;
    let unsupported = |message: &str| Err(Fault::failed(Code::Unsupported, message));
    if spec.backend != Backend::Native {
        return unsupported("only a native sandbox has layers on this machine");
    }
    if spec.jail.layers == Layers::Memory {
        return unsupported("the sandbox's layers are in memory, where only its guest sees them");
    }
    if spec.jail.workspace_access == WorkspaceAccess::Live {
        return unsupported(
            "a live workspace has no layers: what was written is on the host already",
        );
    }
    let stack = checkpoint::stack::read(dir)?;
    let frozen = checkpoint::frozen(layout, &stack.layers);
    // A fork that was never started has written nothing yet.
    let upper = Some(dir.join(WORKSPACE_UPPER)).filter(|path| path.is_dir());
    Ok(WorkspaceLayers {
        project: spec.jail.workspace,
        layers: upper
            .into_iter()
            .chain(frozen.into_iter().filter_map(|layer| layer.workspace))
            .collect(),
        hidden: spec.jail.hidden,
        base: dir.join(BASE),
        pushed_unix_ns: pushed(dir)?,
    })
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

/// Gives a fork the memory of when its files saw the project: their first sight of it counts.
pub(crate) fn inherit(from: &Path, to: &Path) -> Result<(), Fault> {
    let (old, new) = (from.join(BASE), to.join(BASE));
    match fs::copy(&old, &new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(fault::io("copy", &old, error));
        }
        _ => {}
    }
    let (old, new) = (from.join(SEEN), to.join(SEEN));
    let seen = fs::symlink_metadata(&old)
        .and_then(|meta| meta.modified())
        .map_err(|error| fault::io("inspect", &old, error))?;
    fs::File::options()
        .write(true)
        .open(&new)
        .and_then(|file| file.set_modified(seen))
        .map_err(|error| fault::io("write", &new, error))
}
