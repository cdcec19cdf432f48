//! Upkeep of a state directory: renaming, resource usage and disk usage.
//!
//! All facts come from files, locks and `/proc`; no sandbox is disturbed.

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

/// Disk usage of a part of the state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskUsage {
    /// Name below the state directory.
    pub name: String,
    /// Size in bytes. `None` if a part of it is inaccessible.
    pub bytes: Option<u64>,
}

impl Registry {
    /// Renames a sandbox that does not run. Its files and checkpoints stay.
    ///
    /// # Errors
    /// `busy` if it runs; `already-exists` if the new name is taken; `sandbox-not-found`.
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
        // A process that tests either name meanwhile finds the lock held, or no directory.
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

    /// Returns the resource usage of a sandbox's processes. `None` if none of them is on this
    /// machine.
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

    /// Returns the disk usage of a sandbox's files in bytes, without layers that it shares since a
    /// checkpoint, and without directories that commands closed to their own user. `None` if they
    /// are inaccessible.
    ///
    /// # Errors
    /// `sandbox-not-found`.
    pub fn disk_bytes(&self, name: &Name) -> Result<Option<u64>, Fault> {
        Ok(bytes_of(&self.existing(name)?))
    }

    /// Returns the time of the last change of a sandbox's state, such as that of its stop. `None`
    /// if it is unknown.
    ///
    /// # Errors
    /// `sandbox-not-found`.
    pub fn changed_at(&self, name: &Name) -> Result<Option<SystemTime>, Fault> {
        let status = self.existing(name)?.join("status.json");
        Ok(status.metadata().and_then(|found| found.modified()).ok())
    }

    /// Returns the disk usage of the state directory by parts, the largest first.
    ///
    /// # Errors
    /// Fails if the directory cannot be listed.
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

/// Returns true if the content of a directory takes more than `max_bytes` of disk, or has more
/// entries than can be counted.
pub fn is_larger_than(dir: &Path, max_bytes: u64) -> bool {
    matches!(
        measure(dir, max_bytes),
        TreeUsage::Over | TreeUsage::TooManyEntries
    )
}
