//! Build output that is kept as one of a project's caches: a directory of the workspace such as
//! cargo's `target`.
//!
//! It is part of the workspace's writable layer. It is moved from there to the caches, and mounted
//! as a layer below the next sandbox's writable one. Checkpoints contain it like the sources it was
//! built from.

use super::sources::{self, ChangedSource, ProjectView};
use super::store::{CacheLayer, Index, MAX_PROJECT_BYTES, now_ms};
use super::{lease, store};
use crate::checkpoint::{self, stack, tree};
use crate::state::layout::{Layout, WORKSPACE_UPPER};
use crate::{SandboxSpec, fault};
use glovebox_jail::plan::range_of;
use glovebox_jail::usage::{TreeUsage, measure};
use glovebox_proto::{Code, Fault};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Returns the name of the build output's cache in a spec, and its directory in the workspace.
/// `None` if the spec has none.
pub(super) fn of(spec: &SandboxSpec) -> Option<(&str, &Path)> {
    let caches = &spec.jail.caches;
    caches
        .iter()
        .find_map(|cache| Some((cache.name.as_str(), cache.in_workspace()?)))
}

/// Removes from `index` the build output that was built from sources other than those the sandbox
/// in `sandbox_dir` sees, and all later output.
pub(super) fn drop_stale(
    layout: &Layout,
    spec: &SandboxSpec,
    sandbox_dir: &Path,
    dir: &Path,
    index: &mut Index,
) {
    let Some((name, path)) = of(spec) else {
        return;
    };
    let has_it = |layer: &CacheLayer| layer.names.iter().any(|other| other == name);
    if !index.layers.iter().any(has_it) {
        return;
    }
    let project = index.project.clone();
    let view = workspace_layers(layout, sandbox_dir)
        .and_then(|layers| sources::changes(&layers.paths, path))
        .and_then(|own| {
            ProjectView::open(&project, own).map_err(|errno| fault::io("open", &project, errno))
        });
    let stale = match view {
        Ok(mut view) => index
            .layers
            .iter()
            .rposition(|layer| has_it(layer) && !view.fits(layer)),
        // Output that cannot be compared is not used.
        Err(_) => index.layers.len().checked_sub(1),
    };
    if let Some(stale) = stale {
        take_out(dir, name, &mut index.layers, stale + 1);
    }
}

/// Removes the build output from the newest `count` layers. Its files stay until no sandbox uses
/// them.
pub(super) fn take_out(dir: &Path, name: &str, layers: &mut Vec<CacheLayer>, count: usize) {
    for layer in layers.iter_mut().take(count) {
        if let Some(at) = layer.names.iter().position(|other| other == name) {
            layer.names.remove(at);
            layer.sources.clear();
            if let TreeUsage::Whole { bytes, .. } =
                measure(&dir.join(&layer.id).join(name), u64::MAX)
            {
                layer.bytes = layer.bytes.saturating_sub(bytes);
            }
        }
    }
    layers.retain(|layer| !layer.names.is_empty());
}

/// Layers of a sandbox's workspace, newest first.
struct WorkspaceLayers {
    paths: Vec<PathBuf>,
    /// First ids of the ranges that own the layers.
    first_ids: Vec<Option<u32>>,
}

fn workspace_layers(layout: &Layout, sandbox_dir: &Path) -> Result<WorkspaceLayers, Fault> {
    let upper = sandbox_dir.join(WORKSPACE_UPPER);
    let stack = stack::read(sandbox_dir)?;
    let first_id = fs::symlink_metadata(&upper).map_or(None, |meta| range_of(meta.uid()));
    let mut layers = WorkspaceLayers {
        paths: vec![upper],
        first_ids: vec![first_id],
    };
    for frozen in checkpoint::frozen(layout, &stack.layers) {
        if let Some(path) = frozen.workspace {
            layers.paths.push(path);
            layers.first_ids.push(frozen.first_id);
        }
    }
    Ok(layers)
}

/// Change that a sandbox made to its build output.
pub(super) enum BuildOutputChange {
    /// The output did not change.
    Nothing,
    /// The sandbox removed the directory.
    Removed,
    /// The sandbox wrote to the directory.
    Output(BuildOutput),
}

