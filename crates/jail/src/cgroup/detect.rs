//! Detection of the hierarchies in which we may make groups, from `mountinfo` and `cgroup` of
//! proc(5).
//!
//! Version 2 has a rule that shapes this file: a group with processes of its own cannot distribute
//! memory to children (cgroups(7), "no internal processes"). If our own group holds processes,
//! sandboxes therefore become its siblings, provided that its parent was delegated to us. Otherwise
//! they become its children without limits, which is still enough to freeze and kill them.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::hierarchy::{Hierarchy, Version, read_file, write_file};
use super::{Controller, DetectCx, PARENT};
use crate::mount_path::unescape;

/// Controllers that can be limited, as opposed to the freezer, which version 2 has built in.
pub(super) const LIMITED: [Controller; 3] = [Controller::Memory, Controller::Pids, Controller::Cpu];

const DELEGATE: &str =
    "start it in a delegated scope: systemd-run --user --scope -p Delegate=yes glovebox ...";

#[derive(Debug)]
pub(super) struct DetectedHierarchies {
    pub(super) hierarchies: Vec<Hierarchy>,
    pub(super) absent: Vec<(Controller, String)>,
}

/// A mounted hierarchy, and our own directory in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CgroupMount {
    pub(super) version: Version,
    /// Controllers of a version 1 mount; empty for version 2.
    pub(super) controllers: Vec<String>,
    /// Mount point.
    pub(super) mount_point: PathBuf,
    /// Our own group, below the mount point.
    pub(super) own: PathBuf,
}

pub(super) fn detect(cx: &DetectCx) -> DetectedHierarchies {
    let read = |file: &str| fs::read_to_string(cx.proc_self.join(file)).unwrap_or_default();
    let mounts = parse(&read("mountinfo"), &read("cgroup"));
    let mut found = DetectedHierarchies {
        hierarchies: Vec::new(),
        absent: Vec::new(),
    };
    let mut reasons: Vec<(Controller, String)> = Vec::new();
    // Version 2 comes first: even if only mounted beside version 1, it kills a group in one write.
    for mount in mounts.iter().filter(|m| m.version == Version::V2) {
        match unified(cx, mount) {
            Ok((hierarchy, missing)) => {
                found.hierarchies.push(hierarchy);
                reasons.extend(missing);
            }
            Err(why) => reasons.extend(Controller::ALL.map(|c| (c, why.clone()))),
        }
    }
    // Programs that find version 2 with its limits look at no other hierarchy.
    let is_unified = found
        .hierarchies
        .iter()
        .any(|hierarchy| LIMITED.iter().any(|c| hierarchy.serves.contains(c)));
    let shown = Controller::SHOWN.into_iter().filter(|_| !is_unified);
    for mount in mounts.iter().filter(|m| m.version == Version::V1) {
        let serves: Vec<Controller> = Controller::ALL
            .into_iter()
            .chain(shown.clone())
            .filter(|c| mount.controllers.iter().any(|name| name == c.name()))
            .filter(|c| !found.hierarchies.iter().any(|h| h.serves.contains(c)))
            .collect();
        if serves.is_empty() {
            continue;
        }
        let path = under(&cx.root, &mount.own);
        match legacy(&path, serves.clone()) {
            Ok(hierarchy) => found.hierarchies.push(hierarchy),
            Err(errno) => {
                let why = format!(
                    "cannot make groups in {}: {}; {}",
                    path.display(),
                    std::io::Error::from(errno),
                    let_in(&path, errno)
                );
                reasons.extend(serves.into_iter().map(|c| (c, why.clone())));
            }
        }
    }
    for controller in Controller::ALL {
        if found
            .hierarchies
            .iter()
            .any(|h| h.serves.contains(&controller))
        {
            continue;
        }
        // The reason of version 1's own mount is more specific than that of a bare version 2.
        let why = reasons.iter().rev().find(|(c, _)| *c == controller);
        let why = why.map_or_else(
            || {
                format!(
                    "no control group hierarchy with this controller is mounted; as root: mount -t \
                     cgroup2 none /sys/fs/cgroup, or for version 1: mkdir /sys/fs/cgroup/{name} && \
                     mount -t cgroup -o {name} none /sys/fs/cgroup/{name}",
                    name = controller.name()
                )
            },
            |(_, why)| why.clone(),
        );
        found.absent.push((controller, why));
    }
    found
}

