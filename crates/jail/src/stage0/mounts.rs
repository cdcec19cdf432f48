//! The file system of a sandbox under construction.
//!
//! A mount can be made before it has a place. So a second thread makes `/dev` and all overlays
//! except that of the root, which takes about as long as the remaining work. The first thread
//! attaches all mounts, in the order of the plan.

use super::staging::{self, mkdir, touch};
use super::{Context as _, FailedStep, Report, groups};
use crate::bounds::TERMINALS;
use crate::cgroup::GROUPS;
use crate::channel;
use crate::counters;
use crate::mount::{self, FsOption};
use crate::plan::{Plan, Source, Step, WHOLE_PROC};
use glovebox_spec::files_within;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender};

/// Opens the sources without privilege outside: the child may open exactly the paths that the
/// caller may.
pub(crate) fn open_sources(sources: &[Source]) -> Result<Vec<OwnedFd>, FailedStep> {
    sources
        .iter()
        .map(|source| {
            let path = source.path.as_path();
            let step = format!("open {} for the sandbox", path.display());
            let mount = match mount::copy_path(path, source.is_recursive) {
                Err(Errno::INVAL) if !source.is_recursive => {
                    let why = "it has other file systems mounted below it, which only root may \
                               leave out";
                    return Err(FailedStep::new(format!("{step} ({why})"), Errno::INVAL));
                }
                other => other.cannot(&step)?,
            };
            mount::narrow(&mount, source.is_read_only, None, source.is_recursive).cannot(&step)?;
            Ok(mount)
        })
        .collect()
}

/// The file system under construction.
pub(super) struct Mounts {
    /// A small tmpfs over the old root, with mount points for layers and empty files and
    /// directories for covers.
    staging: OwnedFd,
    /// The new root. `None` before the first overlay.
    root: Option<OwnedFd>,
    /// The new `/proc`.
    proc: Option<OwnedFd>,
    /// The new `/dev/shm`.
    shm: Option<OwnedFd>,
}

impl Mounts {
    pub(super) fn new(plan: &Plan) -> Result<Self, FailedStep> {
        let staging = staging::create(plan.staging_bytes)?;
        Ok(Self {
            staging,
            root: None,
            proc: None,
            shm: None,
        })
    }

    /// Moves the writable layers to the directory where the overlays expect them.
    pub(super) fn place_layers(&self, plan: &Plan, sources: &[OwnedFd]) -> Result<(), FailedStep> {
        if plan.layers_in_memory() {
            for (name, owner) in plan.layer_dirs() {
                if name.is_empty() {
                    continue;
                }
                let path = format!("layers/{name}");
                mkdir(&self.staging, &path, 0o755)?;
                if owner == plan.seal.uid && plan.identity.has_root {
                    let (uid, gid) = (
                        rustix::fs::Uid::from_raw(plan.seal.uid),
                        rustix::fs::Gid::from_raw(plan.seal.gid),
                    );
                    rustix::fs::chownat(
                        &self.staging,
                        path.as_str(),
                        Some(uid),
                        Some(gid),
                        rustix::fs::AtFlags::empty(),
                    )
                    .cannot("give the workspace to the sandbox user")?;
                }
            }
        } else {
            let layers = sources
                .first()
                .ok_or_else(|| FailedStep::new("find the layers in the plan", Errno::INVAL))?;
            staging::attach(&self.staging, layers, "layers")?;
        }
        Ok(())
    }

    /// Returns the root of the sandbox.
    pub(super) fn root(&self) -> Result<&OwnedFd, FailedStep> {
        self.root.as_ref().ok_or_else(|| {
            FailedStep::new(
                "mount before there is a root (a malformed plan)",
                Errno::INVAL,
            )
        })
    }

    /// Returns the staging file system.
    pub(super) fn staging(&self) -> &OwnedFd {
        &self.staging
    }

    /// Carries out the steps of a plan, in their order. Mounts that [`make_beside`] makes are
    /// received from `made`. `meanwhile` is called once: after the root exists, before the first
    /// wait for the other thread.
    pub(super) fn apply(
        &mut self,
        plan: &Plan,
        sources: &[OwnedFd],
        made: &Receiver<Result<DetachedMount, FailedStep>>,
        meanwhile: impl FnOnce(&Self) -> Result<(), FailedStep>,
    ) -> Result<(), FailedStep> {
        let mut meanwhile = Some(meanwhile);
        for (index, step) in plan.steps.iter().enumerate() {
            if is_made_beside(index, step) {
                if let Some(meanwhile) = meanwhile.take() {
                    meanwhile(self)?;
                }
                // The other thread sends an error before it ends, unless the set-up has been given
                // up.
                let made = made.recv().map_err(|_| no_more_mounts())??;
                self.attach(step, made)?;
            } else {
                self.apply_step(step, sources)?;
            }
        }
        meanwhile.map_or(Ok(()), |meanwhile| meanwhile(self))
    }

