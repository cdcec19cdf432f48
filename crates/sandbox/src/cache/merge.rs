//! Merging of the layers of kept caches.

use super::sources::ChangedSource;
use super::store::{self, CacheLayer, Index};
use crate::checkpoint::merge_layers;
use crate::fault;
use crate::spec::name::random_hex;
use crate::state::layout::Layout;
use glovebox_jail::usage::{TreeUsage, measure};
use glovebox_proto::Fault;
use std::path::{Path, PathBuf};

/// Merges the newest layers that belong to the same ids into one that no index names yet. Returns
/// an index that names it. `None` if there is nothing to merge.
pub(super) fn merge(layout: &Layout, dir: &Path, index: &Index) -> Result<Option<Index>, Fault> {
    let Some(newest) = index.layers.first() else {
        return Ok(None);
    };
    let count = index
        .layers
        .iter()
        .take_while(|layer| layer.first_id == newest.first_id)
        .count();
    let (from, older) = index.layers.split_at(count);
    if count < 2 {
        return Ok(None);
    }
    let mut names: Vec<String> = from
        .iter()
        .flat_map(|layer| layer.names.iter().cloned())
        .collect();
    names.sort();
    names.dedup();
    let id = random_hex();
    let place = dir.join(&id);
    store::make_dir(&place)?;
    let merged = names.iter().try_for_each(|name| {
        let paths: Vec<PathBuf> = from
            .iter()
            .filter(|layer| layer.names.contains(name))
            .map(|layer| dir.join(&layer.id).join(name))
            .collect();
        let to = place.join(name);
        merge_layers(&paths, &to)
            .map_err(|errno| fault::io("merge package caches into", &to, errno))
    });
    if let Err(fault) = merged {
        store::discard(layout, &place);
        return Err(fault);
    }
    let bytes = match measure(&place, u64::MAX) {
        TreeUsage::Whole { bytes, .. } => bytes,
        _ => from.iter().map(|layer| layer.bytes).sum(),
    };
    let mut sources: Vec<ChangedSource> = Vec::new();
    for source in from.iter().flat_map(|layer| &layer.sources) {
        if !sources.iter().any(|newer| newer.path == source.path) {
            sources.push(source.clone());
        }
    }
    let mut layers = vec![CacheLayer {
        id,
        first_id: newest.first_id,
        bytes,
        names,
        kept_unix_ms: newest.kept_unix_ms,
        sources,
    }];
    layers.extend(older.iter().cloned());
    Ok(Some(Index {
        layers,
        ..index.clone()
    }))
}
