//! Bound on the height of stacks: neighbouring layers with equally many merges are merged into one.
//!
//! Eight layers of one level become one of the next, so a stack of N checkpoints has about 7 times
//! log8(N) layers, and a file is linked again log8(N) times. The merged layer is a separate copy:
//! checkpoints and forks that name the old layers keep them.

use super::stack::{self, Stack};
use super::{Layer, store, tree};
use crate::fault;
use crate::spec::name::random_hex;
use crate::state::layout::Layout;
use crate::state::trash;
use glovebox_proto::Fault;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Number of layers of one level that become one of the next.
const FAN: usize = 8;

/// Merged layer that no file names yet, with the layers that it replaces.
#[derive(Debug)]
pub(crate) struct MergedLayer {
    from: Vec<Layer>,
    into: Layer,
    /// Protects the layer from the collection of garbage until a file names it.
    _guard: store::LayersLock,
}

/// Returns the range of neighbours that should be merged, if any.
fn due(layers: &[Layer]) -> Option<Range<usize>> {
    let kind = |layer: &Layer| (layer.level, layer.first_id, layer.is_seed);
    let mut start = 0;
    while start < layers.len() {
        let length = layers[start..]
            .iter()
            .take_while(|layer| kind(layer) == kind(&layers[start]))
            .count();
        if length >= FAN {
            return Some(start..start + length);
        }
        start += length;
    }
    None
}

/// Merges such neighbours in the stack of the sandbox in `dir` into a separate layer. Changes
/// nothing else.
pub(crate) fn merge(layout: &Layout, dir: &Path) -> Result<Option<MergedLayer>, Fault> {
    let layers = stack::read(dir)?.layers;
    let Some(range) = due(&layers) else {
        return Ok(None);
    };
    let from = layers[range].to_vec();
    // Held until the stack names the merged layer, or a collection of garbage could remove it.
    let guard = store::share(layout)?;
    let into = Layer {
        id: store::new_id(),
        first_id: from[0].first_id,
        level: from[0].level + 1,
        has_root: from.iter().any(|layer| layer.has_root),
        has_workspace: from.iter().any(|layer| layer.has_workspace),
        is_seed: false,
    };
    let draft = layout.staging().join(random_hex());
    store::make_dir(&draft)?;
    let merged = merge_parts(layout, &from, &draft).and_then(|()| {
        let place = store::layer(layout, &into.id);
        fs::rename(&draft, &place).map_err(|error| fault::io("make", &place, error))
    });
    if let Err(fault) = merged {
        // A sweep removes files that stay.
        if let Ok(Some(place)) = trash::discard(layout, &draft) {
            let _ = trash::remove(layout, &place);
        }
        return Err(fault);
    }
    Ok(Some(MergedLayer {
        from,
        into,
        _guard: guard,
    }))
}

fn merge_parts(layout: &Layout, from: &[Layer], draft: &Path) -> Result<(), Fault> {
    for part in store::PARTS {
        let paths: Vec<PathBuf> = from
            .iter()
            .filter(|layer| {
                if part == store::ROOT {
                    layer.has_root
                } else {
                    layer.has_workspace
                }
            })
            .map(|layer| store::part(layout, &layer.id, part))
            .collect();
        if !paths.is_empty() {
            let to = draft.join(part);
            tree::merge(&paths, &to).map_err(|errno| fault::io("merge layers into", &to, errno))?;
        }
    }
    Ok(())
}

/// Replaces the merged layers in the stack, if they are still there. The caller must have the
/// exclusive right to change the stack.
pub(crate) fn install(dir: &Path, merged: MergedLayer) -> Result<(), Fault> {
    let stack = stack::read(dir)?;
    let width = merged.from.len();
    let found = stack
        .layers
        .windows(width)
        .position(|window| window == merged.from);
    if let Some(at) = found {
        let mut layers = stack.layers.clone();
        layers.splice(at..at + width, [merged.into]);
        stack::write(dir, &Stack { layers, ..stack })?;
    }
    Ok(())
}

/// Merges layers until no neighbours should be merged. Layers that cannot be merged stay as they
/// are.
pub(crate) fn flatten(layout: &Layout, dir: &Path) {
    while let Ok(Some(merged)) = merge(layout, dir) {
        if install(dir, merged).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(level: u32, first_id: Option<u32>) -> Layer {
        Layer {
            id: format!("{level}"),
            first_id,
            level,
            has_root: true,
            has_workspace: false,
            is_seed: false,
        }
    }

    #[test]
    fn eight_neighbours_of_a_kind_are_due() {
        let mut layers = vec![layer(0, None); 7];
        assert_eq!(due(&layers), None);
        layers.push(layer(0, Some(5)));
        assert_eq!(due(&layers), None);
        layers.extend(vec![layer(1, None); 9]);
        assert_eq!(due(&layers), Some(8..17));
    }

    /// The height of the stack stays logarithmic in the number of checkpoints.
    #[test]
    fn a_stack_grows_with_the_logarithm() {
        let mut layers: Vec<Layer> = Vec::new();
        let mut highest = 0;
        for _ in 0..4096 {
            layers.insert(0, layer(0, None));
            while let Some(range) = due(&layers) {
                let level = layers[range.start].level + 1;
                layers.splice(range, [layer(level, None)]);
            }
            highest = highest.max(layers.len());
        }
        assert!(highest <= 28, "{highest}");
    }
}
