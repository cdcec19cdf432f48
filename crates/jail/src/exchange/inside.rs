//! The process that makes an exchange, first on the host, then in the namespaces of the sandbox.
//!
//! It enters the sandbox's mount and user namespaces but none of its others, so no process inside
//! can address it. The only paths that it looks up there are mount points, without following links.

use super::{Answer, Order};
use crate::channel;
use crate::identity;
use crate::mount;
use crate::mount_path::unescape;
use crate::plan::{MapWriter, Step};
use crate::stage0::staging::{self, mkdir, touch};
use crate::stage0::{Context as _, FailedStep, ProcessExit, mounts, parent};
use crate::sys::{once, unshare::unshare};
use glovebox_spec::WORKSPACE;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, fsconfig_reconfigure, fsconfig_set_flag};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::path::{Path, PathBuf};

/// Maximum size of the table of mounts in bytes.
const MAX_MOUNTS_BYTES: usize = 4 << 20;
/// Size of the staging file system in bytes. It holds mount points only.
const STAGING_BYTES: u64 = 1 << 20;

/// Makes the exchange that is requested on descriptor 0.
///
/// Preconditions: the process has one thread, was started for this, and has opened no descriptor.
pub fn run() -> ProcessExit {
    if once::close_from(3).is_err() {
        return ProcessExit(1);
    }
    let Ok(control) = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) else {
        return ProcessExit(1);
    };
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let Ok(Some((order, spaces))) = channel::receive::<Order>(&control) else {
        return ProcessExit(1);
    };
    let site = match ExchangeMounts::open(&order, spaces) {
        Ok(site) => site,
        Err(broken) => return tell(&control, &Answer::Broken(broken)),
    };
    match close(&order) {
        Ok(true) => {}
        Ok(false) => return tell(&control, &Answer::Busy),
        Err(broken) => return tell(&control, &Answer::Broken(broken)),
    }
    if channel::send(&control, &Answer::Closed, &[]).is_err() {
        return ProcessExit(1);
    }
    // The host process is gone, and the sandbox with it.
    let Ok(Some(((), _))) = channel::receive::<()>(&control) else {
        return ProcessExit(1);
    };
    // This process's own mount namespace ends after the answer, because `site` lives until then.
    // Its end takes a while, and the host need not wait for it.
    match site.exchange(&order) {
        Ok(()) => tell(&control, &Answer::Done),
        Err(broken) => tell(&control, &Answer::Broken(broken)),
    }
}

fn tell(control: &OwnedFd, answer: &Answer) -> ProcessExit {
    ProcessExit(i32::from(channel::send(control, answer, &[]).is_err()))
}

/// The two mount namespaces that this process switches between.
struct ExchangeMounts {
    /// Mount namespace of the sandbox.
    inside: OwnedFd,
    /// Mount namespace of this process, which the sandbox never sees.
    own: OwnedFd,
    /// Staging file system, in the namespace of this process.
    staging: OwnedFd,
    /// Names of the read-only layers in the staging file system, for each step.
    lowers: Vec<Vec<String>>,
    /// `/proc/self` of the host.
    proc: OwnedFd,
}

/// A mount in the old root, and its mount point.
struct ChildMount {
    mount: OwnedFd,
    path: PathBuf,
}

