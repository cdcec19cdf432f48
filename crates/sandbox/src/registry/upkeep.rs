//! What keeps a state directory in order: other names, what sandboxes take, and what takes room.
//!
//! Everything here is asked from outside, over files, locks and /proc; no sandbox is disturbed by it.

use super::Registry;
use crate::state::sandbox_dir::is_kept;
use crate::state::sandbox_dir::{SandboxDir, SandboxDirState, read_status, rename_new, unlock};
use crate::watch::{ResourceUsage, work_below};
use crate::{Name, fault};
use glovebox_jail::usage::{TreeUsage, measure, measure_visible};
use glovebox_proto::{Code, Fault};
use rustix::io::Errno;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A part of the state directory, and how many bytes of disk it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskUsage {
    /// Its name below the state directory.
    pub name: String,
    /// `None` where a part of it cannot be seen.
    pub bytes: Option<u64>,
}

impl Registry {
    /// Gives a sandbox that does not run another name. Its files and checkpoints stay.
    ///
    /// # Errors
    /// `busy` when it runs, `already-exists` when the new name is taken, `sandbox-not-found`.
    pub fn rename(&self, old: &Name, new: &Name) -> Result<(), Fault> {
        let layout = self.layout();
        let sandbox_dir = match SandboxDir::find(layout, old)? {
            SandboxDirState::Free(sandbox_dir) if is_kept(&sandbox_dir) => sandbox_dir,
            SandboxDirState::Absent | SandboxDirState::Free(_) => {
                return Err(fault::not_found(old));
            }
            SandboxDirState::Held => {
                let fault = Fault::failed(
                    Code::Busy,
                    format!("the sandbox `{old}` runs, and its processes know it by its name"),
                );
                return Err(fault.remedy(format!(
                    "`glovebox stop {old}` ends them and keeps its files; then rename it"
                )));
            }
        };
        let place = layout.sandbox(new.as_str());
        // Whoever looks at either name meanwhile finds the lock held, or nothing.
        match rename_new(&sandbox_dir.path, &place) {
            Ok(()) => {
                unlock(&sandbox_dir.lock);
                Ok(())
            }
            Err(Errno::EXIST | Errno::NOTEMPTY) => Err(Fault::failed(
                Code::AlreadyExists,
                format!("a sandbox `{new}` exists already"),
            )
            .remedy(format!(
                "choose another name, or `glovebox kill {new}` first"
            ))),
            Err(errno) => Err(fault::io("rename", &sandbox_dir.path, errno)),
        }
    }

    /// What the processes of a sandbox take. `None` when none of them is on this machine.
    ///
    /// # Errors
    /// `sandbox-not-found`.
    pub fn work(&self, name: &Name) -> Result<Option<ResourceUsage>, Fault> {
        let dir = self.existing(name)?;
        let process = read_status(&dir).ok().and_then(|status| status.process);
        let is_live = process.is_some_and(|process| process.open().is_some());
        let init = process.filter(|_| is_live).map(|process| process.pid);
        Ok(init.and_then(work_below))
    }

    /// Bytes of disk that the files of a sandbox take, without those that it shares with others since a
    /// checkpoint. What commands closed to their own user is missing. `None` where they cannot be seen.
    ///
    /// # Errors
    /// `sandbox-not-found`.
    pub fn disk_bytes(&self, name: &Name) -> Result<Option<u64>, Fault> {
        Ok(bytes_of(&self.existing(name)?))
    }

    /// When the state of a sandbox last changed: since when it is stopped, for one that is.
    ///
    /// # Errors
    /// `sandbox-not-found`.
    pub fn changed_at(&self, name: &Name) -> Result<Option<SystemTime>, Fault> {
        let status = self.existing(name)?.join("status.json");
        Ok(status.metadata().and_then(|found| found.modified()).ok())
    }

    /// What takes room in the state directory, the largest first.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn room(&self) -> Result<Vec<DiskUsage>, Fault> {
        let state = self.state_dir();
        let entries = std::fs::read_dir(state).map_err(|error| fault::io("list", state, error))?;
        let mut parts: Vec<DiskUsage> = entries
            .flatten()
            .map(|entry| DiskUsage {
                name: entry.file_name().to_string_lossy().into_owned(),
                bytes: match entry.metadata() {
                    Ok(found) if found.is_dir() => bytes_of(&entry.path()),
                    Ok(found) => Some(found.len()),
                    Err(_) => None,
                },
            })
            .collect();
        parts.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        Ok(parts)
    }

    fn existing(&self, name: &Name) -> Result<PathBuf, Fault> {
        let dir = self.layout().sandbox(name.as_str());
        if dir.is_dir() {
            Ok(dir)
        } else {
            Err(fault::not_found(name))
        }
    }
}

fn bytes_of(dir: &Path) -> Option<u64> {
    match measure_visible(dir) {
        TreeUsage::Whole { bytes, .. } => Some(bytes),
        TreeUsage::Over | TreeUsage::TooManyEntries | TreeUsage::TooDeep | TreeUsage::Unseen(_) => {
            None
        }
    }
}

/// Returns true if what lies below a directory takes more than `max_bytes` of disk, or has more entries than are
/// counted.
pub fn is_larger_than(dir: &Path, max_bytes: u64) -> bool {
    matches!(
        measure(dir, max_bytes),
        TreeUsage::Over | TreeUsage::TooManyEntries
    )
}
