//! Committing: what was staged is renamed into place, all of it or nothing.

use super::journal::{COMMITTING, DONE, Journal, Staging};
use super::operation::OperationDirs;
use crate::base::{PulledContent, Signature, advance, advance_contents, note_theirs};
use crate::beneath::{Anchor, io};
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

/// Longer files are not kept as the base of later changes.
const MAX_NOTED_BYTES: u64 = 1 << 20;

/// Applies what lies in a staging directory, and removes the directory. Calls `on_applied` with the paths once all of
/// them are in place, before anything is removed: what kills the commit later leaves a journal, by which the next pull
/// tells of the same changes again.
///
/// # Errors
/// When an operation fails: then everything before it has been undone, and the destination is as it
/// was. When undoing fails too, the message says so, and the next pull to this destination tries again.
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
        // An earlier attempt was interrupted; the next pull recovers from it.
        return Err(gone());
    }
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
    if let Err(fault) = staging.mark_done() {
        undo(&place, &journal, journal.operations.len())?;
        staging.remove(anchor.as_fd(), Some(lock));
        return Err(fault);
    }
    on_applied(&journal.applied);
    finish(&anchor, &staging, &journal, lock);
    Ok(())
}

/// Undoes the first `count` operations, the last one first. Goes on after a failure, and reports the
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
    // Going there and back again is no change of the host, although the times say so.
    let restored = operations
        .iter()
        .filter_map(|operation| place.restored(operation));
    tell_base(journal, restored.collect());
    first
}

/// What remains to be done after a commit.
pub(super) fn finish(anchor: &Anchor, staging: &Staging, journal: &Journal, lock: File) {
    note(anchor, staging, journal);
    staging.remove(anchor.as_fd(), Some(lock));
}

/// Tells the base index what the pull made of the paths, so that it is not taken for the host's work.
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
    // Without these, the next pull reports conflicts where there are none, or leaves what it put beside.
    let _ = advance_contents(&index, &contents);
    let _ = note_theirs(&index, theirs.collect());
    tell_base(journal, entries);
}

/// What the destination has at a path, if that is little.
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
        // Without the note, the next pull reports conflicts where there are none: inconvenient, and
        // safe. The sandbox may be gone by now, and its directory with it.
        let _ = advance(&index, entries);
    }
}

/// The base index of the sandbox, if its directory is still there.
fn index_of(journal: &Journal) -> Option<PathBuf> {
    let index = PathBuf::from(OsString::from_vec(journal.base_index.clone()?));
    index.parent()?.is_dir().then_some(index)
}
