//! The native backend: namespaces, overlays, seccomp, Landlock and cgroups of this machine, set up
//! by [`glovebox_jail`] and watched from here.
//!
//! Input: a spec and a directory for the sandbox. Result: a stream to the guest, and an owner that
//! reports on the walls, notices an exceeded limit, and can end the sandbox at any time.

mod account;
mod disk_quota;
mod egress;
mod layering;
mod prepare;
mod project;
mod secrets;
mod verification;
mod walls;

use disk_quota::DiskLimit;
pub(super) use egress::SandboxProxy;
pub use layering::Layering;
use layering::PlanInput;
use prepare::Skeletons;
pub(crate) use prepare::sweep_base;

use super::{Begun, CreateCx, Driver, ExchangeCx, GuestStream, Owner, substitute_for_native};
use crate::breach::LimitBreach;
use crate::file_systems::{CopyReason, find_copy_reason};
use crate::process::ProcessRef;
use crate::state::layout::LAYERS;

use crate::spec::amount::size;
use crate::watch::{self, Instruments, WatchedSandbox};
use crate::{Backend, GuestImage, Report, SandboxSpec, fault};
use glovebox_egress::{Policy, ProxyHandle};
use glovebox_jail::cgroup::{self, Cgroup, Controllers, DetectCx, GroupFreezer};
use glovebox_jail::launch::{LaunchError, Stage0};
use glovebox_jail::plan::{HostResources, Plan, PlanError, first_id};
use glovebox_jail::probe::{Machine, is_inside_sandbox};
use glovebox_jail::processors::Processors;
use glovebox_jail::seed::Seed;
use glovebox_jail::skeleton::{self, Recipe};
use glovebox_jail::stage0::StepKind;
use glovebox_proto::{Code, Denial, Fault, Setting};
use glovebox_spec::seed::{GIT_DIR, HELD};
use glovebox_spec::{Isolation, Layers, Net, RootFs};
use rustix::process::Pid;
use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time to remove a control group after its processes died.
const CGROUP_REMOVE: Duration = Duration::from_secs(5);

/// Number of the guest's own threads, which count as processes. They are added to the commands'
/// limit.
const GUEST_THREADS: u64 = 16;

/// First kernel with everything that a sandbox needs; id-mapped mounts came last.
const OLDEST_KERNEL: (u32, u32) = (5, 12);

fn controllers() -> &'static Controllers {
    static CONTROLLERS: OnceLock<Controllers> = OnceLock::new();
    CONTROLLERS.get_or_init(|| Controllers::detect(&DetectCx::default()))
}

/// Returns the name of the control group of the sandbox in `dir`. It is the same for every process
/// and different for every state directory.
fn cgroup_name(dir: &Path) -> String {
    let digest = blake3::hash(dir.as_os_str().as_encoded_bytes());
    format!("sandbox-{}", &digest.to_hex()[..16])
}

/// Kills the control group of the sandbox in `dir`, whose owner died.
pub(crate) fn kill_left_group(dir: &Path) {
    crate::process::forced_end::kill_group(controllers().adopt(&cgroup_name(dir)).as_ref());
}

/// Removes the control group that the dead owner of the sandbox in `dir` left.
pub(crate) fn sweep(dir: &Path) -> Result<(), Fault> {
    let Some(group) = controllers().adopt(&cgroup_name(dir)) else {
        return Ok(());
    };
    remove_cgroup(group)
}

fn remove_cgroup(mut group: Cgroup) -> Result<(), Fault> {
    let failed = |error: cgroup::Error| Fault::failed(Code::Io, error.to_string());
    // Usually every process in it is dead and only has to be reaped.
    if group.remove(Duration::from_millis(50)).is_ok() {
        return Ok(());
    }
    group.kill_all().map_err(failed)?;
    group.remove(CGROUP_REMOVE).map_err(failed)
}

/// Minimum memory limit: a sandbox and a small command need this much if all memory is counted.
const MIN_MEMORY_BYTES: u64 = 8 << 20;

/// Driver of the native backend.
#[derive(Debug)]
pub(super) struct NativeDriver;

impl Driver for NativeDriver {
    fn backend(&self) -> Backend {
        Backend::NATIVE
    }

