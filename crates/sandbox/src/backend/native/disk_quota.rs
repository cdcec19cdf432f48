//! The disk limit of a sandbox with its layers on disk: held by the kernel where it can be
//! ([`project_quota`]), sampled by the watch elsewhere, with the reason in the report.
//!
//! The id is given to the directory of all writable layers before there is anything in it, so they share one
//! limit and files move between them. What a checkpoint freezes keeps the id and goes on counting where it was
//! written; a fork counts what is its own. An id is free again when the last file that has it is removed:
//! `trash` and every sweep clear its limit then.

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

/// What holds the disk limit of one sandbox.
#[derive(Debug)]
pub(super) enum DiskLimit {
    /// There is none, or the size of a tmpfs holds it.
    NotOurs,
    /// The quota of a project.
    Quota(DiskQuota),
    /// Nothing but the watch, for this reason, and how many files it allows.
    Watched {
        /// Why the kernel does not hold it.
        why: String,
        /// Most files of all layers.
        files: u64,
    },
}

/// A project that was given to the layers of a sandbox.
#[derive(Debug)]
pub(super) struct DiskQuota {
    layers: OwnedFd,
    id: u32,
    limits: ProjectLimits,
}

impl DiskLimit {
    /// Arranges for the limit before the layers are made in `layers`, or used once more.
    ///
    /// # Errors
    /// When the directory cannot be made, or a limit of earlier cannot be lifted.
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

    /// Most files of all layers, where the watch counts them.
    pub(super) fn watched_files(&self) -> Option<u64> {
        match self {
            Self::Watched { files, .. } => Some(*files),
            Self::NotOurs | Self::Quota(_) => None,
        }
    }

    /// Whether the watch has nothing to do.
    pub(super) fn is_held(&self) -> bool {
        matches!(self, Self::Quota(_))
    }

    /// Sets the exact limit, now that the layers are mounted, and looks whether it is there.
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

    /// Gives room to mount other layers, which takes a little also where the limit is used up.
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

    /// The kernel's part, as the report has it, or why there is none.
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

/// The most files that layers may have: `files`, or nine tenths of what their file system has room for, beside those
/// that they have.
fn allowed_files(layers: &Path, files: u64) -> u64 {
    // Of the directory above: in a project that has a limit already, ext4 tells of what that leaves (statfs(2)), and
    // each start would take a tenth of the rest away.
    let mut above = layers.ancestors().skip(1);
    let place = above.find_map(|place| statvfs(place).ok());
    // Some file systems make inodes as they need them, and tell of none.
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

/// A limit with room to mount layers. Dropping it sets the exact one again.
#[derive(Debug)]
pub(super) struct LooseLimit(Arc<DiskLimit>);

impl LooseLimit {
    /// Sets the exact limit.
    ///
    /// # Errors
    /// When the kernel refuses: the sandbox must not go on.
    pub(super) fn tighten(self) -> Result<(), Fault> {
        self.0
            .tighten()
            .map_err(|why| quota_fault("cannot set the disk limit", why))
    }
}

impl Drop for LooseLimit {
    fn drop(&mut self) {
        // Of a sandbox that goes on as it was or ends; the same call has just succeeded.
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
        // On a file system with project quotas, as root, the kernel holds it.
        let said = limit.mechanism().unwrap_or_else(|why| why);
        assert!(
            said.contains("project quota") && said.contains("at most 1024 files"),
            "{said}"
        );
        assert_eq!(limit.is_held(), limit.confirm().is_held());
    }
}
