//! Checkpoints that a service keeps of a sandbox's machine, as this machine remembers them.
//!
//! The service has the files. Here are the checkpoint's entry in the list, and copies of the records
//! of what the sandbox knew of its project at that time: a restore brings older files back, and
//! compared with newer records these would look like changes of the sandbox that take back what the
//! user has pushed since.
//!
//! ```text
//! STATE/sandboxes/NAME/checkpoints/vN.json       entry of the list (`stack`)
//! STATE/sandboxes/NAME/checkpoints/vN.records/   records of that time
//! STATE/sandboxes/NAME/restore.json              a restore that has begun
//! ```

use super::change::check_comment;
use super::workspace::{COPY_MANIFEST, COPY_NOTE, RECORDS};
use super::{Checkpoint, number, stack, store};
use crate::fault;
use crate::state::layout::CHECKPOINTS;
use crate::state::sandbox_dir::{read_json, write_json};
use glovebox_proto::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A restore that has begun. The next start of the guest finishes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PendingRestore {
    version: u32,
    id: String,
}

/// Copies of the records, taken before the service makes the checkpoint. Dropping them before
/// [`Self::finish`] removes them.
#[derive(Debug)]
pub(crate) struct NewCheckpoint<'a> {
    dir: &'a Path,
    comment: Option<&'a str>,
    records: PathBuf,
}

impl<'a> NewCheckpoint<'a> {
    /// Copies the records of the sandbox in `dir`.
    ///
    /// # Errors
    /// `too-large` for a long comment or too many checkpoints; the errors of copying.
    pub(crate) fn begin(dir: &'a Path, comment: Option<&'a str>) -> Result<Self, Fault> {
        check_comment(comment)?;
        // Each checkpoint has two entries.
        if stack::count(dir) / 2 >= stack::MAX_CHECKPOINTS {
            return Err(Fault::failed(
                Code::TooLarge,
                format!("there are {} checkpoints already", stack::MAX_CHECKPOINTS),
            ));
        }
        let checkpoints = dir.join(CHECKPOINTS);
        store::make_dir(&checkpoints)?;
        let records = checkpoints.join("new.records");
        remove_dir(&records)?;
        store::make_dir(&records)?;
        let new = Self {
            dir,
            comment,
            records,
        };
        for name in record_names() {
            copy(&dir.join(name), &new.records.join(name))?;
        }
        Ok(new)
    }

    /// Adds the checkpoint that the service has made to the list.
    ///
    /// # Errors
    /// `protocol` if `id` is no name of a checkpoint; the errors of writing.
    pub(crate) fn finish(self, id: &str) -> Result<Checkpoint, Fault> {
        if number(id).is_none() {
            return Err(Fault::failed(
                Code::Protocol,
                format!(
                    "the service calls a checkpoint `{}`, which is no name of one",
                    id.escape_debug()
                ),
            ));
        }
        let mut stack = stack::read(self.dir)?;
        let records = records(self.dir, id);
        remove_dir(&records)?;
        fs::rename(&self.records, &records)
            .map_err(|error| fault::io("rename", &self.records, error))?;
        let created = SystemTime::now().duration_since(UNIX_EPOCH);
        let checkpoint = Checkpoint {
            version: stack::VERSION,
            id: id.to_owned(),
            created_unix_ms: created.map_or(0, |time| time.as_millis() as u64),
            comment: self.comment.map(str::to_owned),
            parent: stack.parent.replace(id.to_owned()),
            layers: Vec::new(),
        };
        // After the records, without which it cannot be restored.
        stack::write_checkpoint(self.dir, &checkpoint)?;
        stack::write(self.dir, &stack)?;
        Ok(checkpoint)
    }
}

impl Drop for NewCheckpoint<'_> {
    fn drop(&mut self) {
        // Gone after `finish`. Otherwise the next checkpoint removes them.
        let _ = fs::remove_dir_all(&self.records);
    }
}

/// Records that a restore begins. Until it is finished or given up, each start of the guest repeats
/// it, because nobody knows which files the machine has.
///
/// # Errors
/// `not-found` if there is no such checkpoint; the errors of writing.
pub(crate) fn begin_restore(dir: &Path, id: &str) -> Result<(), Fault> {
    stack::checkpoint(dir, id)?;
    let pending = PendingRestore {
        version: stack::VERSION,
        id: id.to_owned(),
    };
    write_json(&pending_path(dir), &pending)
}