    fn check(&self, spec: &SandboxSpec) -> Result<(), Fault> {
        let Some(bytes) = spec.jail.limits.memory_bytes else {
            return Ok(());
        };
        if bytes >= MIN_MEMORY_BYTES {
            return Ok(());
        }
        let fault = Fault::failed(
            Code::InvalidArgument,
            format!(
                "a memory limit of {} is too small: a sandbox does not start in it",
                size(bytes)
            ),
        );
        Err(fault.remedy([
            format!("give it at least {}, as in ", size(MIN_MEMORY_BYTES)).into(),
            Setting::Memory.of("8MiB"),
        ]))
    }

    fn explain(&self, spec: &SandboxSpec) -> Result<String, Fault> {
        explain(spec)
    }

    fn summary(&self, spec: &SandboxSpec) -> Vec<String> {
        let net = match spec.jail.net {
            Net::None => "no network",
            Net::Host => "host network",
            Net::Egress => "listed hosts only",
        };
        let mut words = vec![format!("rootfs {}", spec.jail.rootfs), net.to_owned()];
        if spec.jail.is_nested {
            words.push("nested namespaces".to_owned());
        }
        words
    }

    fn begin(
        &self,
        spec: &SandboxSpec,
        image: &GuestImage,
        state_dir: &Path,
    ) -> Result<Begun, Fault> {
        begin(&spec.jail, image, state_dir).map(Begun::new)
    }

    fn create(&self, cx: &CreateCx<'_>, begun: Begun) -> Result<GuestStream, Fault> {
        create(cx, begun.take())
    }
}

/// Describes in plain words how a sandbox for `wanted` would be built, without building it.
fn explain(wanted: &SandboxSpec) -> Result<String, Fault> {
    // Names that are known only after the start are written in capitals.
    let state_dir = Path::new("STATE");
    let spec = prepare::resolve(&wanted.jail, state_dir)?;
    let facts = prepare::facts(&spec, state_dir)?;
    let place = HostResources {
        layers: state_dir.join("sandboxes/NAME").join(LAYERS),
        skeleton: Some(state_dir.join("base/SKELETON")),
        machine: Recipe::machine(&spec).map(|_| state_dir.join("base/MACHINE")),
        slot: 0,
        frozen: Vec::new(),
        caches: Vec::new(),
        seed: (!spec.repositories.is_empty()).then(|| Seed {
            git_dir: state_dir.join("layers/SEED").join(GIT_DIR),
            held: state_dir.join("layers/SEED").join(HELD),
            live_objects: None,
            live_lfs: None,
        }),
    };
    let mut plan = Plan::new(&spec, &facts, &place).map_err(|error| plan_fault(&error))?;
    plan.captured = wanted.egress.addresses().into_iter().collect();
    complete(&mut plan, &spec, &state_dir.join("sandboxes/NAME"));
    let keeping = match &wanted.cache_project {
        Some(project) if !spec.caches.is_empty() => format!(
            "package caches\n  kept for the next sandbox of {}\n",
            project.display().to_string().escape_debug()
        ),
        _ => String::new(),
    };
    let egress = match spec.net {
        Net::Egress => reachable(&wanted.egress),
        Net::None | Net::Host => String::new(),
    };
    let secrets = secrets::explain(wanted);
    Ok(format!("{plan}{egress}{secrets}{keeping}"))
}

/// Describes the hosts that the sandbox may reach, one line for each rule.
fn reachable(policy: &Policy) -> String {
    let mut text = "reachable through the owner\n".to_owned();
    if policy.allowed().is_empty() {
        text.push_str("  nothing\n");
    }
    for rule in policy.allowed() {
        let _ = writeln!(text, "  {rule}");
    }
    for rule in policy.denied() {
        let _ = writeln!(text, "  but not {rule}");
    }
    text
}

/// Starts the first process of a native sandbox with its namespaces.
fn begin(spec: &Isolation, image: &GuestImage, state_dir: &Path) -> Result<Stage0, Fault> {
    Stage0::spawn(
        &image.path(),
        spec.net.is_own(),
        controllers().limits_unified(),
    )
    .map_err(|error| launch_fault(&error, state_dir))
}

