//! Disk limit of a sandbox with layers on disk. The kernel enforces it if possible
//! ([`project_quota`]); otherwise the watch samples usage, and the report gives the reason.
//!
//! The project id is assigned to the directory of all writable layers while it is empty, so they
//! share one limit and files can be moved between them. Layers frozen by a checkpoint keep the id
//! and count where they were written; a fork counts only its own files. An id becomes free when the
//! last file that has it is removed: `trash` and every sweep clear its limit then.

use crate::fault;
use crate::state::layout::open_dir;
use glovebox_jail::project_quota::{self, ProjectLimits, QuotaUnavailable};
use glovebox_jail::usage::{TreeUsage, measure};
use glovebox_proto::Fault;
use glovebox_spec::{Isolation, Layers, files_within};
use rustix::fs::{CWD, Mode, mkdirat, statvfs};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Mechanism of the disk limit of one sandbox.
#[derive(Debug)]
pub(super) enum DiskLimit {
    /// There is no limit, or the size of a tmpfs enforces it.
    NotOurs,
    /// A project quota enforces it.
    Quota(DiskQuota),
    /// Only the watch checks it.
    Watched {
        /// Reason for which the kernel does not enforce it.
        why: String,
        /// Maximum number of files in all layers.
        files: u64,
    },
}

/// Project id that was assigned to the layers of a sandbox, with its limits.
#[derive(Debug)]
pub(super) struct DiskQuota {
    layers: OwnedFd,
    id: u32,
    limits: ProjectLimits,
}

impl DiskLimit {
    /// Assigns the limit before the layers are created in `layers`, or used again.
    ///
    /// # Errors
    /// Fails if the directory cannot be created or an earlier limit cannot be removed.
    pub(super) fn prepare(spec: &Isolation, layers: &Path) -> Result<Self, Fault> {
        if spec.layers != Layers::Disk {
            return Ok(Self::NotOurs);
        }
        let is_root = rustix::process::geteuid().is_root();
        let Some(bytes) = spec.limits.disk_bytes else {
            if is_root {
                lift(layers)?;
            }
            return Ok(Self::NotOurs);
        };
        let files = allowed_files(layers, files_within(bytes));
        if !is_root {
            let why = "only root can set one".to_owned();
            return Ok(Self::Watched { why, files });
        }
        match mkdirat(CWD, layers, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(fault::io("make the layers in", layers, errno)),
        }
        let dir = open_dir(layers).map_err(|errno| fault::io("open", layers, errno))?;
        let limits = ProjectLimits {
            bytes,
            inodes: files,
        };
        Ok(match project_quota::assign(dir.as_fd(), limits) {
            Ok(id) => Self::Quota(DiskQuota {
                layers: dir,
                id,
                limits,
            }),
            Err(why) => Self::Watched {
                why: why.to_string(),
                files,
            },
        })
    }

    /// Returns the maximum number of files in all layers. `None` unless the watch counts them.
    pub(super) fn watched_files(&self) -> Option<u64> {
        match self {
            Self::Watched { files, .. } => Some(*files),
            Self::NotOurs | Self::Quota(_) => None,
        }
    }

    /// Returns true if the kernel enforces the limit.
    pub(super) fn is_held(&self) -> bool {
        matches!(self, Self::Quota(_))
    }

    /// Sets the exact limit after the layers are mounted, and checks that the kernel kept it.
    pub(super) fn confirm(self) -> Self {
        let Self::Quota(quota) = &self else {
            return self;
        };
        let dir = quota.layers.as_fd();
        let held = project_quota::tighten(dir, quota.id, quota.limits)
            .and_then(|()| project_quota::is_held(dir, quota.id, quota.limits));
        match held {
            Ok(true) => self,
            Ok(false) => quota.watched("the kernel did not keep its limit".to_owned()),
            Err(why) => quota.watched(why.to_string()),
        }
    }

    /// Raises the limit a little, because mounting other layers needs some room even if the limit
    /// is used up.
    pub(super) fn loosen(limit: &Arc<Self>) -> Result<LooseLimit, Fault> {
        if let Self::Quota(quota) = &**limit {
            project_quota::loosen(quota.layers.as_fd(), quota.id, quota.limits)
                .map_err(|why| quota_fault("cannot loosen the disk limit", why))?;
        }
        Ok(LooseLimit(Arc::clone(limit)))
    }

