//! The fault of a change set with too many paths.

use crate::{Quota, RelPath};
use glovebox_proto::{Code, Fault, Setting};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Maximum number of directories that the message names.
const MAX_NAMES: usize = 3;

/// Returns the fault for too many changes. It names the topmost directories with the most of them.
pub(crate) fn too_many_changes<'a>(
    quota: &Quota,
    changed: impl Iterator<Item = &'a RelPath>,
) -> Fault {
    let mut counts: HashMap<&[u8], usize> = HashMap::new();
    for path in changed {
        let top = path.components().next().unwrap_or_default();
        *counts.entry(top).or_default() += 1;
    }
    let mut counts: Vec<(&[u8], usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(name, count)| (Reverse(*count), *name));
    let names = counts.iter().take(MAX_NAMES);
    let names = names.map(|(name, count)| format!("`{}` ({count})", name.escape_ascii()));
    let largest = names.collect::<Vec<_>>().join(", ");
    Fault::failed(
        Code::TooLarge,
        format!(
            "more than {} paths changed, most of them in {largest}",
            quota.max_changes
        ),
    )
    .remedy([
        "leave directories of generated files out with ".into(),
        Setting::Exclude.into(),
        ", or pull one directory at a time".into(),
    ])
}