/// Starts a native sandbox.
fn create(cx: &CreateCx<'_>, begun: Option<Stage0>) -> Result<GuestStream, Fault> {
    let started = Instant::now();
    let stage0 = match begun {
        Some(begun) => begun,
        None => begin(&cx.spec.jail, cx.image, cx.state_dir)?,
    };
    let state = fs::canonicalize(cx.state_dir).unwrap_or_else(|_| cx.state_dir.to_owned());
    let mut spec = prepare::resolve(&cx.spec.jail, &state)?;
    let secrets = secrets::prepare(cx.spec, &mut spec, cx.dir)?;
    let to_fault = match spec.layers {
        Layers::Disk => launch_fault,
        Layers::Memory => memory_fault,
    };
    // With version 2, the process is placed in its group before it starts. A group of version 1 is
    // joined later, so it is made while the process mounts.
    let early = controllers()
        .limits_unified()
        .then(|| NewGroup::make(&spec, cx.dir));
    stage0
        .place(early.as_ref().and_then(NewGroup::unified_dir))
        .map_err(|error| launch_fault(&error, cx.state_dir))?;
    let mut facts = prepare::facts(&spec, &state)?;
    // On a file system without id-mapped mounts the files get the owners of this sandbox from the
    // beginning.
    let is_fixed =
        facts.is_privileged && find_copy_reason(&state, &state) == Some(CopyReason::Owners);
    facts.skeleton_first_id = is_fixed.then(|| first_id(cx.slot));
    let Skeletons { root, machine } = match spec.rootfs {
        RootFs::Dir(_) => Skeletons::default(),
        RootFs::Host | RootFs::HostAll => prepare::skeletons(&spec, &facts, cx.state_dir)?,
    };
    let place = HostResources {
        layers: cx.dir.join(LAYERS),
        skeleton: root,
        machine,
        slot: cx.slot,
        frozen: cx.frozen.clone(),
        caches: cx.caches.clone(),
        seed: cx.seed.as_deref().map(Seed::find),
    };
    let mut plan = Plan::new(&spec, &facts, &place).map_err(|error| plan_fault(&error))?;
    plan.captured = cx.spec.egress.addresses().into_iter().collect();
    complete(&mut plan, &spec, cx.dir);
    let disk = DiskLimit::prepare(&spec, &place.layers)?;
    let made = skeleton::make_layers(&plan, &place.layers, workspace_mode(&spec, &place))
        .map_err(|error| fault::io("make the layers in", &place.layers, error))
        .and_then(|()| prepare::mask_project(&spec, &place.layers, facts.is_privileged));
    if let Err(fault) = made {
        // If namespaces are refused, much of this fails as well, and that is the reason to report.
        let refused = stage0.give_up().map(LaunchError::Step);
        return Err(refused.map_or(fault, |error| to_fault(&error, cx.state_dir)));
    }
    let prepared_us = started.elapsed().as_micros() as u64;
    stage0
        .hand_over(&plan)
        .map_err(|error| to_fault(&error, cx.state_dir))?;

    // From here on the sandbox is being built on another processor. Work that it does not depend on
    // runs meanwhile.
    let mut group = early.unwrap_or_else(|| NewGroup::make(&spec, cx.dir));
    let is_memory_watched = spec.limits.memory_bytes.is_some() && !group.is_memory_enforced();
    let entrances = match group.get() {
        Ok(group) => group
            .entrances()
            .map_err(|error| Fault::failed(Code::Unavailable, error.to_string()))?,
        Err(_) => Vec::new(),
    };
    let is_disk_watched =
        spec.layers == Layers::Disk && spec.limits.disk_bytes.is_some() && !disk.is_held();
    let guest = is_disk_watched
        .then(|| cx.image.as_fd().try_clone_to_owned())
        .transpose()
        .map_err(|error| {
            fault::plain_io("cannot duplicate the guest program's descriptor", error)
        })?;
    let own_namespaces = verification::own_namespaces();

    let deadline = cx.deadline.saturating_duration_since(started);
    let launched = stage0
        .run(is_memory_watched, deadline, &entrances, |pid| {
            match (group.get(), Pid::from_raw(pid)) {
                (Ok(group), Some(pid)) => {
                    group.attach_unified(pid).map_err(|error| error.to_string())
                }
                _ => Ok(()),
            }
        })
        .map_err(|error| to_fault(&error, cx.state_dir))?;
    let mut report = account::report(cx.name, &spec, &plan, &launched, prepared_us);
    let disk = disk.confirm();
    if let Some(prepared) = &secrets {
        prepared.tell(cx.spec, &mut report);
    }
    if let Some(upstream) = cx
        .spec
        .upstream
        .as_ref()
        .filter(|_| spec.net == Net::Egress)
    {
        report.reach_through(upstream);
    }
    report.caches = account::caches(&spec, cx.cache_keeping);
    report.limits = account::limits(&spec, group.get(), &disk);
    let wrong =
        verification::differences(&spec, &plan, &launched.self_test, own_namespaces.as_deref());
    let is_countable = launched.counters.is_some() || !is_memory_watched;
    let way_out = match spec.net {
        Net::Egress => {
            let control = SandboxProxy::control(cx);
            let interceptor = secrets.map(|prepared| prepared.interceptor);
            let upstream = SandboxProxy::upstream(cx.spec)?;
            SandboxProxy::open(launched.egress, control, interceptor, upstream)?
        }
        Net::None | Net::Host => SandboxProxy::default(),
    };
    let layers = launched.layers.map(Arc::new);
    let instruments = Instruments {
        group: group.group.take(),
        counters: launched.counters,
        layers: layers.clone().filter(|_| is_memory_watched),
        guest,
        is_disk_held: disk.is_held(),
        max_files: disk.watched_files(),
    };
    let watched = WatchedSandbox::new(launched.init, &spec, &place, instruments);
    let owner = Native {
        ground: PlanInput {
            spec,
            facts,
            place: HostResources {
                frozen: Vec::new(),
                ..place
            },
            state_dir: cx.state_dir.to_owned(),
        },
        disk: Arc::new(disk),
        way_out,
        report,
        watched: Arc::new(watched),
        layers: Mutex::new(layers),
    };
    // The owner exists by now, so an error from here on drops it and ends the sandbox.
    account::judge(&launched.self_test, &plan, wrong)?;
    if !is_countable {
        return Err(fault::internal(
            "the sandbox did not hand over what counts its memory",
        ));
    }
    watch::add(&owner.watched);
    project::follow_project(cx, &owner);
    let reader = launched
        .link
        .try_clone()
        .map_err(|error| fault::plain_io("cannot duplicate the guest's socket", error))?;
    Ok(GuestStream::new(reader, launched.link, Box::new(owner)))
}

