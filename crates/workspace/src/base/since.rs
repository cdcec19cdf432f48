//! Changes of the host in its project since the base of a sandbox.

use super::{Base, BaseFile, Signature, decode, pulled_file, record};
use crate::beneath::io;
use crate::{HostChange, RelPath};
use glovebox_proto::Fault;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;

/// Path that the host changed.
#[derive(Debug, Clone)]
pub(crate) struct ChangedPath {
    /// Path in the project.
    pub(crate) path: RelPath,
    /// Attributes in the base. `None` if the base does not have the path.
    pub(crate) before: Option<Signature>,
    /// Current attributes.
    pub(crate) now: Signature,
}

/// Walks a project and returns the paths that differ from the base, sorted. `scratch` is a file that
/// is removed afterwards.
///
/// # Errors
/// As [`record`].
pub(crate) fn changed_since(
    project: &Path,
    base: &BaseFile,
    scratch: &Path,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<ChangedPath>, Fault> {
    let recorded = record(project, scratch, 0, is_stopped);
    let now = recorded.and_then(|_| read_all(scratch).map_err(|error| io("read", scratch, error)));
    let _ = std::fs::remove_file(scratch);
    let now = now?;
    // An index that cannot be read to its end counts as missing.
    let index = read_all(&base.index).ok();
    let known = Base {
        pushed_unix_ns: i64::try_from(base.pushed_unix_ns).unwrap_or(i64::MAX),
        has_index: index.is_some(),
        index: index.unwrap_or_default(),
        pulled: read_all(&pulled_file(&base.index)).unwrap_or_default(),
    };
    let mut changed = BTreeMap::new();
    let gone = known.pulled.keys().chain(known.index.keys());
    let gone = gone.filter(|path| !now.contains_key(*path));
    let all = gone.map(|path| (path, Signature::Absent));
    let all = all.chain(now.iter().map(|(path, signature)| (path, *signature)));
    for (path, now) in all {
        if known.since(path, &now) != HostChange::Same {
            let before = known.pulled.get(path).or_else(|| known.index.get(path));
            let before = before.copied();
            changed.insert(path.clone(), (before, now));
        }
    }
    Ok(changed
        .into_iter()
        .map(|(path, (before, now))| ChangedPath { path, before, now })
        .collect())
}

fn read_all(file: &Path) -> std::io::Result<HashMap<RelPath, Signature>> {
    let mut all = HashMap::new();
    decode(File::open(file)?, |path, signature| {
        all.insert(path.clone(), signature);
        true
    })?;
    Ok(all)
}
