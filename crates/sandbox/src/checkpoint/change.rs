//! Changes of a sandbox's stack of layers, such that a crash at any moment leaves the state before
//! or after.
//!
//! A change is recorded completely (`pending.json`) before anything is modified. The next holder of
//! the sandbox's lock finishes a recorded change, and every step of finishing can be repeated.
//! Meanwhile the writable layers are not mounted, or the kernel has made them read-only. They are
//! created again only after the change, so an existing writable layer belongs to the change.

use super::stack::{self, MAX_CHECKPOINTS, Stack, VERSION};
use super::{Checkpoint, Layer, store, tree, upper};
use crate::fault;
use crate::spec::name::random_hex;
use crate::state::layout::Layout;
use crate::state::sandbox_dir::{read_json, write_json};
use crate::state::trash;
use glovebox_jail::plan::range_of;
use glovebox_proto::{Code, Fault, Setting};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of layers above which a stack may not grow. Merging keeps it far below.
const MAX_LAYERS: usize = 400;
/// Maximum length of a comment, in bytes.
pub(super) const MAX_COMMENT_BYTES: usize = 4096;

/// A change that has been recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PendingChange {
    version: u32,
    /// Stack of the sandbox after the change.
    pub(crate) stack: Stack,
    /// Layer that the writable one becomes. `None` if nothing is frozen.
    pub(crate) frozen: Option<Layer>,
    /// True if the writable layer is discarded.
    is_dropping: bool,
    /// New checkpoint, if the change creates one.
    checkpoint: Option<Checkpoint>,
}

fn pending_path(dir: &Path) -> PathBuf {
    dir.join("pending.json")
}

pub(crate) fn read_pending(dir: &Path) -> Result<PendingChange, Fault> {
    let pending: PendingChange = read_json(&pending_path(dir))?;
    if pending.version == VERSION {
        return Ok(pending);
    }
    Err(Fault::failed(
        Code::Unsupported,
        format!(
            "{} was written by another glovebox (version {})",
            pending_path(dir).display(),
            pending.version
        ),
    ))
}

/// Finishes the change that is recorded in `dir`, if any. Precondition: the caller holds the
/// sandbox's lock, and its writable layers are not mounted or cannot be written to.
///
/// Returns the discarded trees: paths in the trash that the caller must remove.
pub(crate) fn finish(layout: &Layout, dir: &Path) -> Result<Vec<PathBuf>, Fault> {
    let pending = match read_pending(dir) {
        Ok(pending) => pending,
        Err(fault) if fault.code == Code::NotFound => return Ok(Vec::new()),
        Err(fault) => return Err(fault),
    };
    let mut thrown = Vec::new();
    for part in store::PARTS {
        let from = upper(dir, part);
        match &pending.frozen {
            Some(layer) if layer.has(part) => {
                store::make_dir(&store::layer(layout, &layer.id))?;
                let to = store::part(layout, &layer.id, part);
                match fs::rename(&from, &to) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(fault::io("freeze", &from, error));
                    }
                    _ => {}
                }
            }
            None if pending.is_dropping => thrown.extend(trash::discard(layout, &from)?),
            // Nothing was written to this part, so it stays as it is.
            Some(_) | None => {}
        }
    }
    if let Some(checkpoint) = &pending.checkpoint {
        stack::write_checkpoint(dir, checkpoint)?;
    }
    stack::write(dir, &pending.stack)?;
    // The record is removed last: until then a crash leaves it, and the next call repeats the steps
    // above.
    let path = pending_path(dir);
    fs::remove_file(&path).map_err(|error| fault::io("remove", &path, error))?;
    Ok(thrown)
}

/// Returns true if anything was written to a part. False if its directory is missing.
fn is_written(dir: &Path, part: &str) -> Result<bool, Fault> {
    let path = upper(dir, part);
    match fs::read_dir(&path) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(fault::io("read", &path, error)),
    }
}

/// Returns the first id of the leased range that owns the writable layers. `None` unless this
/// process runs as root.
fn first_id(dir: &Path) -> Option<u32> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    range_of(fs::symlink_metadata(upper(dir, store::ROOT)).ok()?.uid())
}

/// Returns the layer that the writable one would become. `None` if nothing was written.
fn next_layer(dir: &Path, is_whole: bool) -> Result<Option<Layer>, Fault> {
    let is_frozen = |part| Ok(is_written(dir, part)? || (is_whole && upper(dir, part).is_dir()));
    let layer = Layer {
        id: store::new_id(),
        first_id: first_id(dir),
        level: 0,
        has_root: is_frozen(store::ROOT)?,
        has_workspace: is_frozen(store::WORKSPACE)?,
        is_seed: false,
    };
    Ok((layer.has_root || layer.has_workspace).then_some(layer))
}

/// Checks the comment of a new checkpoint.
///
/// # Errors
/// `too-large` for a long one.
pub(super) fn check_comment(comment: Option<&str>) -> Result<(), Fault> {
    if comment.is_some_and(|text| text.len() > MAX_COMMENT_BYTES) {
        return Err(Fault::failed(
            Code::TooLarge,
            format!("the comment has more than {MAX_COMMENT_BYTES} bytes"),
        ));
    }
    Ok(())
}

