//! Record of the copies of host files that pushes wrote into the layers of an overlay, so that
//! programs inside are notified of a change. A copy that the sandbox has not changed since is not
//! part of its change set.

use crate::beneath::{Anchor, io};
use crate::cover::{LayerCover, cover};
use crate::{Change, ChangeKind, Digest, Node, RelPath};
use glovebox_proto::Fault;
use rustix::fs::AtFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// State of a file as a push wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PushedVersion {
    /// Digest of its content.
    pub(crate) digest: Digest,
    /// True if its owner may execute the copy.
    pub(crate) is_executable: bool,
}

/// Paths that pushes wrote in a sandbox; `None` for a path that they removed.
#[derive(Debug, Clone, Default)]
pub(crate) struct PushedFiles(BTreeMap<RelPath, Option<PushedVersion>>);

impl PushedFiles {
    /// Reads the record beside a base index. If it cannot be read, copies count as changes.
    pub(crate) fn read(index: &Path) -> Self {
        let text = std::fs::read(note_file(index)).unwrap_or_default();
        let entries: Vec<(RelPath, Option<PushedVersion>)> =
            serde_json::from_slice(&text).unwrap_or_default();
        Self(entries.into_iter().collect())
    }

    /// Records the paths of a push.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(crate) fn add(
        index: &Path,
        brought: BTreeMap<RelPath, Option<PushedVersion>>,
    ) -> Result<(), Fault> {
        if brought.is_empty() {
            return Ok(());
        }
        let mut all = Self::read(index);
        all.0.extend(brought);
        all.write(index)
    }

    /// Removes paths from the record, because their copies are gone or the sandbox's version was
    /// applied to the host.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(crate) fn forget<'a>(
        index: &Path,
        paths: impl IntoIterator<Item = &'a RelPath>,
    ) -> Result<(), Fault> {
        let mut all = Self::read(index);
        let before = all.0.len();
        for path in paths {
            all.0.remove(path);
        }
        if all.0.len() == before {
            return Ok(());
        }
        all.write(index)
    }

    fn write(&self, index: &Path) -> Result<(), Fault> {
        let file = note_file(index);
        let entries: Vec<_> = self.0.iter().collect();
        let mut new = file.clone().into_os_string();
        new.push(".new");
        serde_json::to_vec(&entries)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&new, text))
            .and_then(|()| std::fs::rename(&new, &file))
            .map_err(|error| io("write", &file, error))
    }

    /// Returns true if the record has no paths.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &RelPath> {
        self.0.keys()
    }

    /// Returns true if a change is only a copy or a removal by a push.
    pub(crate) fn has(&self, change: &Change) -> bool {
        let Some(brought) = self.0.get(&change.path) else {
            return false;
        };
        match (&change.kind, brought) {
            (ChangeKind::Deleted { .. }, None) => true,
            (
                ChangeKind::Added { to } | ChangeKind::Modified { to, .. },
                Some(PushedVersion {
                    digest,
                    is_executable,
                }),
            ) => {
                matches!(to, Node::File { digest: Some(now), is_executable: is_now, .. }
                    if now == digest && is_now == is_executable)
            }
            _ => false,
        }
    }

    /// Returns true if the layers have an object of the sandbox's own at a path, or one above it
    /// that covers the path. `layers` begins with the newest.
    // TRUST: the sandbox wrote the layers. An object that cannot be read counts as its own.
    pub(crate) fn is_own(&self, layers: &[Anchor], path: &RelPath) -> bool {
        let found = layers
            .iter()
            .find_map(|layer| Some((layer, cover(layer, path.as_bytes())?)));
        let Some((layer, found)) = found else {
            return false;
        };
        match (found, self.0.get(path)) {
            (LayerCover::Whiteout, Some(None)) => false,
            (LayerCover::File, Some(Some(version))) => !version.is_in(layer, path),
            _ => true,
        }
    }
}

impl PushedVersion {
    /// Returns true if a layer has this version at a path.
    fn is_in(&self, layer: &Anchor, path: &RelPath) -> bool {
        let Ok(stat) = layer.stat(path.as_bytes()) else {
            return false;
        };
        (stat.st_mode & 0o100 != 0) == self.is_executable
            && layer
                .digest(path.as_bytes(), stat.st_size as u64)
                .is_ok_and(|digest| digest == Some(self.digest))
    }
}

