//! The child's half: mounts, pivot, seal, self-test.

use super::examination::examine;
use super::observation::{self, HostProc};
use super::staging::{mkdir, touch};
use super::{Broken, Context as _, Ended, Go, Inside, Report, SelfTest, Walls, settings, staging};
use crate::bounds::{BOUNDS, Mechanism, SOFT_OPEN_FILES, TERMINALS};
use crate::channel;
use crate::counters;
use crate::identity::{self, Separation};
use crate::mount::{self, FsOption};
use crate::plan::{BytePath, MapWriter, Plan, Source, Step};
use crate::seccomp;
use crate::sys::holder::Network;
use crate::sys::once;
use crate::sys::unshare::unshare;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// Turns this process into the first process of the sandbox, or reports why not.
pub(super) fn build(control: OwnedFd, gate: OwnedFd, own_network: bool) -> Result<Inside, Ended> {
    let network = own_network.then(Network::begin);
    // Before that the socket is the parent's to read from. If nothing comes, the parent has told why.
    let Ok(go) = receive_go(&gate) else {
        return Err(Ended(1));
    };
    let Ok(Some((plan, fds))) = channel::receive::<Plan>(&control) else {
        return Err(Ended(1));
    };
    let mut fds = fds.into_iter();
    let supervisor = fds.next();
    let built = join(fds).and_then(|()| assemble(&control, &gate, go, network, &plan));
    match built {
        Ok(Built {
            landlock,
            separation,
            self_test,
        }) => {
            drop(gate);
            if channel::send(&control, &Report::Ready(Box::new(self_test.clone())), &[]).is_err() {
                return Err(Ended(1));
            }
            Ok(Inside {
                link: control,
                supervisor,
                landlock,
                separation,
                walls: Walls::of(&plan),
                env: plan.env,
                cwd: plan.cwd.as_path().as_os_str().as_bytes().to_vec(),
                self_test,
            })
        }
        Err(broken) => {
            let _ = channel::send(&control, &Report::Broken(broken), &[]);
            Err(Ended(1))
        }
    }
}

/// A sandbox that is complete.
struct Built {
    landlock: Option<OwnedFd>,
    separation: Separation,
    self_test: SelfTest,
}

struct Clock {
    started: Instant,
    marks: Vec<(String, u64)>,
}

impl Clock {
    fn mark(&mut self, phase: &str) {
        self.marks
            .push((phase.to_owned(), self.started.elapsed().as_micros() as u64));
    }
}

/// Joins the sandbox's control group and makes it the root of what is seen of such groups.
fn join(entrances: impl Iterator<Item = OwnedFd>) -> Result<(), Broken> {
    for entrance in entrances {
        rustix::io::write(&entrance, b"0").cannot("join the sandbox's control group")?;
    }
    unshare(UnshareFlags::NEWCGROUP).cannot("create the sandbox's control-group namespace")
}