    /// Attaches a finished mount to its place.
    fn attach(&mut self, step: &Step, made: DetachedMount) -> Result<(), FailedStep> {
        let (target, mount) = match (step, &made) {
            (Step::Overlay { target, .. }, DetachedMount::Overlay(mount)) => {
                (target.as_path(), mount)
            }
            (Step::Dev { .. }, DetachedMount::Dev { mount, .. }) => (Path::new("/dev"), mount),
            _ => return Err(no_more_mounts()),
        };
        let step = format!("mount {} in the sandbox", target.display());
        let at = mount::make_target(self.root()?, target, mount).cannot(&step)?;
        mount::attach(mount, at).cannot(&step)?;
        if let DetachedMount::Dev { shm, .. } = made {
            self.shm = Some(shm);
        }
        Ok(())
    }

    fn apply_step(&mut self, step: &Step, sources: &[OwnedFd]) -> Result<(), FailedStep> {
        match step {
            Step::Overlay { target, .. } => {
                if self.root.is_some() {
                    return Err(FailedStep::new(
                        format!("mount a second root at {}", target.as_path().display()),
                        Errno::INVAL,
                    ));
                }
                let root = make_overlay(&self.staging, 0, step, sources)?;
                staging::attach(&self.staging, &root, "root")?;
                self.root = Some(root);
                Ok(())
            }
            Step::Bind {
                source: index,
                target,
            } => {
                let mount = source(sources, *index)?;
                let step = format!("show {} in the sandbox", target.as_path().display());
                let at = mount::make_target(self.root()?, target.as_path(), mount).cannot(&step)?;
                mount::attach(mount, at).cannot(&step)
            }
            Step::Proc {
                pids_only,
                read_only,
                covered,
            } => self.proc(*pids_only, read_only, covered),
            // The second thread makes it.
            Step::Dev { .. } => Err(no_more_mounts()),
            // The control group is mounted later, when the host has made it.
            Step::Groups { .. } => Ok(()),
            Step::Cover { target } => {
                let step = format!("cover {}", target.as_path().display());
                match mount::open_target(self.root()?, target.as_path()) {
                    Ok(at) => self.cover(at.as_fd()).cannot(&step),
                    // The path does not exist, or even the set-up's root may not reach it; then no
                    // process inside can, because none has more rights.
                    Err(Errno::NOENT | Errno::ACCESS) => Ok(()),
                    Err(errno) => Err(FailedStep::new(step, errno)),
                }
            }
        }
    }

    fn proc(
        &mut self,
        pids_only: bool,
        read_only: &[String],
        covered: &[String],
    ) -> Result<(), FailedStep> {
        // Do not use `hidepid`: it hides every process that its reader may not trace. A command
        // that makes itself untraceable (PR_SET_DUMPABLE) would be invisible to the guest when its
        // job is to be killed, and jobs, each in a Landlock domain of its own, would not see each
        // other.
        let mut options = Vec::new();
        if pids_only {
            options.push(FsOption::Value("subset", "pid"));
        }
        let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let proc = mount::create("proc", &options, attributes).cannot("mount /proc")?;
        let at =
            mount::make_target(self.root()?, Path::new("/proc"), &proc).cannot("mount /proc")?;
        mount::attach(&proc, at).cannot("mount /proc")?;
        for name in read_only {
            let step = format!("make /proc/{name} read-only");
            let copy = match mount::copy(&proc, name, true) {
                Err(Errno::NOENT) => continue,
                other => other.cannot(&step)?,
            };
            mount::narrow(&copy, true, None, true).cannot(&step)?;
            let at = mount::open_target(&proc, Path::new(name)).cannot(&step)?;
            mount::attach(&copy, at).cannot(&step)?;
        }
        for name in covered {
            let step = format!("cover /proc/{name}");
            match mount::open_target(&proc, Path::new(name.trim_end_matches('/'))) {
                Ok(at) => self.cover(at.as_fd()).cannot(&step)?,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(FailedStep::new(step, errno)),
            }
        }
        self.proc = Some(proc);
        Ok(())
    }

    /// Mounts an empty, read-only file or directory over `at`.
    fn cover(&self, at: impl AsFd) -> Result<(), Errno> {
        let name = if mount::is_directory(&at)? {
            "empty"
        } else {
            "void"
        };
        let copy = mount::copy(&self.staging, name, false)?;
        mount::narrow(&copy, true, None, false)?;
        mount::attach(&copy, at)
    }