/// Removes unchanged copies from the writable layer `upper` of a stopped sandbox, so that the host's
/// files are visible again. `frozen` are the layers below, `index` is the base index of the sandbox.
// TRUST: the sandbox wrote the layers. Links are not followed, and an object that differs from the
// record stays.
pub(crate) fn drop_copies(index: &Path, upper: &Path, frozen: &[PathBuf], project: &Path) {
    let pushed = PushedFiles::read(index);
    if pushed.is_empty() {
        return;
    }
    let (Ok(upper), Ok(project)) = (Anchor::open(upper), Anchor::open(project)) else {
        return;
    };
    let frozen = frozen.iter().map(|layer| Anchor::open(layer));
    let Ok(frozen) = frozen.collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let mut dropped = Vec::new();
    for path in pushed.paths() {
        let is_below = frozen
            .iter()
            .any(|layer| cover(layer, path.as_bytes()).is_some());
        let is_own = pushed.is_own(std::slice::from_ref(&upper), path);
        if !is_own && !is_below && unlink(&upper, path, AtFlags::empty()) {
            dropped.push(path);
            remove_directories(&upper, path, &project);
        }
    }
    // A path that stays in the record is harmless: the layers have no such copy.
    let _ = PushedFiles::forget(index, dropped);
}

/// Removes the directories above a copy that were created for it.
fn remove_directories(upper: &Anchor, path: &RelPath, project: &Anchor) {
    let mut inner = path.clone();
    while let Some(dir) = inner.parent() {
        let mode = |anchor: &Anchor| anchor.stat(dir.as_bytes()).ok().map(|stat| stat.st_mode);
        let is_as_shown = mode(project).is_some_and(|shown| mode(upper) == Some(shown));
        // An opaque directory hides names that it does not have.
        let is_opaque = cover(upper, inner.as_bytes()).is_some();
        if is_opaque || !is_as_shown || !unlink(upper, &dir, AtFlags::REMOVEDIR) {
            return;
        }
        inner = dir;
    }
}

/// Removes a name in a layer. Returns false if that failed.
fn unlink(layer: &Anchor, path: &RelPath, flags: AtFlags) -> bool {
    let parent = path.parent();
    let parent = parent.as_ref().map_or(&b""[..], RelPath::as_bytes);
    layer
        .dir(parent)
        .is_ok_and(|dir| rustix::fs::unlinkat(&dir, path.name(), flags).is_ok())
}

fn note_file(index: &Path) -> PathBuf {
    let mut name = index.as_os_str().to_owned();
    name.push(".pushed");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_copy_is_a_sandboxes_own_once_it_is_written() {
        let temp = tempfile::tempdir().unwrap();
        let (index, layer) = (temp.path().join("base"), temp.path().join("layer"));
        fs::create_dir_all(layer.join("d")).unwrap();
        let path = |text: &str| RelPath::new(text).unwrap();
        let version = PushedVersion {
            digest: *blake3::hash(b"theirs").as_bytes(),
            is_executable: false,
        };
        let brought = [(path("d/a"), Some(version)), (path("b"), None)];
        PushedFiles::add(&index, brought.into()).unwrap();
        fs::write(layer.join("d/a"), "theirs").unwrap();
        fs::write(layer.join("c"), "own").unwrap();
        let layers = [Anchor::open(&layer).unwrap()];
        let is_own = |text| PushedFiles::read(&index).is_own(&layers, &path(text));
        assert!(!is_own("d/a"));
        assert!(!is_own("d/x"), "nothing is there");
        assert!(!is_own("b"), "nothing is there");
        assert!(is_own("c"));
        assert!(is_own("c/below"));
        fs::write(layer.join("d/a"), "thei_s").unwrap();
        assert!(is_own("d/a"));
        fs::write(layer.join("d/a"), "theirs").unwrap();
        PushedFiles::forget(&index, [&path("d/a")]).unwrap();
        assert!(is_own("d/a"));
    }
}