fn assemble(
    control: &OwnedFd,
    gate: &OwnedFd,
    go: Go,
    network: Option<Result<Network, Errno>>,
    plan: &Plan,
) -> Result<Built, Broken> {
    let mut clock = Clock {
        started: Instant::now(),
        marks: Vec::new(),
    };
    if plan.identity.writer != MapWriter::Single {
        // With one id the kernel forbids this, and the caller's groups stay.
        identity::leave_groups().cannot("leave the caller's groups")?;
    }
    if plan.identity.has_root {
        identity::become_setup_root().cannot("become root of the sandbox for its set-up")?;
    }
    // A kernel without keyrings has nothing to leave behind.
    match once::new_session_keyring() {
        Ok(()) | Err(Errno::NOSYS) => {}
        Err(errno) => return Err(Broken::new("leave the caller's session keyring", errno)),
    }
    rustix::system::sethostname(plan.hostname.as_bytes()).cannot("set the host name")?;
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .cannot("detach from the host's mount events")?;

    let mut mounts = Mounts::new(plan)?;
    // The parent has been opening these meanwhile.
    let mut sources = if go.has_sources {
        receive_sources(gate, plan)?
    } else {
        open_sources(&plan.sources)?
    };
    mounts.place_layers(plan, &sources)?;
    if plan.layers_in_memory() {
        let layers = staging::open(&mounts.staging, "layers")?;
        channel::send(control, &Report::Layers, &[layers.as_fd()])
            .map_err(|_| Broken::new("hand the layers over", Errno::PIPE))?;
    }
    for step in &plan.steps {
        mounts.apply(step, &mut sources)?;
    }
    drop(sources);
    if plan.counts_memory {
        mounts.hand_over_counters(control)?;
    }
    let unset = settings::set_user_namespace()?;
    // Before its maker loses sight of the host's /proc.
    enter_network(network, plan.own_network)?;
    let host_proc = HostProc::open()?;
    mounts.pivot()?;
    clock.mark("mounts");

    rustix::process::chdir(plan.cwd.as_path()).cannot("enter the workspace")?;
    let separation = seal(plan)?;
    // Also the child of stage 0 came with the caller's stdin, stdout and stderr.
    silence_stdio()?;
    let built = Walls::of(plan).build().map_err(|error| {
        Broken::new(format!("build the Landlock rules ({error})"), Errno::INVAL)
    })?;
    let ruleset = built.fd.as_ref().map(AsFd::as_fd);
    let trial = ruleset
        .map(|ruleset| observation::begin_landlock_trial(ruleset, &host_proc))
        .transpose()?;
    seccomp::install(seccomp::Profile::Default).map_err(|error| {
        Broken::new(
            format!("install the system-call filter ({error})"),
            Errno::INVAL,
        )
    })?;
    clock.mark("seal");
    let observed = observation::observe(plan, &host_proc, trial)?;
    let mut self_test = examine(built.abi);
    self_test.observed = observed;
    self_test.max_user_namespaces = host_proc.max_user_namespaces();
    self_test.open_fds = host_proc.open_fds()?;
    drop(host_proc);
    clock.mark("self-test");
    self_test.timings_us = clock.marks;
    self_test.unset_bounds = unset;
    self_test
        .open_fds
        .retain(|fd| *fd != control.as_raw_fd() && *fd != gate.as_raw_fd());
    Ok(Built {
        landlock: built.fd,
        separation,
        self_test,
    })
}

/// Enters the network namespace that has been in the making since the beginning.
fn enter_network(network: Option<Result<Network, Errno>>, is_wanted: bool) -> Result<(), Broken> {
    let step = "create the sandbox's network namespace, with its loopback interface up";
    if network.is_some() != is_wanted {
        return Err(Broken::new(step, Errno::INVAL));
    }
    let Some(network) = network else {
        return Ok(());
    };
    let made = network.and_then(Network::finish).cannot(step)?;
    move_into_link_name_space(made.as_fd(), Some(LinkNameSpaceType::Network))
        .cannot("enter the sandbox's network namespace")
}

fn gate_is_closed() -> Broken {
    Broken::new("hear from stage 0", Errno::PIPE)
}

fn receive_go(gate: &OwnedFd) -> Result<Go, Broken> {
    let (go, _) = channel::receive::<Go>(gate)
        .ok()
        .flatten()
        .ok_or_else(gate_is_closed)?;
    Ok(go)
}

fn receive_sources(gate: &OwnedFd, plan: &Plan) -> Result<Vec<OwnedFd>, Broken> {
    let mut sources = Vec::with_capacity(plan.sources.len());
    while sources.len() < plan.sources.len() {
        let ((), fds) = channel::receive::<()>(gate)
            .ok()
            .flatten()
            .ok_or_else(gate_is_closed)?;
        if fds.is_empty() {
            return Err(gate_is_closed());
        }
        sources.extend(fds);
    }
    Ok(sources)
}

/// Without privilege outside, what the child may open is exactly what the caller may.
pub(crate) fn open_sources(sources: &[Source]) -> Result<Vec<OwnedFd>, Broken> {
    sources
        .iter()
        .map(|source| {
            let path = source.path.as_path();
            let step = format!("open {} for the sandbox", path.display());
            let mount = match mount::copy_path(path, source.is_recursive) {
                Err(Errno::INVAL) if !source.is_recursive => {
                    let why = "it has other file systems mounted below it, which only root may \
                               leave out";
                    return Err(Broken::new(format!("{step} ({why})"), Errno::INVAL));
                }
                other => other.cannot(&step)?,
            };
            mount::narrow(&mount, source.is_read_only, None, source.is_recursive).cannot(&step)?;
            Ok(mount)
        })
        .collect()
}

