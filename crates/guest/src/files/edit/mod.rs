//! Edits a file: reads it whole, replaces in memory, writes a temporary file beside it and renames
//! that over it.
//!
//! Readers see either the old content or the new. Mode and everything that no replacement names
//! stay. If another process writes to the file before the rename, nothing is changed and the edit
//! fails.

mod by_lines;
mod diff;
mod nearest;
mod replace;

use super::{FileSink, TopLayer, WriteSpec, read_whole, require_regular, shown};
use crate::fault;
use crate::workers::DeferredCloses;
use glovebox_proto::limits::MAX_EDIT_BYTES;
use glovebox_proto::{Code, EditReport, Fault, Replacement, ReplacementReport, Reply, WriteMode};
use rustix::fs::{Mode, OFlags, Stat};
use std::sync::Arc;

/// Replaces texts in the file at `path`.
///
/// # Errors
/// `TooLarge` above `MAX_EDIT_BYTES`; `ContentChanged` if the file changed while it was edited; the
/// faults of the replacements and of the file operations.
pub(crate) fn edit(
    path: &[u8],
    wanted: &[Replacement],
    top: Option<TopLayer>,
    later: &mut DeferredCloses,
) -> Result<Reply, Fault> {
    let fail = |errno| fault::file(errno, &format!("cannot edit {}", shown(path)));
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = super::own::open(path, flags, Mode::empty()).map_err(fail)?;
    let before = rustix::fs::fstat(&file).map_err(fail)?;
    require_regular(&before, path)?;
    let size = u64::try_from(before.st_size).unwrap_or(0);
    let too_large = || {
        Fault::failed(
            Code::TooLarge,
            format!(
                "{} has more than the {MAX_EDIT_BYTES} bytes that can be edited in place",
                shown(path)
            ),
        )
        .remedy("change it with a command, such as sed")
    };
    if size > MAX_EDIT_BYTES {
        return Err(too_large());
    }
    let old = read_whole(&file, size, MAX_EDIT_BYTES).map_err(fail)?;
    let old = old.ok_or_else(too_large)?;
    later.close(file);
    let in_file = |mut fault: Fault| {
        fault.message = format!("{}: {}", shown(path), fault.message);
        fault
    };
    let (new, made) = replace::all(&old, wanted).map_err(in_file)?;
    if new.len() as u64 > MAX_EDIT_BYTES {
        return Err(in_file(Fault::failed(
            Code::TooLarge,
            format!("it would grow to {} bytes", new.len()),
        )));
    }
    let mut sink = FileSink::open(WriteSpec {
        path: path.to_vec(),
        mode: WriteMode::Replace,
        permissions: 0o666,
        make_parents: false,
        top,
        programs: Arc::default(),
    })?;
    sink.write(&new)?;
    // The comparison stands directly before the rename: an earlier one would lose a write by
    // another process in between.
    let now = rustix::fs::stat(path).map_err(fail)?;
    if !is_same(&before, &now) {
        return Err(in_file(Fault::failed(
            Code::ContentChanged,
            "somebody else has just written to it; nothing was changed",
        ))
        .remedy("read it again")
        .retryable());
    }
    sink.commit(later)?;
    let (diff, is_diff_cut) = diff::unified(&old, &new);
    Ok(Reply::Edited(EditReport {
        made: made
            .into_iter()
            .map(|made| ReplacementReport {
                how: made.how,
                places: u32::try_from(made.places).unwrap_or(u32::MAX),
            })
            .collect(),
        diff: diff.into(),
        is_diff_cut,
        size: new.len() as u64,
        before: *blake3::hash(&old).as_bytes(),
        after: *blake3::hash(&new).as_bytes(),
    }))
}

fn is_same(before: &Stat, now: &Stat) -> bool {
    let facts = |stat: &Stat| {
        (
            (stat.st_dev, stat.st_ino, stat.st_size),
            (stat.st_mtime, stat.st_mtime_nsec),
            (stat.st_ctime, stat.st_ctime_nsec),
        )
    };
    facts(before) == facts(now)
}
