//! Checkpoints: kept states of a sandbox's files, to return to or to start other sandboxes from.
//!
//! A sandbox's files are an ordered list of layers: the writable one, and below it the *stack*,
//! layers that are never written again. A checkpoint is a named stack. Taking one renames the
//! writable layer into the stack, which takes the same time for any size. Restoring one discards
//! the writable layer and switches to another stack. A fork is a new sandbox on the same stack.
//!
//! ```text
//! STATE/layers/ID/{root,workspace}     frozen layers, shared by all sandboxes (`store`)
//! STATE/layers/ID/{workspace,held}     the git seed, the lowest of a stack (`seed`)
//! STATE/sandboxes/NAME/stack.json      the stack that the sandbox is based on (`stack`)
//! STATE/sandboxes/NAME/checkpoints/vN.json
//! STATE/sandboxes/NAME/pending.json    a change that has been recorded (`change`)
//! ```
//!
//! A service that keeps checkpoints of its machines has the files itself (`remote`).
//!
//! Only the holder of a sandbox's lock changes its files. A frozen layer has no owner: it stays as
//! long as any of these files names it. When a stack grows, neighbouring layers are merged into a
//! separate copy made of hard links (`flatten`).

pub(crate) mod change;
pub(crate) mod flatten;
pub(crate) mod remote;
pub(crate) mod seed;
pub(crate) mod stack;
pub(crate) mod store;
pub(crate) mod tree;
pub(crate) mod workspace;

use crate::state::layout::LAYERS;
use glovebox_jail::plan::CheckpointLayer;
use serde::{Deserialize, Serialize};

/// Frozen layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layer {
    /// Name of its directory below `STATE/layers`.
    pub(crate) id: String,
    /// First host id of the range that owns its files. `None` if they were not written by a sandbox
    /// of root.
    pub(crate) first_id: Option<u32>,
    /// Number of merges that its content went through.
    pub(crate) level: u32,
    pub(crate) has_root: bool,
    pub(crate) has_workspace: bool,
    /// True if it is the git seed: the lowest layer of a stack, created by Glovebox and not by the
    /// sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_seed: bool,
}

impl Layer {
    /// Returns true if the layer has this part.
    pub(crate) fn has(&self, part: &str) -> bool {
        if part == store::ROOT {
            self.has_root
        } else {
            self.has_workspace
        }
    }
}

/// Checkpoint of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    pub(crate) version: u32,
    /// Name within the sandbox: `v1`, `v2` and so on. A fork begins with `v0`.
    pub id: String,
    /// Time of creation, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
    /// Comment of the user or agent that created it.
    pub comment: Option<String>,
    /// Checkpoint that the sandbox was based on at that time.
    pub parent: Option<String>,
    /// Layers, newest first. Empty if a service has the files.
    pub(crate) layers: Vec<Layer>,
}

impl Checkpoint {
    /// Returns the number in the name.
    pub(crate) fn number(&self) -> Option<u64> {
        number(&self.id)
    }
}

/// Returns the number in the name of a checkpoint. `None` if `id` is not such a name.
pub(crate) fn number(id: &str) -> Option<u64> {
    let digits = id.strip_prefix('v')?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| is_plain)
}

/// Returns the directory of a stack's git seed. `None` if it has none.
pub(crate) fn seed_layer(
    layout: &crate::state::layout::Layout,
    layers: &[Layer],
) -> Option<std::path::PathBuf> {
    let seed = layers.iter().find(|layer| layer.is_seed)?;
    Some(store::layer(layout, &seed.id))
}

/// Returns the layers of a stack for a plan, without the seed.
pub(crate) fn frozen(
    layout: &crate::state::layout::Layout,
    layers: &[Layer],
) -> Vec<CheckpointLayer> {
    let part = |layer: &Layer, has: bool, part| has.then(|| store::part(layout, &layer.id, part));
    layers
        .iter()
        .filter(|layer| !layer.is_seed)
        .map(|layer| CheckpointLayer {
            root: part(layer, layer.has_root, store::ROOT),
            workspace: part(layer, layer.has_workspace, store::WORKSPACE),
            first_id: layer.first_id,
        })
        .collect()
}

/// Returns the writable layer of one part, below the sandbox's directory.
pub(crate) fn upper(dir: &std::path::Path, part: &str) -> std::path::PathBuf {
    dir.join(LAYERS).join(format!("{part}-upper"))
}

/// Returns the writable layers of all parts.
pub(crate) fn uppers(dir: &std::path::Path) -> [std::path::PathBuf; 2] {
    store::PARTS.map(|part| upper(dir, part))
}

/// Copies a writable layer to `to`, which is created. Nothing may write to the layer meanwhile.
///
/// # Errors
/// The errors of reading and writing, and `too-large` if the tree is too deep.
pub(crate) fn copy_layer(
    from: &std::path::Path,
    to: &std::path::Path,
) -> Result<(), glovebox_proto::Fault> {
    tree::copy(from, to).map_err(|errno| change::cannot_copy(from, errno))
}

/// Merges layers, newest first, into a new one at `to`, which shares their files. Nothing may write
/// to them meanwhile.
///
/// # Errors
/// `NAMETOOLONG` if the trees are too deep; any error of reading or writing.
pub(crate) fn merge_layers(
    layers: &[std::path::PathBuf],
    to: &std::path::Path,
) -> Result<(), rustix::io::Errno> {
    tree::merge(layers, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbers_in_one_spelling() {
        assert_eq!(number("v0"), Some(0));
        assert_eq!(number("v17"), Some(17));
        for wrong in [
            "",
            "v",
            "17",
            "v01",
            "v-1",
            "v+1",
            "v1/../v2",
            "v99999999999999999999",
        ] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