    /// Sends the host the descriptors for counting memory that is in no process. The tables are
    /// opened in the host's own `/proc`, which shows those of the namespace that this process was
    /// in when it opened them.
    pub(super) fn hand_over_counters(&self, control: &OwnedFd) -> Result<(), FailedStep> {
        let tables = counters::open_tables().cannot("open the tables of System V IPC")?;
        let fds: Vec<_> = self.shm.iter().chain(&tables).map(AsFd::as_fd).collect();
        channel::send(control, &Report::Counters, &fds)
            .map_err(|_| FailedStep::new("hand the counters over", Errno::PIPE))
    }

    /// Mounts the sandbox's control group, which the host has made by now. Programs can do without
    /// it, so a failure is reported and does not end the start.
    pub(super) fn show_groups(&self, plan: &Plan, control: &OwnedFd) -> Result<(), FailedStep> {
        for step in &plan.steps {
            let Step::Groups { views } = step else {
                continue;
            };
            if let Err(broken) = groups::show(self.root()?, views) {
                let errno = Errno::from_raw_os_error(broken.errno);
                let note = format!(
                    "programs do not see the limits at {GROUPS}: cannot {} ({errno})",
                    broken.step
                );
                channel::send(control, &Report::Degraded(note), &[])
                    .map_err(|_| FailedStep::new("report a view that is missing", Errno::PIPE))?;
            }
        }
        Ok(())
    }

    pub(super) fn pivot(self) -> Result<(), FailedStep> {
        let root = self.root()?;
        // The staging file system lies on top of the old root. It is moved into the old root, so
        // that one unmount detaches both: each unmount waits for a grace period of the kernel.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let aside = rustix::fs::openat(CWD, "/proc", flags, Mode::empty())
            .cannot("open the host's /proc")?;
        mount::attach(&self.staging, aside).cannot("put the staging area aside")?;
        rustix::process::fchdir(root).cannot("enter the new root")?;
        rustix::process::pivot_root(".", ".").cannot("exchange the roots")?;
        // The old root now lies on top of the new one.
        rustix::mount::unmount(".", UnmountFlags::DETACH).cannot("detach the old root")?;
        rustix::process::chdir("/").cannot("enter the new root")?;
        verify_root()
    }
}

/// A mount that is not attached to the sandbox yet.
pub(super) enum DetachedMount {
    /// An overlay.
    Overlay(OwnedFd),
    /// `/dev` with all its content.
    Dev {
        /// The mount of `/dev`.
        mount: OwnedFd,
        /// `/dev/shm`.
        shm: OwnedFd,
    },
}

/// Returns true if the second thread makes the mount of this step. It does not make the overlay of
/// the root, to which all other mounts are attached.
fn is_made_beside(index: usize, step: &Step) -> bool {
    index > 0 && matches!(step, Step::Overlay { .. } | Step::Dev { .. })
}

/// Makes all mounts for which [`is_made_beside`] is true, in the order of the steps. Ends early if
/// the receiver is gone.
pub(super) fn make_beside(
    staging: &OwnedFd,
    plan: &Plan,
    sources: &[OwnedFd],
    made: &SyncSender<Result<DetachedMount, FailedStep>>,
) {
    let mut overlays = 0;
    for (index, step) in plan.steps.iter().enumerate() {
        let number = overlays;
        overlays += usize::from(matches!(step, Step::Overlay { .. }));
        if !is_made_beside(index, step) {
            continue;
        }
        let result = match step {
            Step::Dev {
                shm_bytes,
                has_whole_proc,
            } => make_dev(staging, *shm_bytes, *has_whole_proc),
            _ => make_overlay(staging, number, step, sources).map(DetachedMount::Overlay),
        };
        let is_broken = result.is_err();
        if made.send(result).is_err() || is_broken {
            return;
        }
    }
}

fn no_more_mounts() -> FailedStep {
    FailedStep::new("make what the sandbox mounts", Errno::INVAL)
}

fn source(sources: &[OwnedFd], index: usize) -> Result<&OwnedFd, FailedStep> {
    sources
        .get(index)
        .ok_or_else(|| FailedStep::new("find a source of the plan", Errno::INVAL))
}

/// Creates the detached overlay of a step. `number` is its position among all overlays.
fn make_overlay(
    staging: &OwnedFd,
    number: usize,
    step: &Step,
    sources: &[OwnedFd],
) -> Result<OwnedFd, FailedStep> {
    let Step::Overlay {
        target,
        lowers,
        layer,
        is_read_only,
    } = step
    else {
        return Err(no_more_mounts());
    };
    let step = format!("mount the overlay for {}", target.as_path().display());
    let lowers = lowers
        .iter()
        .map(|index| source(sources, *index))
        .collect::<Result<Vec<_>, _>>()?;
    let names = staging::place(staging, &lowers, number)?;
    staging::overlay(&names, layer, *is_read_only)
        .cannot(&step)
        .map_err(FailedStep::of_overlay)
}