/// The file system under construction.
struct Mounts {
    /// A small tmpfs over the old root: mount points for layers, and empty things to cover with.
    staging: OwnedFd,
    /// The new root; valid after the first overlay.
    root: Option<OwnedFd>,
    /// The new `/proc`.
    proc: Option<OwnedFd>,
    /// The new `/dev/shm`.
    shm: Option<OwnedFd>,
}

impl Mounts {
    fn new(plan: &Plan) -> Result<Self, Broken> {
        let staging = staging::create(plan.staging_bytes)?;
        Ok(Self {
            staging,
            root: None,
            proc: None,
            shm: None,
        })
    }

    /// Puts the writable layers where the overlays will look for them.
    fn place_layers(&self, plan: &Plan, sources: &[OwnedFd]) -> Result<(), Broken> {
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
                .ok_or_else(|| Broken::new("find the layers in the plan", Errno::INVAL))?;
            staging::attach(&self.staging, layers, "layers")?;
        }
        Ok(())
    }

    fn root(&self) -> Result<&OwnedFd, Broken> {
        self.root.as_ref().ok_or_else(|| {
            Broken::new(
                "mount before there is a root (a malformed plan)",
                Errno::INVAL,
            )
        })
    }

    fn apply(&mut self, step: &Step, sources: &mut [OwnedFd]) -> Result<(), Broken> {
        let source = |index: usize| {
            sources
                .get(index)
                .ok_or_else(|| Broken::new("find a source of the plan", Errno::INVAL))
        };
        match step {
            Step::Overlay {
                target,
                lowers,
                layer,
                is_read_only,
            } => {
                let lowers = lowers
                    .iter()
                    .map(|index| source(*index))
                    .collect::<Result<Vec<_>, _>>()?;
                self.overlay(target, &lowers, layer, *is_read_only)
            }
            Step::Bind {
                source: index,
                target,
            } => {
                let mount = source(*index)?;
                let step = format!("show {} in the sandbox", target.as_path().display());
                let at = mount::make_target(self.root()?, target.as_path(), mount).cannot(&step)?;
                mount::attach(mount, at).cannot(&step)
            }
            Step::Proc {
                pids_only,
                read_only,
                covered,
            } => self.proc(*pids_only, read_only, covered),
            Step::Dev { shm_bytes } => {
                self.shm = Some(self.dev(*shm_bytes)?);
                Ok(())
            }
            Step::Cover { target } => {
                let step = format!("cover {}", target.as_path().display());
                match mount::open_target(self.root()?, target.as_path()) {
                    Ok(at) => self.cover(at.as_fd()).cannot(&step),
                    // It is gone, or so closed that not even the set-up's root can come near it;
                    // nobody inside ever has more rights than that.
                    Err(Errno::NOENT | Errno::ACCESS) => Ok(()),
                    Err(errno) => Err(Broken::new(step, errno)),
                }
            }
        }
    }

    fn overlay(
        &mut self,
        target: &BytePath,
        lowers: &[&OwnedFd],
        layer: &str,
        is_read_only: bool,
    ) -> Result<(), Broken> {
        let step = format!("mount the overlay for {}", target.as_path().display());
        let names = staging::place(&self.staging, lowers, layer)?;
        let overlay = staging::overlay(&names, layer, is_read_only).cannot(&step)?;
        if self.root.is_none() {
            staging::attach(&self.staging, &overlay, "root")?;
            self.root = Some(overlay);
            return Ok(());
        }
        let at = mount::make_target(self.root()?, target.as_path(), &overlay).cannot(&step)?;
        mount::attach(&overlay, at).cannot(&step)
    }

    fn proc(
        &mut self,
        pids_only: bool,
        read_only: &[String],
        covered: &[String],
    ) -> Result<(), Broken> {
        // Not `hidepid`: it hides whatever one may not trace, so a command that makes itself untraceable
        // (PR_SET_DUMPABLE) would be out of the guest's sight when its job is to be ended, and jobs, each
        // in a Landlock domain of its own, would not see each other.
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
                Err(errno) => return Err(Broken::new(step, errno)),
            }
        }
        self.proc = Some(proc);
        Ok(())
    }

    /// Puts something empty and read-only over a file or directory.
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

    /// Makes `/dev` and gives `/dev/shm`.
    fn dev(&self, shm_bytes: u64) -> Result<OwnedFd, Broken> {
        let dev = mount::create(
            "tmpfs",
            &[
                FsOption::Value("size", "64k"),
                FsOption::Value("mode", "0755"),
            ],
            MountAttrFlags::MOUNT_ATTR_NOEXEC,
        )
        .cannot("mount /dev")?;
        let at = mount::make_target(self.root()?, Path::new("/dev"), &dev).cannot("mount /dev")?;
        mount::attach(&dev, at).cannot("mount /dev")?;
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
        let shm = mount::create(
            "tmpfs",
            &[
                FsOption::Value("size", &size),
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
        // With a single id the sandbox user owns this directory, and what the guest opens in it must
        // be what it seems. The nodes and /dev/shm are mounts of their own and stay as they are.
        mount::narrow(&dev, true, None, false).cannot("make /dev read-only")?;
        Ok(shm)
    }

    /// Gives the host what it needs to count the memory that is in no process. The host's own `/proc` is
    /// asked, which shows the tables of the namespace that its reader was in when they were opened.
    fn hand_over_counters(&self, control: &OwnedFd) -> Result<(), Broken> {
        let tables = counters::open_tables().cannot("open the tables of System V IPC")?;
        let fds: Vec<_> = self.shm.iter().chain(&tables).map(AsFd::as_fd).collect();
        channel::send(control, &Report::Counters, &fds)
            .map_err(|_| Broken::new("hand the counters over", Errno::PIPE))
    }

    fn pivot(self) -> Result<(), Broken> {
        let root = self.root()?;
        // The staging file system has been lying on top of the old root. Below it, the two leave in
        // one step: each such step waits for a grace period of the kernel.
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

/// Nothing may lie above the root, where `/..` would lead.
pub(crate) fn verify_root() -> Result<(), Broken> {
    let step = "verify that nothing lies above the new root";
    let (own, above) = (mount_of("/").cannot(step)?, mount_of("/..").cannot(step)?);
    if own == above && own == mount_of(".").cannot(step)? {
        Ok(())
    } else {
        Err(Broken::new(step, Errno::XDEV))
    }
}

/// Identity of the mount and the directory that `path` leads to.
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

fn seal(plan: &Plan) -> Result<Separation, Broken> {
    let lower = |resource: Resource, soft: u64, hard: u64| -> Result<(), Errno> {
        // Limits are only ever lowered: raising one takes a capability the caller may lack.
        let now = rustix::process::getrlimit(resource);
        let hard = now.maximum.map_or(hard, |max| max.min(hard));
        rustix::process::setrlimit(
            resource,
            Rlimit {
                current: Some(soft.min(hard)),
                maximum: Some(hard),
            },
        )
    };
    // One byte, not none: no core fits in it, and it is the value at which the kernel leaves out the
    // host's core handler too (core(5): "piping core dumps" ignores the limit otherwise).
    lower(Resource::Core, 1, 1).cannot("forbid core files")?;
    for bound in &BOUNDS {
        let (resource, soft) = match bound.mechanism {
            Mechanism::Rlimit(resource) => (resource, bound.max),
            Mechanism::HardRlimit(resource) => (resource, SOFT_OPEN_FILES),
            Mechanism::UserSetting(_) | Mechanism::MountOption | Mechanism::Filter => continue,
        };
        lower(resource, soft, bound.max).cannot(&format!("limit {}", bound.name))?;
    }
    if let Some(bytes) = plan.seal.file_bytes {
        lower(Resource::Fsize, bytes, bytes).cannot("limit the size of files")?;
    }
    if let Some(count) = plan.seal.processes {
        lower(Resource::Nproc, count, count).cannot("limit the number of processes")?;
    }
    let has_ids = plan.identity.writer != MapWriter::Single;
    identity::drop_privileges(plan.seal.uid, plan.seal.gid, has_ids).cannot("give up root's rights")
}

fn silence_stdio() -> Result<(), Broken> {
    let step = "detach from the caller's standard streams";
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .cannot(step)?;
    rustix::stdio::dup2_stdin(&null).cannot(step)?;
    rustix::stdio::dup2_stdout(&null).cannot(step)?;
    rustix::stdio::dup2_stderr(&null).cannot(step)
}