/// Returns the checkpoint of a restore that has begun. `None` if there is none.
pub(crate) fn pending_restore(dir: &Path) -> Result<Option<String>, Fault> {
    match read_json::<PendingRestore>(&pending_path(dir)) {
        Ok(pending) => Ok(Some(pending.id)),
        Err(fault) if fault.code == Code::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Brings the records of a checkpoint back, whose files the machine has again.
pub(crate) fn finish_restore(dir: &Path, id: &str) -> Result<(), Fault> {
    let kept = records(dir, id);
    for name in record_names() {
        if !copy(&kept.join(name), &dir.join(name))? {
            remove_file(&dir.join(name))?;
        }
    }
    let mut stack = stack::read(dir)?;
    stack.parent = Some(id.to_owned());
    stack::write(dir, &stack)?;
    give_up_restore(dir)
}

/// Forgets a restore that the service has refused.
pub(crate) fn give_up_restore(dir: &Path) -> Result<(), Fault> {
    remove_file(&pending_path(dir))
}

fn pending_path(dir: &Path) -> PathBuf {
    dir.join("restore.json")
}

fn records(dir: &Path, id: &str) -> PathBuf {
    dir.join(CHECKPOINTS).join(format!("{id}.records"))
}

fn record_names() -> impl Iterator<Item = &'static str> {
    [COPY_MANIFEST, COPY_NOTE].into_iter().chain(RECORDS)
}

/// Copies a file, by way of a new one, so that a reader sees the old content or the new. Returns
/// false if there is none.
fn copy(from: &Path, to: &Path) -> Result<bool, Fault> {
    let new = to.with_added_extension("new");
    match fs::copy(from, &new) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(fault::io("copy", from, error)),
        Ok(_) => {}
    }
    // The order of the records' times says what was known when.
    fs::metadata(from)
        .and_then(|meta| {
            let file = fs::File::options().write(true).open(&new)?;
            file.set_modified(meta.modified()?)
        })
        .and_then(|()| fs::rename(&new, to))
        .map_err(|error| fault::io("write", to, error))?;
    Ok(true)
}

fn remove_file(path: &Path) -> Result<(), Fault> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(fault::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

fn remove_dir(path: &Path) -> Result<(), Fault> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(fault::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::change::MAX_COMMENT_BYTES;
    use super::*;

    fn write(dir: &Path, name: &str, text: &str) {
        fs::write(dir.join(name), text).unwrap();
    }

    #[test]
    fn restore_brings_back_the_records_of_the_checkpoint_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, COPY_MANIFEST, "first");
        let new = NewCheckpoint::begin(dir, Some("before")).unwrap();
        // What is pushed while the service works belongs to the time after.
        write(dir, COPY_MANIFEST, "second");
        write(dir, COPY_NOTE, "second");
        let made = new.finish("v7").unwrap();
        assert_eq!((made.id.as_str(), made.parent), ("v7", None));
        assert!(begin_restore(dir, "v8").is_err());
        assert_eq!(pending_restore(dir), Ok(None));
        begin_restore(dir, "v7").unwrap();
        assert_eq!(pending_restore(dir), Ok(Some("v7".to_owned())));
        finish_restore(dir, "v7").unwrap();
        assert_eq!(pending_restore(dir), Ok(None));
        assert_eq!(fs::read(dir.join(COPY_MANIFEST)).unwrap(), b"first");
        assert!(!dir.join(COPY_NOTE).exists());
        let next = NewCheckpoint::begin(dir, None).unwrap();
        assert_eq!(next.finish("v8").unwrap().parent.as_deref(), Some("v7"));
    }

    #[test]
    fn checkpoint_that_was_not_made_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, COPY_MANIFEST, "first");
        drop(NewCheckpoint::begin(dir, None).unwrap());
        for wrong in ["../../x", "Current", ""] {
            let new = NewCheckpoint::begin(dir, None).unwrap();
            assert!(new.finish(wrong).is_err(), "{wrong}");
        }
        let left = fs::read_dir(dir.join(CHECKPOINTS)).unwrap().count();
        assert_eq!(left, 0);
        let long = "x".repeat(MAX_COMMENT_BYTES + 1);
        assert!(NewCheckpoint::begin(dir, Some(&long)).is_err());
    }
}
