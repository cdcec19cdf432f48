//! Commit: renames the staged contents into place, all of them or none.

use super::journal::{COMMITTING, DONE, Journal, Staging};
use super::operation::OperationDirs;
use crate::base::{PulledContent, Signature, advance, advance_contents, note_theirs};
use crate::beneath::{Anchor, io};
use crate::pushed::PushedFiles;
use crate::{RelPath, Stage, SyncError};
use glovebox_proto::{Code, Fault};
use rustix::fd::AsFd as _;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Maximum size of a file that is kept as the base of later changes, in bytes.
const MAX_NOTED_BYTES: u64 = 1 << 20;

/// Applies the contents of a staging directory, and removes the directory. Calls `on_applied` with
/// the paths once all of them are in place, before anything is removed: a commit that is killed
/// later leaves a journal, by which the next pull reports the same changes again.
///
/// # Errors
/// When an operation fails. All earlier operations have been undone then, and the destination is
/// unchanged. If undoing fails as well, the message says so, and the next pull to this destination
/// tries again.
pub fn commit(staging: &Path, on_applied: &mut dyn FnMut(&[RelPath])) -> Result<(), SyncError> {
    run(staging, on_applied).map_err(|fault| SyncError::pull(Stage::Apply, fault))
}

fn run(path: &Path, on_applied: &mut dyn FnMut(&[RelPath])) -> Result<(), Fault> {
    let gone = || {
        Fault::failed(
            Code::NotFound,
            format!("there is nothing to apply in {}", path.display()),
        )
        .remedy("pull again")
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(gone());
    };
    let anchor = Anchor::open_canonical(parent)?;
    let staging = Staging::open(anchor.as_fd(), parent, name.as_bytes()).ok_or_else(gone)?;
    // The journal stays locked until the commit has ended, so that no recovery acts on it
    // meanwhile.
    let (journal, lock) = match staging.take_journal() {
        Ok(found) => found.ok_or_else(gone)?,
        Err(Errno::AGAIN) => {
            return Err(Fault::failed(
                Code::Busy,
                format!("somebody else applies {} at this moment", path.display()),
            ));
        }
        Err(errno) => return Err(io("read", path, errno)),
    };
    if staging.has(COMMITTING) || staging.has(DONE) {
        // An earlier commit of this directory was interrupted; the next pull recovers it.
        return Err(gone());
    }
    // Without the mark, a recovery would assume that no operation was performed, and would remove
    // the staging directory together with the host's versions in it.
    if let Err(fault) = staging.mark_committing() {
        staging.remove(anchor.as_fd(), Some(lock));
        return Err(fault);
    }
    let place = OperationDirs::new(&anchor, &staging);
    for (number, operation) in journal.operations.iter().enumerate() {
        if let Err(fault) = place.perform(operation) {
            undo(&place, &journal, number)?;
            staging.remove(anchor.as_fd(), Some(lock));
            return Err(fault);
        }
    }
    // With this mark, a recovery finishes the commit instead of undoing it.
    if let Err(fault) = staging.mark_done() {
        undo(&place, &journal, journal.operations.len())?;
        staging.remove(anchor.as_fd(), Some(lock));
        return Err(fault);
    }
    on_applied(&journal.applied);
    finish(&anchor, &staging, &journal, lock);
    Ok(())
}

/// Undoes the first `count` operations in reverse order. Continues after a failure, and returns the
/// first one.
pub(super) fn undo(
    place: &OperationDirs<'_>,
    journal: &Journal,
    count: usize,
) -> Result<(), Fault> {
    let mut first = Ok(());
    let operations = journal.operations.get(..count).unwrap_or_default();
    for operation in operations.iter().rev() {
        let undone = place.undo(operation);
        if first.is_ok() {
            first = undone;
        }
    }
    // The renames changed the times of the files, but the host did not change them. Recording the
    // new signatures keeps the next pull from reporting conflicts.
    let restored = operations
        .iter()
        .filter_map(|operation| place.restored(operation));
    tell_base(journal, restored.collect());
    first
}

/// Records the effects of a commit in the base index, and removes the staging directory.
pub(super) fn finish(anchor: &Anchor, staging: &Staging, journal: &Journal, lock: File) {
    // The staging directory has the contents of new bases, so they are recorded before it is
    // removed.
    note(anchor, staging, journal);
    staging.remove(anchor.as_fd(), Some(lock));
}

/// Records the pulled paths in the base index, so that they do not count as changes of the host.
fn note(anchor: &Anchor, staging: &Staging, journal: &Journal) {
    let Some(index) = index_of(journal) else {
        return;
    };
    let look = |path: &RelPath| match anchor.stat_within(path.as_bytes()) {
        Ok(stat) => Signature::from(&stat),
        Err(_) => Signature::Absent,
    };
    let mut entries: Vec<(RelPath, Signature)> = Vec::new();
    for path in &journal.applied {
        entries.push((path.clone(), look(path)));
    }
    for (path, seen) in &journal.settled {
        if look(path).is_same(seen) {
            entries.push((path.clone(), *seen));
        }
    }
    let mut contents: BTreeMap<RelPath, PulledContent> = BTreeMap::new();
    for path in &journal.applied {
        let content = content(anchor, path);
        contents.insert(
            path.clone(),
            PulledContent {
                digest: None,
                content,
            },
        );
    }
    for (path, digest) in &journal.digests {
        contents.entry(path.clone()).or_default().digest = Some(*digest);
    }
    for (path, slot) in &journal.bases {
        let content = staging.content(*slot);
        let digest = content
            .as_ref()
            .map(|content| *blake3::hash(content).as_bytes());
        contents.insert(path.clone(), PulledContent { digest, content });
    }
    let theirs = journal.theirs.iter().filter_map(|path| {
        let stat = anchor.stat_within(path.as_bytes()).ok()?;
        Some((path.clone(), Signature::from(&stat)))
    });
    // From now on the sandbox's versions count as its own work, also where a push wrote them before.
    let settled = journal.settled.iter().map(|(path, _)| path);
    let _ = PushedFiles::forget(&index, journal.applied.iter().chain(settled));
    // If this fails, the next pull reports false conflicts, or keeps versions that it put beside
    // paths.
    let _ = advance_contents(&index, &contents);
    let _ = note_theirs(&index, theirs.collect());
    tell_base(journal, entries);
}

/// Returns the content of a path of the destination; `None` if it is not a file or is too large to
/// keep.
fn content(anchor: &Anchor, path: &RelPath) -> Option<Vec<u8>> {
    let (file, stat) = anchor.file(path.as_bytes()).ok()?;
    if stat.st_size as u64 > MAX_NOTED_BYTES {
        return None;
    }
    let mut content = Vec::new();
    file.take(MAX_NOTED_BYTES).read_to_end(&mut content).ok()?;
    Some(content)
}

fn tell_base(journal: &Journal, entries: Vec<(RelPath, Signature)>) {
    if let Some(index) = index_of(journal) {
        // If this fails, the next pull reports false conflicts, which is safe. The sandbox and its
        // directory may no longer exist.
        let _ = advance(&index, entries);
    }
}

/// Returns the path of the sandbox's base index, if its directory still exists.
fn index_of(journal: &Journal) -> Option<PathBuf> {
    let index = PathBuf::from(OsString::from_vec(journal.base_index.clone()?));
    index.parent()?.is_dir().then_some(index)
}