/// Returns advice for a version 1 hierarchy that refuses us. Version 1 has no delegation except the
/// owner of a directory.
fn let_in(path: &Path, errno: Errno) -> String {
    match errno {
        Errno::ROFS => format!(
            "mount it writable, as root: mount -o remount,rw {}",
            path.display()
        ),
        Errno::ACCESS | Errno::PERM => format!(
            "run glovebox as root, or let it in, as root: mkdir -p {0}/{PARENT} && chown -R USER \
             {0}/{PARENT}",
            path.display()
        ),
        _ => "start glovebox where its own control group can be seen and written to".to_owned(),
    }
}

/// Opens a version 1 hierarchy. It can be used if this process may make a directory in its own
/// group.
fn legacy(path: &Path, serves: Vec<Controller>) -> Result<Hierarchy, Errno> {
    let hierarchy = Hierarchy {
        version: Version::V1,
        base: open_base(path)?,
        path: path.to_path_buf(),
        serves,
    };
    hierarchy.ensure_parent()?;
    writable(&hierarchy)?;
    Ok(hierarchy)
}

type AbsentControllers = Vec<(Controller, String)>;

/// Opens the version 2 hierarchy, with limits if its controllers can be enabled. Without them it
/// still serves for freezing.
fn unified(cx: &DetectCx, mount: &CgroupMount) -> Result<(Hierarchy, AbsentControllers), String> {
    let own = under(&cx.root, &mount.own);
    let top = under(&cx.root, &mount.mount_point);
    let mut why_not_limited = String::new();
    let place = match limited_place(&own, &top) {
        Ok(place) => Some(place),
        Err(why) => {
            why_not_limited = why;
            None
        }
    };
    if let Some(place) = place {
        match enable(&place) {
            Ok(done) => return Ok(done),
            Err(errno) => {
                why_not_limited = format!(
                    "cannot make groups in {}: {}; {DELEGATE}",
                    place.display(),
                    std::io::Error::from(errno)
                );
            }
        }
    }
    // Use children of our own group, which need no controller to be frozen or killed.
    let hierarchy = open_base(&own).and_then(|base| {
        let hierarchy = Hierarchy {
            version: Version::V2,
            base,
            path: own.clone(),
            serves: vec![Controller::Freezer],
        };
        hierarchy.ensure_parent()?;
        writable(&hierarchy)?;
        Ok(hierarchy)
    });
    match hierarchy {
        Ok(hierarchy) => {
            let missing = LIMITED.map(|c| (c, why_not_limited.clone())).to_vec();
            Ok((hierarchy, missing))
        }
        Err(_) => Err(why_not_limited),
    }
}

/// Returns the directory whose children may have limits, or the reason why there is none.
fn limited_place(own: &Path, top: &Path) -> Result<PathBuf, String> {
    let dir = open_base(own).map_err(|e| {
        format!(
            "cannot open our own group {}: {}",
            own.display(),
            std::io::Error::from(e)
        )
    })?;
    // Only the root of the hierarchy has no type. It may hold processes beside its children.
    let is_root =
        rustix::fs::accessat(&dir, "cgroup.type", Access::EXISTS, AtFlags::empty()).is_err();
    let is_empty = read_file(dir.as_fd(), "cgroup.procs").is_ok_and(|text| text.trim().is_empty());
    if is_root || is_empty {
        return Ok(own.to_path_buf());
    }
    if own == top {
        return Err(format!(
            "our own group {} holds processes, and nothing above it is visible; start glovebox as the only process of a group, or {DELEGATE}",
            own.display()
        ));
    }
    let Some(parent) = own.parent() else {
        return Err("our own group has no parent".to_owned());
    };
    // Moving a process between siblings requires write access to the common parent's list.
    rustix::fs::access(parent.join("cgroup.procs"), Access::WRITE_OK).map_err(|errno| {
        format!(
            "our own group {} holds processes, and its parent is not delegated to us ({}); {DELEGATE}",
            own.display(),
            std::io::Error::from(errno)
        )
    })?;
    Ok(parent.to_path_buf())
}

