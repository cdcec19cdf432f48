//! Checkpoints: file-system states of a sandbox that stay, to go back to or to start another from.
//!
//! A sandbox's files are an ordered list of layers: the writable one, and below it the *stack*, layers
//! that are never written again. A checkpoint is a stack with a name. Taking one renames the
//! writable layer into the stack, which costs the same however much it holds; going back throws the
//! writable layer away and takes another stack; a fork is a new sandbox on the same stack.
//!
//! ```text
//! STATE/layers/ID/{root,workspace}     frozen layers, shared by all sandboxes (`store`)
//! STATE/layers/ID/{workspace,held}     the git seed, the lowest of a stack (`seed`)
//! STATE/sandboxes/NAME/stack.json      the stack the sandbox stands on (`stack`)
//! STATE/sandboxes/NAME/checkpoints/vN.json
//! STATE/sandboxes/NAME/pending.json    a change that has begun (`change`)
//! ```
//!
//! Only the holder of a sandbox's lock changes its files. Nobody owns a frozen layer: it stays for as
//! long as any of these files names it. When a stack grows high, neighbours in it are merged into a
//! copy aside, made of hard links (`flatten`).

pub(crate) mod change;
pub(crate) mod flatten;
pub(crate) mod seed;
pub(crate) mod stack;
pub(crate) mod store;
pub(crate) mod tree;
pub(crate) mod workspace;

use crate::state::layout::LAYERS;
use glovebox_jail::plan::CheckpointLayer;
use serde::{Deserialize, Serialize};

/// One frozen layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layer {
    /// Its directory below `STATE/layers`.
    pub(crate) id: String,
    /// First host id of the range its files belong to, when they were written under root.
    pub(crate) first_id: Option<u32>,
    /// How often what is in it has been merged.
    pub(crate) level: u32,
    pub(crate) has_root: bool,
    pub(crate) has_workspace: bool,
    /// Whether it is the git seed: the lowest of a stack, made by Glovebox and not by the sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_seed: bool,
}

impl Layer {
    /// Whether it has this part.
    pub(crate) fn has(&self, part: &str) -> bool {
        if part == store::ROOT {
            self.has_root
        } else {
            self.has_workspace
        }
    }
}

/// One checkpoint of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    pub(crate) version: u32,
    /// Its name within the sandbox: `v1`, `v2` and so on; `v0` is what a fork began with.
    pub id: String,
    /// When it was taken, in milliseconds since the epoch.
    pub created_unix_ms: u64,
    /// What the one who took it said about it.
    pub comment: Option<String>,
    /// The checkpoint the sandbox stood on at that time.
    pub parent: Option<String>,
    /// Newest first.
    pub(crate) layers: Vec<Layer>,
}

impl Checkpoint {
    /// The number in its name.
    pub(crate) fn number(&self) -> Option<u64> {
        number(&self.id)
    }
}

/// The number in the name of a checkpoint, if it is one.
pub(crate) fn number(id: &str) -> Option<u64> {
    let digits = id.strip_prefix('v')?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| is_plain)
}

/// Directory of the git seed of a stack, if it has one.
pub(crate) fn seed_layer(
    layout: &crate::state::layout::Layout,
    layers: &[Layer],
) -> Option<std::path::PathBuf> {
    let seed = layers.iter().find(|layer| layer.is_seed)?;
    Some(store::layer(layout, &seed.id))
}

/// What a plan needs to know about a stack, less its seed.
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

/// The writable layer of one part, below the sandbox's directory.
pub(crate) fn upper(dir: &std::path::Path, part: &str) -> std::path::PathBuf {
    dir.join(LAYERS).join(format!("{part}-upper"))
}

/// The writable layers of all parts.
pub(crate) fn uppers(dir: &std::path::Path) -> [std::path::PathBuf; 2] {
    store::PARTS.map(|part| upper(dir, part))
}

/// Copies a writable layer, which nothing writes to meanwhile, to `to`, which is made.
///
/// # Errors
/// What could not be read or written, and `too-large` for a tree that is too deep.
pub(crate) fn copy_layer(
    from: &std::path::Path,
    to: &std::path::Path,
) -> Result<(), glovebox_proto::Fault> {
    tree::copy(from, to).map_err(|errno| change::cannot_copy(from, errno))
}

/// Merges layers, newest first, into a new one at `to`, which shares their files. Nothing writes to them meanwhile.
///
/// # Errors
/// `NAMETOOLONG` when they are too deep; any failure to read or write.
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