/// Adds to a plan the parts that depend on limits and on this machine. `dir` is the sandbox's own
/// directory.
fn complete(plan: &mut Plan, spec: &Isolation, dir: &Path) {
    // A second limit on processes, which the kernel counts for the sandbox's user namespace.
    plan.seal.processes = spec
        .limits
        .pids
        .map(|count| u64::from(count) + GUEST_THREADS);
    let digest = blake3::hash(dir.as_os_str().as_encoded_bytes());
    let seed = u64::from_le_bytes(*digest.as_bytes().first_chunk().unwrap_or(&[0; 8]));
    plan.seal.processors = spec
        .limits
        .cpu_millis
        .and_then(|millis| Processors::of_this_thread().choose(millis, seed));
    if let Some(limits) = group_limits(spec) {
        plan.show_groups(controllers().views(&cgroup_name(dir), &limits));
    }
}

/// Returns the mode of a new writable layer of the workspace: that of the topmost layer below it.
fn workspace_mode(spec: &Isolation, place: &HostResources) -> u32 {
    let newest = place
        .frozen
        .iter()
        .find_map(|frozen| frozen.workspace.as_ref());
    newest
        .or(spec.workspace.as_ref())
        .and_then(|path| fs::metadata(path).ok())
        .map_or(0o755, |meta| meta.permissions().mode())
}

