//! Where the pieces of a sandbox's workspace lie on this machine, for whoever compares them with the
//! project they came from.

use crate::backend::WORKSPACE_UPPER;
use crate::cell::{read_spec, read_status};
use crate::{Backend, fault};
use glovebox_jail::spec::{Layers, WorkspaceAccess};
use glovebox_proto::{Code, Fault};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// File in a sandbox's directory with the time at which it first saw the project, in nanoseconds since
/// the epoch.
pub(crate) const PUSHED: &str = "pushed";
/// File in a sandbox's directory for the index of the project at that time.
pub(crate) const BASE: &str = "base";
/// The kernel stamps files with a clock that stands still between ticks: a change after the push may
/// bear a time this much before it.
const CLOCK_GRAIN_NS: u128 = 20_000_000;

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
pub(crate) fn layers(dir: &Path) -> Result<WorkspaceLayers, Fault> {
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
    Ok(WorkspaceLayers {
        project: spec.jail.workspace,
        layers: vec![dir.join(WORKSPACE_UPPER)],
        hidden: spec.jail.hidden,
        base: dir.join(BASE),
        pushed_unix_ns: pushed(dir),
    })
}

/// Notes that the sandbox sees the project from now on.
pub(crate) fn note_push(dir: &Path) -> Result<(), Fault> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let time = now.as_nanos().saturating_sub(CLOCK_GRAIN_NS);
    let path = dir.join(PUSHED);
    fs::write(&path, time.to_string()).map_err(|error| fault::io("write", &path, error))
}

fn pushed(dir: &Path) -> u128 {
    let noted = fs::read_to_string(dir.join(PUSHED)).ok();
    noted.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let made = read_status(dir).map_or(0, |status| status.created_unix_ms);
        u128::from(made) * 1_000_000
    })
}
