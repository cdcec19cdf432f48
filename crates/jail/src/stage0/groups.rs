//! Mounts of the sandbox's own control group, read-only at `/sys/fs/cgroup`, so that programs find
//! their limits.
//!
//! The directories of the group on the host ([`GroupView`]) exist by now. Each is a mount of its
//! own whose root is the group, so no other group is visible below or above it. Precondition: the
//! host's mounts can still be reached by their paths.

use super::staging::mkdir;
use super::{Context as _, FailedStep};
use crate::cgroup::{GROUPS, GroupView};
use crate::mount::{self, FsOption};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use std::path::Path;

/// Mounts the views below `root`. A missing directory is left out: its limit could not be set,
/// which the host reports.
pub(super) fn show(root: &OwnedFd, views: &[GroupView]) -> Result<(), FailedStep> {
    let mut opened = Vec::with_capacity(views.len());
    for view in views {
        if let Some(mount) = open(view)? {
            opened.push((view, mount));
        }
    }
    let Some((first, only)) = opened.first() else {
        return Ok(());
    };
    let step = format!("mount {GROUPS} in the sandbox");
    let at = mount::make_target(root, Path::new(GROUPS), only).cannot(&step)?;
    if first.name.is_empty() {
        return mount::attach(only, at).cannot(&step);
    }
    let dir = mount::create(
        "tmpfs",
        &[
            FsOption::Value("size", "64k"),
            FsOption::Value("mode", "0755"),
        ],
        MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )
    .cannot(&step)?;
    mount::attach(&dir, at).cannot(&step)?;
    for (view, mount) in &opened {
        mkdir(&dir, &view.name, 0o555)?;
        let at = mount::open_target(&dir, Path::new(&view.name)).cannot(&step)?;
        mount::attach(mount, at).cannot(&step)?;
        for link in &view.links {
            rustix::fs::symlinkat(view.name.as_str(), &dir, link.as_str()).cannot(&step)?;
        }
    }
    mount::narrow(&dir, true, None, false).cannot(&step)
}

/// Returns a detached, read-only mount of one directory. `None` if the directory does not exist.
fn open(view: &GroupView) -> Result<Option<OwnedFd>, FailedStep> {
    let path = view.source.as_path();
    let step = format!("show the control group {}", path.display());
    let mount = match mount::copy_path(path, false) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.cannot(&step)?,
    };
    mount::narrow(mount.as_fd(), true, None, false).cannot(&step)?;
    Ok(Some(mount))
}