/// Returns the limits of a sandbox's control group. `None` if it needs no group.
fn group_limits(spec: &Isolation) -> Option<cgroup::Limits> {
    let cpus = spec.limits.cpu_millis;
    let pids = spec.limits.pids;
    let limits = cgroup::Limits::of_sandbox(
        spec.limits.memory_bytes,
        cpus.map(|millis| f64::from(millis) / 1000.0),
        pids.map(|count| u64::from(count) + GUEST_THREADS),
    );
    (limits != cgroup::Limits::default()).then_some(limits)
}

fn make_cgroup(spec: &Isolation, dir: &Path) -> Result<Cgroup, String> {
    let limits = group_limits(spec).ok_or("no limit needs one")?;
    Cgroup::create(controllers(), &cgroup_name(dir), &limits).map_err(|error| error.to_string())
}

/// Control group of a sandbox that is being started, or the reason for having none. Dropping it
/// removes the group, so a failed start leaves none.
struct NewGroup {
    group: Option<Cgroup>,
    why_none: String,
}

impl NewGroup {
    fn make(spec: &Isolation, dir: &Path) -> Self {
        match make_cgroup(spec, dir) {
            Ok(group) => Self {
                group: Some(group),
                why_none: String::new(),
            },
            Err(why_none) => Self {
                group: None,
                why_none,
            },
        }
    }

    fn get(&self) -> Result<&Cgroup, &str> {
        self.group.as_ref().ok_or(self.why_none.as_str())
    }

    fn unified_dir(&self) -> Option<BorrowedFd<'_>> {
        self.group.as_ref()?.unified_dir()
    }

    fn is_memory_enforced(&self) -> bool {
        self.group
            .as_ref()
            .is_some_and(|group| group.applied().memory == cgroup::LimitState::Enforced)
    }
}

impl Drop for NewGroup {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            let _ = remove_cgroup(group);
        }
    }
}

#[derive(Debug)]
struct Native {
    ground: PlanInput,
    way_out: SandboxProxy,
    disk: Arc<DiskLimit>,
    report: Report,
    watched: Arc<WatchedSandbox>,
    /// Directory of layers in memory. They exist while this is open, so it is closed when the
    /// sandbox ends.
    layers: Mutex<Option<Arc<OwnedFd>>>,
}