/// Build output in the layers of a workspace.
pub(super) struct BuildOutput {
    name: String,
    path: PathBuf,
    /// Layers that contain it or may contain it, newest first.
    layers: Vec<PathBuf>,
    pub(super) first_id: Option<u32>,
    sources: Vec<ChangedSource>,
}

/// Finds the build output that the sandbox in `sandbox_dir` wrote. Precondition: its processes have
/// ended.
///
/// # Errors
/// The reason for which the output cannot be kept.
pub(super) fn find(
    layout: &Layout,
    spec: &SandboxSpec,
    sandbox_dir: &Path,
) -> Result<BuildOutputChange, Fault> {
    let Some((name, path)) = of(spec) else {
        return Ok(BuildOutputChange::Nothing);
    };
    let WorkspaceLayers {
        mut paths,
        first_ids,
    } = workspace_layers(layout, sandbox_dir)?;
    let newest = paths
        .iter()
        .find_map(|layer| fs::symlink_metadata(layer.join(path)).ok());
    match newest {
        None => return Ok(BuildOutputChange::Nothing),
        Some(meta) if !meta.is_dir() => return Ok(BuildOutputChange::Removed),
        Some(_) => {}
    }
    if first_ids.iter().any(|first_id| *first_id != first_ids[0]) {
        return Err(Fault::failed(
            Code::Unsupported,
            format!(
                "{} is not kept: the sandbox stands on checkpoints that were written under other user ids",
                path.display()
            ),
        ));
    }
    let changes = sources::changes(&paths, path)?;
    // Layers below the oldest one that contains it add nothing.
    let has_it = |layer: &PathBuf| layer.join(path).symlink_metadata().is_ok();
    paths.truncate(paths.iter().rposition(has_it).map_or(1, |last| last + 1));
    Ok(BuildOutputChange::Output(BuildOutput {
        name: name.to_owned(),
        path: path.to_owned(),
        layers: paths,
        first_id: first_ids[0],
        sources: sources::written_down(changes, now_ms()),
    }))
}

impl BuildOutput {
    /// Moves the build output to a directory of its name in `place`, the new layer, and adds it to
    /// `layer`.
    ///
    /// # Errors
    /// The errors of moving. The output is then removed from `place`, as far as possible.
    pub(super) fn move_in(
        self,
        layout: &Layout,
        place: &Path,
        layer: &mut CacheLayer,
    ) -> Result<(), Fault> {
        let to = place.join(&self.name);
        let moved = self
            .move_to(&to)
            .map_err(|errno| fault::io("move build output to", &to, errno));
        let counted = moved.and_then(|()| match measure(&to, MAX_PROJECT_BYTES) {
            TreeUsage::Whole { bytes, .. } => Ok(bytes),
            usage => Err(lease::not_counted("build output is", &usage)),
        });
        match counted {
            Ok(bytes) => {
                layer.bytes = layer.bytes.saturating_add(bytes);
                layer.names.push(self.name);
                layer.sources = self.sources;
                Ok(())
            }
            Err(fault) => {
                store::discard(layout, &to);
                Err(fault)
            }
        }
    }

    fn move_to(&self, to: &Path) -> Result<(), Errno> {
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let [upper, frozen @ ..] = self.layers.as_slice() else {
            return Ok(());
        };
        if !frozen.is_empty() {
            return tree::merge_one(&self.layers, &self.path, to);
        }
        // Created with the owner of the sandbox's files, because the kernel accesses it as that
        // user.
        let like = fs::symlink_metadata(upper).map_err(errno)?;
        fs::create_dir(to).map_err(errno)?;
        std::os::unix::fs::chown(to, Some(like.uid()), Some(like.gid())).map_err(errno)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o755)).map_err(errno)?;
        let from = upper.join(&self.path);
        // rename(2) needs write access to a directory that changes its parent, and commands may
        // have removed it.
        fs::set_permissions(&from, fs::Permissions::from_mode(0o755)).map_err(errno)?;
        fs::rename(&from, to.join(&self.path)).map_err(errno)
    }
}