/// Makes `/dev`, mounted in the staging file system, because only a mounted directory can hold
/// further mounts.
fn make_dev(
    staging: &OwnedFd,
    shm_bytes: u64,
    has_whole_proc: bool,
) -> Result<DetachedMount, FailedStep> {
    let dev = mount::create(
        "tmpfs",
        &[
            FsOption::Value("size", "64k"),
            FsOption::Value("mode", "0755"),
        ],
        MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )
    .cannot("mount /dev")?;
    mkdir(staging, "dev", 0o755)?;
    staging::attach(staging, &dev, "dev")?;
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        let step = format!("show /dev/{name} in the sandbox");
        let node = mount::copy_path(&Path::new("/dev").join(name), false).cannot(&step)?;
        mount::keep_device(&node).cannot(&step)?;
        touch(&dev, name)?;
        let at = mount::open_target(&dev, Path::new(name)).cannot(&step)?;
        mount::attach(&node, at).cannot(&step)?;
    }
    for name in ["pts", "shm"] {
        mkdir(&dev, name, 0o755)?;
    }
    let size = shm_bytes.to_string();
    let files = files_within(shm_bytes).to_string();
    let shm = mount::create(
        "tmpfs",
        &[
            FsOption::Value("size", &size),
            FsOption::Value("nr_inodes", &files),
            FsOption::Value("mode", "1777"),
        ],
        MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )
    .cannot("mount /dev/shm")?;
    let at = mount::open_target(&dev, Path::new("shm")).cannot("mount /dev/shm")?;
    mount::attach(&shm, at).cannot("mount /dev/shm")?;
    let pts = mount::create(
        "devpts",
        &[
            FsOption::Value("ptmxmode", "0666"),
            FsOption::Value("mode", "0620"),
            FsOption::Value("max", &TERMINALS.to_string()),
        ],
        MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )
    .cannot("mount /dev/pts")?;
    let at = mount::open_target(&dev, Path::new("pts")).cannot("mount /dev/pts")?;
    mount::attach(&pts, at).cannot("mount /dev/pts")?;
    for (target, link) in [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ] {
        rustix::fs::symlinkat(target, &dev, link).cannot("make the links in /dev")?;
    }
    if has_whole_proc {
        add_whole_proc(staging, &dev)
            .cannot("mount another /proc, for namespaces that commands make")?;
    }
    // With a single id the sandbox user owns this directory, and a command could replace the nodes
    // that the guest opens. The nodes and /dev/shm are mounts of their own and do not become
    // read-only.
    mount::narrow(&dev, true, None, false).cannot("make /dev read-only")?;
    Ok(DetachedMount::Dev { mount: dev, shm })
}

/// Mounts a `/proc` without covered parts where no process can reach it: the directory that
/// contains it is covered. A nested namespace inherits both mounts unchanged, so it cannot reach it
/// either. The kernel requires such a visible mount when a process mounts a new `/proc`
/// (`mount_too_revealing`).
fn add_whole_proc(staging: &OwnedFd, dev: &OwnedFd) -> Result<(), Errno> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc = mount::create("proc", &[], attributes)?;
    let inner = Path::new(WHOLE_PROC).join("proc");
    let mode = Mode::from_raw_mode(0o755);
    rustix::fs::mkdirat(dev, WHOLE_PROC, mode)?;
    rustix::fs::mkdirat(dev, &inner, mode)?;
    mount::attach(&proc, mount::open_target(dev, &inner)?)?;
    let cover = mount::copy(staging, "empty", false)?;
    mount::narrow(&cover, true, None, false)?;
    mount::attach(&cover, mount::open_target(dev, Path::new(WHOLE_PROC))?)
}

/// Verifies that nothing lies above the root, where `/..` would lead.
pub(crate) fn verify_root() -> Result<(), FailedStep> {
    let step = "verify that nothing lies above the new root";
    let (own, above) = (mount_of("/").cannot(step)?, mount_of("/..").cannot(step)?);
    if own == above && own == mount_of(".").cannot(step)? {
        Ok(())
    } else {
        Err(FailedStep::new(step, Errno::XDEV))
    }
}

/// Returns the id of the mount and the inode of the directory that `path` leads to.
fn mount_of(path: &str) -> Result<(u64, u64), Errno> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let found = statx(
        CWD,
        path,
        AtFlags::empty(),
        StatxFlags::MNT_ID | StatxFlags::INO,
    )?;
    Ok((found.stx_mnt_id, found.stx_ino))
}