impl Native {
    fn layers(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        // No critical section leaves the value half changed.
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner for Native {
    fn report(&self) -> Report {
        self.report.clone()
    }

    fn oom_kills(&self) -> u64 {
        self.watched.oom_kills()
    }

    fn forks_refused(&self) -> u64 {
        self.watched.forks_refused()
    }

    fn egress(&self) -> Option<ProxyHandle> {
        self.way_out.handle()
    }

    fn refused_hosts(&self, during: RangeInclusive<u64>, is_shared: bool) -> Vec<Denial> {
        self.way_out.refused(during, is_shared)
    }

    fn limit_breach(&self) -> Option<LimitBreach> {
        self.watched.breach()
    }

    fn process(&self) -> Option<ProcessRef> {
        self.watched.reference
    }

    fn group_freezer(&self) -> Option<GroupFreezer> {
        self.watched.group_freezer()
    }

    fn memory_layers(&self) -> Option<OwnedFd> {
        self.layers().as_ref()?.try_clone().ok()
    }

    fn exchange(&self, cx: ExchangeCx<'_>) -> Option<Result<Layering, Fault>> {
        Some(layering::begin(self, cx))
    }

    fn begin_kill(&self) {
        drop(self.layers().take());
        self.watched.release_memory();
        // `end`, which the caller awaits, reports an error.
        let _ = self.watched.init.begin_kill();
    }

    fn halt(&self) -> Result<(), Fault> {
        self.watched.end()
    }

    fn kill(&self) -> Result<(), Fault> {
        self.end(&mut drop)
    }

    fn end(&self, leave: &mut dyn FnMut(OwnedFd)) -> Result<(), Fault> {
        drop(self.layers().take());
        self.watched.release_memory();
        self.watched.end()?;
        let mounts = self
            .watched
            .init
            .end()
            .map_err(|error| fault::plain_io("cannot end the sandbox", error))?;
        if let Some(mounts) = mounts {
            leave(mounts);
        }
        // No process is left that could send. Bytes already sent still leave the machine.
        self.way_out.close();
        // Last, because a control group with processes cannot be removed (cgroups(7)).
        match self.watched.take_cgroup() {
            Some(group) => remove_cgroup(group),
            None => Ok(()),
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn plan_fault(error: &PlanError) -> Fault {
    let message = error.to_string();
    match error {
        PlanError::NoIdRange => Fault::failed(Code::Unavailable, message).remedy([
            "install `uidmap` and add the user to /etc/subuid and /etc/subgid \
             (`usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER`), or leave out "
                .into(),
            Setting::Ids.of("range"),
        ]),
        PlanError::SingleIdOfRoot => Fault::failed(Code::InvalidArgument, message).remedy([
            "leave out ".into(),
            Setting::Ids.into(),
            " when running as root".into(),
        ]),
        PlanError::NestedWithoutProc => Fault::failed(Code::InvalidArgument, message).remedy([
            "leave out ".into(),
            Setting::Proc.into(),
            ", or ".into(),
            Setting::Nested.into(),
        ]),
        PlanError::Invalid(_) => Fault::failed(Code::InvalidArgument, message),
    }
}

fn launch_fault(error: &LaunchError, state_dir: &Path) -> Fault {
    let message = format!("cannot start a native sandbox: {error}");
    let (release, version) = kernel();
    match error {
        _ if version < OLDEST_KERNEL => Fault::failed(
            Code::Unavailable,
            format!("native sandboxes need Linux 5.12 or later, and this is {release}"),
        )
        .remedy("update the kernel; `glovebox doctor` names what it lacks"),
        LaunchError::TimedOut(_) => Fault::failed(Code::TimedOut, message).retryable(),
        LaunchError::Step(broken)
            if broken.kind == StepKind::Namespaces && !is_inside_sandbox(Path::new("/")) =>
        {
            refused_here(state_dir)
        }
        _ if is_overlay(error) => Fault::failed(Code::Unavailable, message).remedy([
            format!(
                "overlays need a state directory on an ordinary file system (not itself an \
                 overlay or network share): set GLOVEBOX_STATE, now {}, or use ",
                state_dir.display()
            )
            .into(),
            Setting::Layers.of("memory"),
            ", which needs Linux 6.6".into(),
        ]),
        _ => Fault::failed(Code::Unavailable, message)
            .remedy(if is_inside_sandbox(Path::new("/")) {
                "this is the inside of a Glovebox sandbox, and a wall of it is that no further one can be made \
                 there; run the command as it is"
            } else {
                "`glovebox doctor` names what is missing on this machine and how to get it"
            }),
    }
}

/// Returns the fault for a machine that refuses namespaces altogether, with what the machine is and
/// an alternative.
fn refused_here(state_dir: &Path) -> Fault {
    let machine = Machine::read(Path::new("/"), state_dir, Path::new(""));
    let why = if machine.is_filtered && machine.surroundings.is_container() {
        "whose profile forbids namespaces"
    } else {
        "where namespaces are refused"
    };
    let fault = Fault::failed(
        Code::BackendUnavailable,
        format!(
            "native sandboxes are refused here: this is {} {why}",
            machine.surroundings.describe()
        ),
    );
    let doctor =
        || "`glovebox doctor` names what is missing on this machine and how to get it".into();
    fault.remedy(substitute_for_native().unwrap_or_else(doctor))
}

/// Returns the fault of starting a sandbox with layers in memory.
fn memory_fault(error: &LaunchError, state_dir: &Path) -> Fault {
    let fault = launch_fault(error, state_dir);
    let (release, version) = kernel();
    if !is_overlay(error) || !(OLDEST_KERNEL..(6, 6)).contains(&version) {
        return fault;
    }
    fault.remedy([
        format!("layers in memory need Linux 6.6, and this is {release}: leave out ").into(),
        Setting::Layers.of("memory"),
    ])
}

fn is_overlay(error: &LaunchError) -> bool {
    matches!(error, LaunchError::Step(broken) if broken.kind == StepKind::Overlay)
}

/// Returns the release of the running kernel and its first two numbers.
fn kernel() -> (String, (u32, u32)) {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (release, version)
}
