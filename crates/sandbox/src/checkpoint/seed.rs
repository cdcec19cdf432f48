//! The git seed of a sandbox: the lowest frozen layer, which Glovebox creates and no sandbox has
//! written.
//!
//! This crate manages its location and lifetime. The builder that comes with the registry decides
//! about its content. Checkpoints and forks refer to it like to any other layer, so they keep the
//! repository that they began with.

use super::stack::{self, Stack};
use super::{Layer, store};
use crate::fault;
use crate::spec::name::random_hex;
use crate::state::cleanup::CleanupWorker;
use crate::state::layout::Layout;
use crate::state::trash;
use glovebox_proto::Fault;
use glovebox_spec::{Isolation, WorkspaceAccess};
use std::fs;
use std::path::{Path, PathBuf};

/// Functions that build seeds. They are part of the registry's configuration and come from the
/// crate that reads repositories.
#[derive(Debug, Clone, Copy)]
pub struct SeedMaker {
    /// Builds the seed for a spec in an empty directory.
    pub build: fn(&Isolation, &Path) -> Result<(), Fault>,
    /// Removes the copies that pushes wrote into a writable layer. Arguments: the base index of the
    /// sandbox, that layer, the frozen ones below it, and the project.
    pub drop_copies: fn(&Path, &Path, &[PathBuf], &Path),
    /// Returns true if the writable layer of a workspace and the frozen ones below it hold nothing
    /// that depends on the seed in the directory.
    pub is_untouched: fn(&Path, &[PathBuf], &Path) -> bool,
}

/// Builds the seed of the new sandbox in `dir` and adds it to the stack. Returns `None` if the spec
/// asks for none.
///
/// # Errors
/// The errors of the builder and of writing.
pub(crate) fn make(
    layout: &Layout,
    dir: &Path,
    spec: &Isolation,
    maker: Option<SeedMaker>,
) -> Result<Option<PathBuf>, Fault> {
    let is_wanted = !spec.repositories.is_empty()
        && spec.workspace.is_some()
        && spec.workspace_access != WorkspaceAccess::Live;
    if !is_wanted {
        return Ok(None);
    }
    let maker = maker.ok_or_else(|| fault::internal("nothing here makes git directories"))?;
    let stack = stack::read(dir)?;
    let guard = store::share(layout)?;
    let draft = layout.staging().join(random_hex());
    store::make_dir(&draft)?;
    let layer = Layer {
        id: store::new_id(),
        first_id: None,
        level: 0,
        has_root: false,
        has_workspace: true,
        is_seed: true,
    };
    let place = store::layer(layout, &layer.id);
    let built = (maker.build)(spec, &draft).and_then(|()| {
        fs::rename(&draft, &place).map_err(|error| fault::io("make", &place, error))
    });
    if let Err(fault) = built {
        // A sweep removes files that stay.
        if let Ok(Some(place)) = trash::discard(layout, &draft) {
            let _ = trash::remove(layout, &place);
        }
        return Err(fault);
    }
    let layers = stack.layers.iter().filter(|layer| !layer.is_seed);
    let layers = layers.cloned().chain([layer]).collect();
    stack::write(dir, &Stack { layers, ..stack })?;
    // The lock is held until the stack names the layer, or a collection of garbage could remove it.
    drop(guard);
    Ok(Some(place))
}

/// Rebuilds the seed of a stopped sandbox if nothing in its workspace depends on the present one.
/// Also builds it for a sandbox without one, made by an earlier version.
///
/// # Errors
/// As [`make`].
pub(crate) fn renew(
    layout: &Layout,
    dir: &Path,
    spec: &Isolation,
    maker: Option<SeedMaker>,
) -> Result<(), Fault> {
    let stack = stack::read(dir)?;
    let frozen = super::frozen(layout, &stack.layers);
    let frozen: Vec<PathBuf> = frozen
        .into_iter()
        .filter_map(|layer| layer.workspace)
        .collect();
    let upper = super::upper(dir, store::WORKSPACE);
    if let (Some(maker), Some(project)) = (maker, &spec.workspace) {
        (maker.drop_copies)(&dir.join(super::workspace::BASE), &upper, &frozen, project);
    }
    if let Some(seed) = super::seed_layer(layout, &stack.layers)
        && let Some(maker) = maker
    {
        if !(maker.is_untouched)(&upper, &frozen, &seed) {
            return Ok(());
        }
        // The layer holds at most an index of the old seed. Over a newer seed, that index would
        // stage the reversal of its changes, so the layer is removed first.
        if let Some(place) = trash::discard(layout, &upper)? {
            trash::remove(layout, &place)?;
        }
    }
    make(layout, dir, spec, maker).map(|_| ())
}

/// Discards the seed of the sandbox in `dir`. Precondition: the sandbox never had a name, so no
/// checkpoint and no fork shares the seed.
pub(crate) fn discard(layout: &Layout, dir: &Path, cleanup: &CleanupWorker) {
    let layers = stack::read(dir)
        .map(|stack| stack.layers)
        .unwrap_or_default();
    if let Some(seed) = super::seed_layer(layout, &layers)
        && let Ok(Some(place)) = trash::discard(layout, &seed)
    {
        // The next sweep finds files that stay.
        let _ = cleanup.remove(place);
    }
}
