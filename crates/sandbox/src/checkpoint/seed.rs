//! The git seed of a sandbox: the lowest frozen layer, which Glovebox makes and no sandbox ever wrote.
//!
//! This crate knows where it lies and for how long; what is in it is the business of the builder that comes with the
//! registry. Checkpoints and forks name it as any other layer, so they keep the repository they began with.

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

/// The functions that make seeds. They come with the registry, from the crate that reads repositories.
#[derive(Debug, Clone, Copy)]
pub struct SeedMaker {
    /// Makes the seed for a spec in an empty directory.
    pub build: fn(&Isolation, &Path) -> Result<(), Fault>,
    /// Whether the writable layer of a workspace and the frozen ones below it hold nothing that depends on the seed in
    /// a directory.
    pub is_untouched: fn(&Path, &[PathBuf], &Path) -> bool,
}

/// Makes the seed of the new sandbox in `dir` and writes it into the stack. `None` where the spec asks for none.
///
/// # Errors
/// What the builder fails with, and any failure to write.
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
        // What cannot be removed now is removed by a sweep.
        if let Ok(Some(place)) = trash::discard(layout, &draft) {
            let _ = trash::remove(layout, &place);
        }
        return Err(fault);
    }
    let layers = stack.layers.iter().filter(|layer| !layer.is_seed);
    let layers = layers.cloned().chain([layer]).collect();
    stack::write(dir, &Stack { layers, ..stack })?;
    // From here on the stack names it.
    drop(guard);
    Ok(Some(place))
}

/// Makes the seed of a stopped sandbox anew, if nothing in its workspace depends on the one it has; also for a sandbox
/// that has none because an earlier version made it.
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
    if let Some(seed) = super::seed_layer(layout, &stack.layers)
        && let Some(maker) = maker
    {
        let frozen = super::frozen(layout, &stack.layers);
        let frozen: Vec<PathBuf> = frozen
            .into_iter()
            .filter_map(|layer| layer.workspace)
            .collect();
        let upper = super::upper(dir, store::WORKSPACE);
        if !(maker.is_untouched)(&upper, &frozen, &seed) {
            return Ok(());
        }
        // It holds an index of the old seed at most. It goes first: over a newer one, it would stage its undoing.
        if let Some(place) = trash::discard(layout, &upper)? {
            trash::remove(layout, &place)?;
        }
    }
    make(layout, dir, spec, maker).map(|_| ())
}

/// Takes the seed of the sandbox in `dir` out of use. Precondition: the sandbox was never named, so that no
/// checkpoint and no fork shares it.
pub(crate) fn discard(layout: &Layout, dir: &Path, cleanup: &CleanupWorker) {
    let layers = stack::read(dir)
        .map(|stack| stack.layers)
        .unwrap_or_default();
    if let Some(seed) = super::seed_layer(layout, &layers)
        && let Ok(Some(place)) = trash::discard(layout, &seed)
    {
        // What cannot be removed now is found by the next sweep.
        let _ = cleanup.remove(place);
    }
}