    fn tighten(&self) -> Result<(), QuotaUnavailable> {
        match self {
            Self::Quota(quota) => {
                project_quota::tighten(quota.layers.as_fd(), quota.id, quota.limits)
            }
            Self::NotOurs | Self::Watched { .. } => Ok(()),
        }
    }

    /// Returns the words of the report for the project quota. `Err` holds the reason for having
    /// none.
    pub(super) fn mechanism(&self) -> Result<String, String> {
        match self {
            Self::Quota(quota) => Ok(format!(
                "project quota, project {}; at most {} files",
                quota.id, quota.limits.inodes
            )),
            Self::Watched { why, files } => {
                Err(format!("; at most {files} files; no project quota: {why}"))
            }
            Self::NotOurs => Err(String::new()),
        }
    }
}

impl DiskQuota {
    fn watched(&self, why: String) -> DiskLimit {
        DiskLimit::Watched {
            why,
            files: self.limits.inodes,
        }
    }
}

/// Returns the maximum number of files: `files`, or nine tenths of the free inodes plus the files
/// that the layers have already, if that is less.
fn allowed_files(layers: &Path, files: u64) -> u64 {
    // Measured in the directory above. In a project that has a limit, ext4 reports the rest of that
    // limit (statfs(2)), so that each start would lower the limit by a tenth of the rest.
    let mut above = layers.ancestors().skip(1);
    let place = above.find_map(|place| statvfs(place).ok());
    // Some file systems create inodes on demand and report none.
    let Some(free) = place
        .filter(|place| place.f_files > 0)
        .map(|place| place.f_favail)
    else {
        return files;
    };
    let room = free / 10 * 9;
    if room >= files {
        return files;
    }
    let own = match measure(layers, u64::MAX) {
        TreeUsage::Whole { entries, .. } => entries,
        _ => 0,
    };
    files.min(room.saturating_add(own))
}

/// Raised limit with room to mount layers. Dropping it restores the exact limit.
#[derive(Debug)]
pub(super) struct LooseLimit(Arc<DiskLimit>);

impl LooseLimit {
    /// Restores the exact limit.
    ///
    /// # Errors
    /// Fails if the kernel refuses. The sandbox must not continue then.
    pub(super) fn tighten(self) -> Result<(), Fault> {
        self.0
            .tighten()
            .map_err(|why| quota_fault("cannot set the disk limit", why))
    }
}

impl Drop for LooseLimit {
    fn drop(&mut self) {
        // The sandbox continues unchanged or ends, and the same call has succeeded before.
        let _ = self.0.tighten();
    }
}

fn quota_fault(sentence: &str, why: QuotaUnavailable) -> Fault {
    fault::plain_io(sentence, std::io::Error::other(why))
}

fn lift(layers: &Path) -> Result<(), Fault> {
    let dir = match open_dir(layers) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(fault::io("open", layers, errno)),
    };
    project_quota::lift(dir.as_fd())
        .map_err(|why| quota_fault("cannot lift the disk limit of earlier", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_hold_is_watched_with_a_reason() {
        let temp = tempfile::tempdir().unwrap();
        let layers = temp.path().join("layers");
        let mut spec = Isolation {
            layers: Layers::Disk,
            ..Isolation::default()
        };
        spec.limits.disk_bytes = None;
        let none = DiskLimit::prepare(&spec, &layers).unwrap();
        assert!(!none.is_held() && !layers.exists());
        assert_eq!(none.mechanism(), Err(String::new()));

        spec.limits.disk_bytes = Some(1 << 20);
        let limit = DiskLimit::prepare(&spec, &layers).unwrap();
        // As root on a file system with project quotas, the kernel enforces the limit.
        let said = limit.mechanism().unwrap_or_else(|why| why);
        assert!(
            said.contains("project quota") && said.contains("at most 1024 files"),
            "{said}"
        );
        assert_eq!(limit.is_held(), limit.confirm().is_held());
    }
}