impl ExchangeMounts {
    /// Opens everything that the new overlays need. Returns inside the sandbox's mount namespace.
    fn open(order: &Order, spaces: Vec<OwnedFd>) -> Result<Self, FailedStep> {
        let [user, inside] = <[OwnedFd; 2]>::try_from(spaces)
            .map_err(|_| FailedStep::new("find the sandbox's namespaces", Errno::INVAL))?;
        let writer = order.identity.writer;
        // With privilege outside, the sources are opened before this process enters the sandbox's
        // user namespace, in which it could make no id-mapped mounts of the host's file systems.
        let opened = (writer == MapWriter::Privileged)
            // Restrictions were reported when the sandbox started.
            .then(|| parent::open_sources(&order.identity, &order.sources, &user, |_| {}))
            .transpose()?
            .map(|opened| opened.mounts);
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))
            .cannot("enter the sandbox's user namespace")?;
        if writer != MapWriter::Single {
            identity::leave_groups().cannot("leave the caller's groups")?;
        }
        if order.identity.has_root {
            identity::become_setup_root().cannot("become root of the sandbox")?;
        }
        // This comes after entering the user namespace, which then owns the new mount namespace and
        // gives this process the right to mount in it.
        unshare(UnshareFlags::NEWNS).cannot("create a mount namespace")?;
        rustix::mount::mount_change(
            "/",
            MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        )
        .cannot("detach from the host's mount events")?;
        let open = |path: &str, flags| {
            rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
                .cannot("open the list of mounts")
        };
        // These are opened here, because the sandbox may have another /proc or none.
        let proc = open("/proc/self", OFlags::PATH | OFlags::DIRECTORY)?;
        let own = open("/proc/self/ns/mnt", OFlags::RDONLY)?;
        let sources = match opened {
            Some(opened) => opened,
            None => mounts::open_sources(&order.sources)?,
        };
        let staging = staging::create(STAGING_BYTES)?;
        let malformed = || FailedStep::new("find a source of the plan", Errno::INVAL);
        staging::attach(&staging, sources.first().ok_or_else(malformed)?, "layers")?;
        let mut lowers = Vec::with_capacity(order.steps.len());
        for (number, step) in order.steps.iter().enumerate() {
            let Step::Overlay { lowers: wanted, .. } = step else {
                return Err(FailedStep::new("exchange what is no overlay", Errno::INVAL));
            };
            let wanted = wanted
                .iter()
                .map(|index| sources.get(*index).ok_or_else(malformed))
                .collect::<Result<Vec<_>, _>>()?;
            lowers.push(staging::place(&staging, &wanted, number)?);
        }
        let site = Self {
            inside,
            own,
            staging,
            lowers,
            proc,
        };
        site.enter()?;
        Ok(site)
    }

    fn enter(&self) -> Result<(), FailedStep> {
        move_into_link_name_space(self.inside.as_fd(), Some(LinkNameSpaceType::Mount))
            .cannot("enter the sandbox's mount namespace")
    }

    fn leave(&self) -> Result<(), FailedStep> {
        move_into_link_name_space(self.own.as_fd(), Some(LinkNameSpaceType::Mount))
            .cannot("leave the sandbox's mount namespace")?;
        staging::enter(&self.staging)
    }

    fn exchange(&self, order: &Order) -> Result<(), FailedStep> {
        let has_root = order
            .steps
            .iter()
            .any(|step| target(step) == Path::new("/"));
        // All old overlays go before new ones are made: overlayfs must not use a layer that is the
        // writable layer of another mount (Documentation/filesystems/overlayfs.rst).
        for step in &order.steps {
            if target(step) != Path::new("/") {
                let (flags, path) = (UnmountFlags::DETACH | UnmountFlags::NOFOLLOW, target(step));
                rustix::mount::unmount(path, flags).cannot("take out the old overlay")?;
            }
        }
        let moved = if has_root {
            self.empty_root()?
        } else {
            Vec::new()
        };
        // The new overlays are made in this process's own namespace, which has the staging file
        // system.
        self.leave()?;
        let mut made = Vec::with_capacity(order.steps.len());
        for (step, lowers) in order.steps.iter().zip(&self.lowers) {
            let Step::Overlay {
                target,
                layer,
                is_read_only,
                ..
            } = step
            else {
                continue;
            };
            let at = target.as_path();
            let overlay = staging::overlay(lowers, layer, *is_read_only)
                .cannot(&format!("mount the overlay for {}", at.display()))
                .map_err(FailedStep::of_overlay)?;
            made.push((at, overlay));
        }
        self.enter()?;
        for (path, overlay) in &made {
            if *path == Path::new("/") {
                fill_root(overlay, &moved)?;
            } else {
                let at = open_mount_point(path)?;
                mount::attach(overlay, at).cannot("put in the new overlay")?;
            }
        }
        Ok(())
    }

    /// Moves all mounts in the root to an empty file system, which becomes the root. Returns the
    /// mounts.
    fn empty_root(&self) -> Result<Vec<ChildMount>, FailedStep> {
        let children = self.children()?;
        let limbo = mount::create(
            "tmpfs",
            &[
                mount::FsOption::Value("size", "64k"),
                mount::FsOption::Value("mode", "0555"),
            ],
            rustix::mount::MountAttrFlags::MOUNT_ATTR_NODEV,
        )
        .cannot("create an empty root")?;
        mount::attach_over_root(&limbo).cannot("mount an empty root")?;
        for (index, child) in children.iter().enumerate() {
            let name = index.to_string();
            if mount::is_directory(&child.mount).cannot("look at a mount")? {
                mkdir(&limbo, &name, 0o555)?;
            } else {
                touch(&limbo, &name)?;
            }
            let at = mount::open_target(&limbo, Path::new(&name)).cannot("open a mount point")?;
            mount::attach(&child.mount, at).cannot("move a mount out of the old root")?;
        }
        pivot(&limbo)?;
        Ok(children)
    }

    /// Returns the mounts directly in the root.
    fn children(&self) -> Result<Vec<ChildMount>, FailedStep> {
        let step = "list the sandbox's mounts";
        let list = rustix::fs::openat(
            &self.proc,
            "mountinfo",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .cannot(step)?;
        let mut text = Vec::new();
        loop {
            let mut part = [0_u8; 16 << 10];
            match rustix::io::read(&list, &mut part) {
                Ok(0) => break,
                Ok(count) => text.extend_from_slice(&part[..count]),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(FailedStep::new(step, errno)),
            }
            if text.len() > MAX_MOUNTS_BYTES {
                return Err(FailedStep::new(step, Errno::FBIG));
            }
        }
        let paths = children_of_root(&text).ok_or_else(|| FailedStep::new(step, Errno::INVAL))?;
        paths
            .into_iter()
            .map(|path| {
                let mount = open_mount_point(&path)?;
                Ok(ChildMount { mount, path })
            })
            .collect()
    }
}