fn next_checkpoint(
    dir: &Path,
    stack: &Stack,
    layer: Option<&Layer>,
    comment: Option<&str>,
) -> Result<Checkpoint, Fault> {
    check_comment(comment)?;
    if stack::count(dir) >= MAX_CHECKPOINTS || stack.layers.len() >= MAX_LAYERS {
        return Err(Fault::refused(
            Code::TooLarge,
            format!(
                "the sandbox has {} checkpoints on {} layers; there is no room for more",
                stack::count(dir),
                stack.layers.len()
            ),
        )
        .remedy("`glovebox checkpoint delete NAME ID` removes one that is not needed"));
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Ok(Checkpoint {
        version: VERSION,
        id: format!("v{}", stack.last + 1),
        created_unix_ms: now.as_millis() as u64,
        comment: comment.map(str::to_owned),
        parent: stack.parent.clone(),
        layers: layer.into_iter().chain(&stack.layers).cloned().collect(),
    })
}

/// Plans a checkpoint of the writable layers. With `is_whole` both parts are frozen, even if
/// nothing was written to one. Nothing is modified before [`begin`].
pub(crate) fn plan_checkpoint(
    dir: &Path,
    comment: Option<&str>,
    is_whole: bool,
) -> Result<(PendingChange, Checkpoint), Fault> {
    let stack = stack::read(dir)?;
    let frozen = next_layer(dir, is_whole)?;
    let checkpoint = next_checkpoint(dir, &stack, frozen.as_ref(), comment)?;
    let pending = PendingChange {
        version: VERSION,
        stack: Stack {
            layers: checkpoint.layers.clone(),
            last: stack.last + 1,
            parent: Some(checkpoint.id.clone()),
            ..stack
        },
        frozen,
        is_dropping: false,
        checkpoint: Some(checkpoint.clone()),
    };
    Ok((pending, checkpoint))
}

/// Plans the return to a checkpoint. Nothing is modified before [`begin`].
pub(crate) fn plan_restore(dir: &Path, id: &str) -> Result<(PendingChange, Checkpoint), Fault> {
    let stack = stack::read(dir)?;
    let checkpoint = stack::checkpoint(dir, id)?;
    let pending = PendingChange {
        version: VERSION,
        stack: Stack {
            layers: checkpoint.layers.clone(),
            parent: Some(checkpoint.id.clone()),
            ..stack
        },
        frozen: None,
        is_dropping: true,
        checkpoint: None,
    };
    Ok((pending, checkpoint))
}

/// Records a change. From here on it cannot be undone: the next call of [`finish`], by any process,
/// carries it out.
pub(crate) fn begin(dir: &Path, pending: &PendingChange) -> Result<(), Fault> {
    write_json(&pending_path(dir), pending)
}

pub(super) fn cannot_copy(from: &Path, errno: Errno) -> Fault {
    if errno != Errno::NAMETOOLONG {
        return fault::io("copy", from, errno);
    }
    let message = format!(
        "directories in the sandbox are more than {} deep, which cannot be copied",
        tree::MAX_COPY_DEPTH
    );
    Fault::failed(Code::TooLarge, message).remedy([
        "end what runs in it and make the checkpoint without ".into(),
        Setting::Live.into(),
        ", which copies nothing".into(),
    ])
}

/// Creates a checkpoint from a copy of the writable layers, which stay in use. Precondition:
/// nothing writes to them meanwhile; after the copy `verify` checks that.
pub(crate) fn copy_checkpoint(
    layout: &Layout,
    dir: &Path,
    comment: Option<&str>,
    verify: &dyn Fn() -> Result<(), Fault>,
) -> Result<Checkpoint, Fault> {
    let stack = stack::read(dir)?;
    let layer = next_layer(dir, false)?;
    let checkpoint = next_checkpoint(dir, &stack, layer.as_ref(), comment)?;
    // Held until the checkpoint names the layer, or a collection of garbage could remove it.
    let guard = store::share(layout)?;
    if let Some(layer) = &layer {
        let draft = layout.staging().join(random_hex());
        store::make_dir(&draft)?;
        let copied = store::PARTS
            .into_iter()
            .filter(|part| layer.has(part))
            .try_for_each(|part| {
                let from = upper(dir, part);
                tree::copy(&from, &draft.join(part)).map_err(|errno| cannot_copy(&from, errno))
            })
            .and_then(|()| verify())
            .and_then(|()| {
                let place = store::layer(layout, &layer.id);
                fs::rename(&draft, &place).map_err(|error| fault::io("make", &place, error))
            });
        if let Err(fault) = copied {
            // A sweep removes files that stay.
            if let Ok(Some(place)) = trash::discard(layout, &draft) {
                let _ = trash::remove(layout, &place);
            }
            return Err(fault);
        }
    }
    stack::write_checkpoint(dir, &checkpoint)?;
    stack::write(
        dir,
        &Stack {
            last: stack.last + 1,
            parent: Some(checkpoint.id.clone()),
            ..stack
        },
    )?;
    drop(guard);
    Ok(checkpoint)
}