/// Enables the controllers in `place/glovebox` and its children. Returns those that cannot be
/// enabled, with the reasons.
fn enable(place: &Path) -> Result<(Hierarchy, AbsentControllers), Errno> {
    let mut hierarchy = Hierarchy {
        version: Version::V2,
        base: open_base(place)?,
        path: place.to_path_buf(),
        serves: vec![Controller::Freezer],
    };
    hierarchy.ensure_parent()?;
    writable(&hierarchy)?;
    let mut missing = Vec::new();
    for controller in LIMITED {
        let switch = format!("+{}", controller.name());
        let result = write_file(hierarchy.base.as_fd(), "cgroup.subtree_control", &switch)
            .and_then(|()| {
                write_file(
                    hierarchy.base.as_fd(),
                    &format!("{PARENT}/cgroup.subtree_control"),
                    &switch,
                )
            });
        match result {
            Ok(()) => hierarchy.serves.push(controller),
            Err(errno) => missing.push((
                controller,
                format!(
                    "cannot switch on {} below {}: {}; {DELEGATE}",
                    controller.name(),
                    place.display(),
                    std::io::Error::from(errno)
                ),
            )),
        }
    }
    Ok((hierarchy, missing))
}

fn open_base(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// Checks that we may write to `glovebox`. Another user may have made it.
fn writable(hierarchy: &Hierarchy) -> Result<(), Errno> {
    rustix::fs::accessat(&hierarchy.base, PARENT, Access::WRITE_OK, AtFlags::empty())
}

/// Returns `path` (absolute) below `root`; with `/` it is unchanged.
fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Parses the two files of proc(5). Returns the mounted hierarchies, with our own group in each.
pub(super) fn parse(mountinfo: &str, membership: &str) -> Vec<CgroupMount> {
    let mut mounts: Vec<CgroupMount> = Vec::new();
    for line in mountinfo.lines() {
        // id parent major:minor root mount-point options [optional ...] - type source super-options
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (Some(root), Some(point)) = (left.get(3), left.get(4)) else {
            continue;
        };
        let (version, controllers) = match right.first() {
            Some(&"cgroup2") => (Version::V2, Vec::new()),
            Some(&"cgroup") => {
                let options = right.get(2).copied().unwrap_or_default();
                (Version::V1, options.split(',').map(str::to_owned).collect())
            }
            _ => continue,
        };
        let (Some(root), Some(mount_point)) =
            (unescape(root.as_bytes()), unescape(point.as_bytes()))
        else {
            continue;
        };
        let Some(own) = own_group(membership, version, &controllers) else {
            continue;
        };
        let own = relative_to(Path::new(own), &root);
        let own = own.map_or_else(|| mount_point.clone(), |rest| mount_point.join(rest));
        // A later mount on the same mount point hides the earlier one. A second mount of a
        // hierarchy adds nothing.
        mounts.retain(|m| m.mount_point != mount_point);
        if mounts
            .iter()
            .any(|m| m.version == version && m.controllers == controllers)
        {
            continue;
        }
        mounts.push(CgroupMount {
            version,
            controllers,
            mount_point,
            own,
        });
    }
    mounts
}

/// Returns the path in `/proc/self/cgroup` of the hierarchy with these controllers.
fn own_group<'a>(membership: &'a str, version: Version, controllers: &[String]) -> Option<&'a str> {
    membership.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let matches = match version {
            Version::V2 => id == "0" && names.is_empty(),
            Version::V1 => {
                !names.is_empty()
                    && names
                        .split(',')
                        .all(|name| controllers.iter().any(|c| c == name))
            }
        };
        matches.then_some(path)
    })
}

/// Returns `own` relative to the mounted `root`. `None` if it lies outside (a mount from another
/// namespace).
fn relative_to(own: &Path, root: &Path) -> Option<PathBuf> {
    let rest = own.strip_prefix(root).ok()?;
    let plain = rest.components().all(|c| matches!(c, Component::Normal(_)));
    plain.then(|| rest.to_path_buf())
}