/// Makes the overlays read-only. Returns false if a file is open for writing; all of them are then
/// writable again.
fn close(order: &Order) -> Result<bool, FailedStep> {
    let mut closed = Vec::new();
    for step in &order.steps {
        let at = overlay_at(target(step))?;
        match set_writable(&at, false) {
            Ok(()) => closed.push(at),
            Err(Errno::BUSY) => {
                for at in closed {
                    set_writable(&at, true).cannot("make an overlay writable again")?;
                }
                return Ok(false);
            }
            Err(errno) => return Err(FailedStep::new("make an overlay read-only", errno)),
        }
    }
    Ok(true)
}

fn target(step: &Step) -> &Path {
    match step {
        Step::Overlay { target, .. } => target.as_path(),
        _ => Path::new(WORKSPACE),
    }
}

/// Opens the mount at `path`.
fn open_mount_point(path: &Path) -> Result<OwnedFd, FailedStep> {
    let root = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", root, Mode::empty()).cannot("open the sandbox's root")?;
    mount::open_target(&root, path)
        .map_err(|errno| FailedStep::new(format!("open the mount point {}", path.display()), errno))
}

fn overlay_at(path: &Path) -> Result<OwnedFd, FailedStep> {
    const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;
    let at = open_mount_point(path)?;
    let kind = rustix::fs::fstatfs(&at)
        .cannot("look at an overlay")?
        .f_type;
    if kind as u64 == OVERLAYFS_SUPER_MAGIC {
        Ok(at)
    } else {
        let step = format!("find the overlay at {}", path.display());
        Err(FailedStep::new(step, Errno::INVAL))
    }
}

/// Makes the whole file system writable or read-only, not only the mount, so that files opened
/// earlier are affected too.
fn set_writable(overlay: &OwnedFd, is_writable: bool) -> Result<(), Errno> {
    let context = mount::pick(overlay)?;
    fsconfig_set_flag(&context, if is_writable { "rw" } else { "ro" })?;
    fsconfig_reconfigure(&context)
}

/// Makes `root` the root of this process and of all processes with the same root, and unmounts the
/// old one.
fn pivot(root: &OwnedFd) -> Result<(), FailedStep> {
    rustix::process::fchdir(root).cannot("enter the new root")?;
    rustix::process::pivot_root(".", ".").cannot("exchange the roots")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).cannot("detach the old root")?;
    rustix::process::chdir("/").cannot("enter the new root")
}

/// Moves all mounts of the old root into the new one and makes it the root.
fn fill_root(overlay: &OwnedFd, moved: &[ChildMount]) -> Result<(), FailedStep> {
    mount::attach_over_root(overlay).cannot("mount the new root")?;
    for child in moved {
        let step = format!("move {} to the new root", child.path.display());
        // A mount point that was first used after the checkpoint does not exist in the checkpoint's
        // root, so it is made.
        let at = mount::make_target(overlay, &child.path, &child.mount).cannot(&step)?;
        mount::attach(&child.mount, at).cannot(&step)?;
    }
    pivot(overlay)?;
    mounts::verify_root()
}

/// Returns the mount points directly in the root, from `/proc/self/mountinfo`
/// (proc_pid_mountinfo(5)). `None` if the table is malformed.
fn children_of_root(text: &[u8]) -> Option<Vec<PathBuf>> {
    let lines = || {
        text.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut words = line.split(|byte| *byte == b' ');
            let (id, parent) = (words.next()?, words.next()?);
            Some((id, parent, words.nth(2)?))
        })
    };
    let (root, ..) = lines().find(|(_, _, at)| *at == b"/")?;
    let children = lines().filter(|(_, parent, at)| *parent == root && *at != b"/");
    children.map(|(_, _, at)| unescape(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_children_of_the_root_are_found_by_its_id() {
        let text = b"40 2 0:30 / / rw - overlay glovebox rw\n\
            41 40 8:1 /usr /usr ro - ext4 /dev/vda ro\n\
            42 41 8:1 /x /usr/x ro - ext4 /dev/vda ro\n\
            43 40 0:31 / /home/a\\040b\\134c rw - tmpfs none rw\n";
        let found = children_of_root(text).unwrap();
        assert_eq!(found, [Path::new("/usr"), Path::new("/home/a b\\c")]);
        assert_eq!(children_of_root(b""), None);
        assert_eq!(unescape(b"/a\\04"), None);
        assert_eq!(unescape(b"/a\\xyz"), None);
    }
}
