//! Committing: what was staged is renamed into place, all of it or nothing.

use super::journal::{COMMITTING, DONE, Journal, Staging};
use super::operation::Place;
use crate::base::{Signature, advance};
use crate::beneath::{Anchor, io};
use crate::{RelPath, Stage, SyncError};
use glovebox_proto::{Code, Fault};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Applies what lies in a staging directory, and removes the directory.
///
/// # Errors
/// When an operation fails: then everything before it has been undone, and the destination is as it
/// was. When undoing fails too, the message says so, and the next pull to this destination tries again.
pub fn commit(staging: &Path) -> Result<(), SyncError> {
    run(staging).map_err(|fault| SyncError::pull(Stage::Apply, fault))
}

fn run(path: &Path) -> Result<(), Fault> {
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
    let anchor = Anchor::open(parent)?;
    let staging = Staging::open(rustix::fd::AsFd::as_fd(&anchor), parent, name.as_bytes())
        .ok_or_else(gone)?;
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
        staging.remove(rustix::fd::AsFd::as_fd(&anchor));
        return Err(fault);
    }
    let place = Place {
        anchor: &anchor,
        staging: &staging,
    };
    for (number, operation) in journal.operations.iter().enumerate() {
        if let Err(fault) = place.perform(operation) {
            undo(&place, &journal, number)?;
            staging.remove(rustix::fd::AsFd::as_fd(&anchor));
            return Err(fault);
        }
    }
    if let Err(fault) = staging.mark_done() {
        undo(&place, &journal, journal.operations.len())?;
        staging.remove(rustix::fd::AsFd::as_fd(&anchor));
        return Err(fault);
    }
    finish(&anchor, &staging, &journal);
    drop(lock);
    Ok(())
}

/// Undoes the first `count` operations, the last one first. Goes on after a failure, and reports the
/// first one.
pub(super) fn undo(place: &Place<'_>, journal: &Journal, count: usize) -> Result<(), Fault> {
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
pub(super) fn finish(anchor: &Anchor, staging: &Staging, journal: &Journal) {
    note(anchor, journal);
    staging.remove(rustix::fd::AsFd::as_fd(anchor));
}

/// Tells the base index what the pull made of the paths, so that it is not taken for the host's work.
fn note(anchor: &Anchor, journal: &Journal) {
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
    tell_base(journal, entries);
}

fn tell_base(journal: &Journal, entries: Vec<(RelPath, Signature)>) {
    if let Some(index) = &journal.base_index {
        let index = PathBuf::from(OsString::from_vec(index.clone()));
        // Without the note, the next pull reports conflicts where there are none: inconvenient, and
        // safe. The sandbox may be gone by now, and its directory with it.
        let _ = advance(&index, entries);
    }
}
