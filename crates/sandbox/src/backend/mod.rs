//! Backends: the mechanisms that isolate a sandbox. A backend gives a byte stream to a guest and an
//! [`Owner`] that reports on the guest and ends it; nothing else of a sandbox differs between
//! backends.
//!
//! A backend is a [`Driver`]. Three are built in. A program registers further drivers, which live
//! in crates of their own, with [`register`] before any other call of this crate.

mod bootstrap;
mod checkpoints;
mod command;
mod host;
mod native;
mod words;

pub use bootstrap::{GuestPlace, bring_guest, quote, shell_script};
pub use checkpoints::ServiceCheckpoints;
pub(crate) use checkpoints::checkpoints;
pub use host::{spawn_guest, spawn_guest_with_proxy};
pub use native::Layering;
pub(crate) use native::{kill_left_group, sweep, sweep_base};

pub use crate::breach::LimitBreach;
use crate::link::{Link, greet};
use crate::link_meter::LinkMeter;
pub use crate::process::ProcessRef;
use crate::{Backend, CacheKeeping, GuestImage, LimitFact, Name, Report, SandboxSpec};
use glovebox_egress::{Control, ProxyHandle};
use glovebox_jail::cgroup::GroupFreezer;
use glovebox_jail::plan::{CheckpointLayer, FrozenCache};
use glovebox_proto::{Code, Denial, Fault, Remedy, Setting};
use glovebox_spec::{LimitKind, LimitState};
use serde::Serialize;
use std::any::Any;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Arguments of [`Driver::create`].
#[derive(Debug)]
pub struct CreateCx<'a> {
    /// Requested sandbox.
    pub spec: &'a SandboxSpec,
    /// Name of the sandbox.
    pub name: &'a Name,
    /// Directory of the sandbox. It may hold the layers of an earlier guest.
    pub dir: &'a Path,
    /// State directory, for files that sandboxes share.
    pub state_dir: &'a Path,
    /// Layers that checkpoints froze, newest first.
    pub frozen: Vec<CheckpointLayer>,
    /// Directory of the git seed below the frozen layers. `None` if the sandbox has no seed.
    pub seed: Option<PathBuf>,
    /// Layers that earlier sandboxes of the project left in package caches, newest first.
    pub caches: Vec<FrozenCache>,
    /// Treatment of files that commands write to package caches.
    pub cache_keeping: CacheKeeping,
    /// True if the service holds the files of an earlier guest of this sandbox.
    pub is_resumed: bool,
    /// Number of the leased slot. No other live sandbox of this state directory has it.
    pub slot: u32,
    /// Guest program.
    pub image: &'a GuestImage,
    /// Rules, log and accounts of the network, if an earlier guest of this sandbox had them. `None`
    /// to begin new ones.
    pub egress: Option<Arc<Control>>,
    /// Time by which the guest must have started.
    pub deadline: Instant,
}

/// Stream whose peer is a guest that is about to send its greeting.
#[derive(Debug)]
pub struct GuestStream {
    /// Carries frames from the guest.
    pub reader: OwnedFd,
    /// Carries frames to the guest.
    pub writer: OwnedFd,
    /// Bytes from the guest that the backend has read already.
    pub early: Vec<u8>,
    /// Handle that reports on the guest and ends it.
    pub owner: Box<dyn Owner>,
}

impl GuestStream {
    /// Creates a stream of which nothing has been read yet.
    pub fn new(reader: OwnedFd, writer: OwnedFd, owner: Box<dyn Owner>) -> Self {
        Self {
            reader,
            writer,
            early: Vec::new(),
            owner,
        }
    }
}

/// Owner of a running sandbox. Dropping it ends every process of the sandbox.
pub trait Owner: Send + Sync + Debug {
    /// Returns the isolation report, without the facts that only the guest knows.
    fn report(&self) -> Report;

    /// Returns the number of processes that were ended because memory ran out.
    fn oom_kills(&self) -> u64 {
        0
    }

    /// Returns the number of new processes that were refused because of the limit on processes.
    fn forks_refused(&self) -> u64 {
        0
    }

    /// Returns the egress proxy. `None` unless the sandbox has
    /// [`Net::Egress`](glovebox_spec::Net::Egress).
    fn egress(&self) -> Option<ProxyHandle> {
        None
    }

    /// Returns the hosts that the sandbox was refused during a time (CLOCK_MONOTONIC, in
    /// nanoseconds). `_is_shared` is true if other commands ran in the sandbox at that time.
    fn refused_hosts(&self, _during: RangeInclusive<u64>, _is_shared: bool) -> Vec<Denial> {
        Vec::new()
    }

    /// Returns the counters of the link to the guest. `None` unless the link outlives broken
    /// connections.
    fn link_meter(&self) -> Option<Arc<LinkMeter>> {
        None
    }

    /// Returns the limit for which the sandbox was ended. `None` if it was not ended for a limit.
    fn limit_breach(&self) -> Option<LimitBreach> {
        None
    }

    /// Returns one sentence on why the guest ended. `None` if it runs or the reason is unknown.
    fn exit_reason(&self) -> Option<String> {
        None
    }

    /// Returns the process of this machine whose end ends the sandbox, if there is such a process.
    fn process(&self) -> Option<ProcessRef> {
        None
    }

    /// Returns the freezer of the sandbox's control group. `None` if the kernel cannot freeze all
    /// its processes at once.
    fn group_freezer(&self) -> Option<GroupFreezer> {
        None
    }

    /// Returns the directory of the writable layers of a live sandbox. `None` unless they are in
    /// memory.
    fn memory_layers(&self) -> Option<OwnedFd> {
        None
    }

    /// Prepares a live sandbox for other layers below its writable ones. Returns `None` if the
    /// backend cannot exchange layers.
    fn exchange(&self, _cx: ExchangeCx<'_>) -> Option<Result<Layering, Fault>> {
        None
    }

    /// Begins to end the sandbox, where that takes a while, without waiting for it.
    fn begin_kill(&self) {}

    /// Ends all processes. The files they wrote can still be collected; if a service holds them, by
    /// a later guest of the sandbox.
    fn halt(&self) -> Result<(), Fault> {
        self.kill()
    }

    /// Ends the sandbox and releases what it holds; returns when nothing is left. May be called
    /// again.
    fn kill(&self) -> Result<(), Fault>;

    /// As [`Self::kill`], but hands descriptors whose release takes time to `_leave`, which the
    /// caller closes later. Nothing can reach the sandbox through them.
    fn end(&self, _leave: &mut dyn FnMut(OwnedFd)) -> Result<(), Fault> {
        self.kill()
    }
}

/// Arguments of [`Owner::exchange`].
#[derive(Debug)]
pub struct ExchangeCx<'a> {
    /// Guest program.
    pub image: &'a GuestImage,
    /// Layers that are frozen after the exchange, newest first. A layer that is about to be frozen
    /// is named by its present path.
    pub frozen: Vec<CheckpointLayer>,
    /// Directory of the git seed below the frozen layers. `None` if the sandbox has no seed.
    pub seed: Option<PathBuf>,
    /// Names of the layers' parts that are exchanged.
    pub parts: &'a [&'static str],
}

/// First part of a guest's start, which needs little of the spec and takes long. Its type is known
/// to the backend alone; dropping it undoes the work.
#[derive(Debug, Default)]
pub struct Begun(Option<Box<dyn Any + Send>>);

impl Begun {
    /// Holds work that has begun.
    pub fn new(work: impl Any + Send) -> Self {
        Self(Some(Box::new(work)))
    }

    /// Returns the work. `None` if none has begun or it has another type.
    pub fn take<T: Any>(self) -> Option<T> {
        self.0?.downcast().ok().map(|work| *work)
    }
}

/// Arguments of calls about machines that a service holds for a state directory.
#[derive(Debug)]
pub struct ServiceCx<'a> {
    /// Spec that names the backend. Only its options and credential are used.
    pub spec: &'a SandboxSpec,
    /// State directory.
    pub state_dir: &'a Path,
    /// Names of the sandboxes in the state directory.
    pub known: &'a [Name],
    /// Time by which the service must respond.
    pub deadline: Instant,
}

/// Facts about the machines of a service, from the service and therefore untrusted. A field is
/// empty if the service does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Operating system with its version.
    pub os: String,
    /// Processor architecture.
    pub arch: String,
    /// Home directory of commands.
    pub home: String,
    /// Version of the service.
    pub version: Option<String>,
}

/// Machine that a service holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldMachine {
    /// Name of the machine at the service.
    pub name: String,
    /// State of the machine as the service calls it. Untrusted.
    pub state: String,
    /// Relation of the machine to this state directory.
    pub claim: Claim,
}

/// Relation of a service's machine to this state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// A sandbox of this state directory uses it.
    InUse,
    /// Made for this state directory, and no sandbox uses it.
    Left,
    /// Made elsewhere, although its name looks as if it belonged to this state directory.
    Foreign,
}

/// Implementation of a backend: starts guests, and describes sandboxes in texts for people.
pub trait Driver: Debug + Send + Sync {
    /// Returns the backend's name and capabilities.
    fn backend(&self) -> Backend;

    /// Checks a spec without accessing the system.
    ///
    /// # Errors
    /// Fails if the backend does not support a part of the spec.
    fn check(&self, _spec: &SandboxSpec) -> Result<(), Fault> {
        Ok(())
    }

    /// Returns the words that follow the backend's name where it is offered because native
    /// sandboxes are refused. `None` if it is no substitute.
    fn offer(&self) -> Option<&'static str> {
        None
    }

    /// Describes for people the steps of starting a sandbox, without taking them.
    ///
    /// # Errors
    /// The errors of starting it, as far as they can be known beforehand.
    fn explain(&self, spec: &SandboxSpec) -> Result<String, Fault>;

    /// Returns words about a sandbox for one line of a list.
    fn summary(&self, spec: &SandboxSpec) -> Vec<String>;

    /// Returns the time without a client and a running job after which a named sandbox is stopped
    /// and its files stay, because a machine that waits costs something. `None` if it keeps running.
    fn idle_time(&self, _spec: &SandboxSpec) -> Option<Duration> {
        None
    }

    /// Begins to start a guest, so that the caller can prepare the rest meanwhile.
    ///
    /// # Errors
    /// Fails if the guest cannot be started.
    fn begin(
        &self,
        _spec: &SandboxSpec,
        _image: &GuestImage,
        _state_dir: &Path,
    ) -> Result<Begun, Fault> {
        Ok(Begun::default())
    }

    /// Starts a guest.
    ///
    /// # Errors
    /// Fails if the guest cannot be started. Nothing of it is left then.
    fn create(&self, cx: &CreateCx<'_>, begun: Begun) -> Result<GuestStream, Fault>;

    /// Asks the backend's service whether it can host sandboxes. Creates none.
    ///
    /// # Errors
    /// As [`Self::list_held`].
    fn probe(&self, _cx: &ServiceCx<'_>) -> Result<ServiceFacts, Fault> {
        Err(no_service(self.backend()))
    }

    /// Lists the machines that the backend's service holds for a state directory.
    ///
    /// # Errors
    /// `unsupported` for a backend without a service, and the errors of reaching the service.
    fn list_held(&self, _cx: &ServiceCx<'_>) -> Result<Vec<HeldMachine>, Fault> {
        Err(no_service(self.backend()))
    }

    /// Returns the checkpoints that the backend's service keeps. `None` if it keeps none.
    fn checkpoints(&self) -> Option<&dyn ServiceCheckpoints> {
        None
    }

    /// Removes the machine of a sandbox whose guest does not run. Succeeds if there is none.
    ///
    /// # Errors
    /// As [`Self::list_held`].
    fn destroy(&self, _cx: &ServiceCx<'_>, _name: &Name) -> Result<(), Fault> {
        Err(no_service(self.backend()))
    }

    /// Removes a machine that [`Self::list_held`] returned, unless a sandbox in `_cx` uses it by
    /// now.
    ///
    /// # Errors
    /// As [`Self::list_held`], and [`still_needed`].
    fn remove_held(&self, _cx: &ServiceCx<'_>, _machine: &HeldMachine) -> Result<(), Fault> {
        Err(no_service(self.backend()))
    }
}

/// Returns the fault for a machine that was to be removed and belongs to a sandbox by now.
pub fn still_needed(machine: &str) -> Fault {
    Fault::refused(
        Code::Changed,
        format!("`{machine}` belongs to a sandbox here, and stays"),
    )
    .remedy("look again at what is left")
}

fn no_service(backend: Backend) -> Fault {
    Fault::refused(
        Code::Unsupported,
        format!(
            "the backend `{backend}` makes no machines elsewhere that could be listed or removed"
        ),
    )
    .remedy("leave the backend out: what is on this machine is listed and removed without it")
}

static DRIVERS: OnceLock<Vec<Box<dyn Driver>>> = OnceLock::new();
const BUILT_IN: &[&dyn Driver] = &[
    &native::NativeDriver,
    &host::HostDriver,
    &command::CommandDriver,
];

/// Adds backends to the built-in ones. Must be called before any other function of this crate; only
/// the first call has an effect.
pub fn register(drivers: Vec<Box<dyn Driver>>) {
    let backends: Vec<Backend> = drivers.iter().map(|driver| driver.backend()).collect();
    if DRIVERS.set(drivers).is_ok() {
        Backend::add(backends.into_iter());
    }
}

/// Returns the driver of a backend. Every [`Backend`] of a spec has one, because [`register`] adds
/// both together.
fn driver(backend: Backend) -> Result<&'static dyn Driver, Fault> {
    let registered = DRIVERS.get().map_or(&[][..], Vec::as_slice);
    let registered = registered.iter().map(Box::as_ref);
    BUILT_IN
        .iter()
        .copied()
        .chain(registered)
        .find(|driver| driver.backend() == backend)
        .ok_or_else(|| {
            Fault::failed(
                Code::Unsupported,
                format!("the backend `{backend}` is not part of this program"),
            )
        })
}

/// Returns the advice for a machine that refuses native sandboxes: to use a registered substitute,
/// or how to make one usable. `None` if no registered backend is a substitute.
fn substitute_for_native() -> Option<Remedy> {
    let registered = DRIVERS.get().map_or(&[][..], Vec::as_slice);
    let (driver, offer) = registered
        .iter()
        .find_map(|driver| Some((driver, driver.offer()?)))?;
    let backend = driver.backend();
    match driver.check(&SandboxSpec::new(backend)) {
        Ok(()) => Some(Remedy::advice([
            Setting::Backend.of(backend.as_str()),
            format!(" {offer}").into(),
        ])),
        Err(fault) => fault.remedy,
    }
}

/// Checks a spec without accessing the system.
///
/// # Errors
/// `invalid-argument`, naming the field, and the errors of [`Driver::check`].
pub(crate) fn check(spec: &SandboxSpec) -> Result<(), Fault> {
    spec.validate()?;
    driver(spec.backend)?.check(spec)
}

/// Calls [`Driver::idle_time`] of the spec's backend, if that keeps files without a guest.
pub(crate) fn idle_time(spec: &SandboxSpec) -> Option<Duration> {
    let driver = driver(spec.backend).ok()?;
    driver.idle_time(spec).filter(|_| spec.keeps_files())
}

/// Calls [`Driver::list_held`] of the spec's backend.
pub(crate) fn list_held(cx: &ServiceCx<'_>) -> Result<Vec<HeldMachine>, Fault> {
    driver(cx.spec.backend)?.list_held(cx)
}

/// Calls [`Driver::probe`] of the spec's backend.
pub(crate) fn probe(cx: &ServiceCx<'_>) -> Result<ServiceFacts, Fault> {
    driver(cx.spec.backend)?.probe(cx)
}

/// Calls [`Driver::destroy`] of the spec's backend.
pub(crate) fn destroy(cx: &ServiceCx<'_>, name: &Name) -> Result<(), Fault> {
    driver(cx.spec.backend)?.destroy(cx, name)
}

/// Calls [`Driver::remove_held`] of the spec's backend.
pub(crate) fn remove_held(cx: &ServiceCx<'_>, machine: &HeldMachine) -> Result<(), Fault> {
    driver(cx.spec.backend)?.remove_held(cx, machine)
}

/// Returns the backend's words about a sandbox for one line of a list. Empty if this program lacks
/// the backend.
pub(crate) fn summary(spec: &SandboxSpec) -> Vec<String> {
    driver(spec.backend).map_or_else(|_| Vec::new(), |driver| driver.summary(spec))
}

/// Begins to start a guest, so that the caller can prepare the rest meanwhile.
pub(crate) fn begin(
    spec: &SandboxSpec,
    image: &GuestImage,
    state_dir: &Path,
) -> Result<Begun, Fault> {
    driver(spec.backend)?.begin(spec, image, state_dir)
}

/// Starts a guest with the spec's backend, and ends it again if a required limit is not enforced.
pub(crate) fn create(cx: &CreateCx<'_>, begun: Begun) -> Result<GuestStream, Fault> {
    let carried = driver(cx.spec.backend)?.create(cx, begun)?;
    check_required(cx.spec, &carried)?;
    Ok(carried)
}

/// Describes for people the steps of starting a sandbox, without taking them.
///
/// # Errors
/// The errors of starting it, as far as they can be known beforehand.
pub fn explain(spec: &SandboxSpec) -> Result<String, Fault> {
    driver(spec.backend)?.explain(spec)
}

/// Refuses a sandbox if the kernel does not enforce a limit that the spec requires. A limit that is
/// only watched can be exceeded for a moment.
fn check_required(spec: &SandboxSpec, carried: &GuestStream) -> Result<(), Fault> {
    if spec.jail.require.is_empty() {
        return Ok(());
    }
    let report = carried.owner.report();
    let missing: Vec<_> = report
        .limits
        .iter()
        .filter(|limit| limit.state != LimitState::Enforced)
        .filter(|limit| spec.jail.require.contains(&limit.kind))
        .collect();
    let Some(first) = missing.first() else {
        return Ok(());
    };
    let kinds: Vec<_> = missing.iter().map(|limit| limit.kind.as_str()).collect();
    // The caller never got the sandbox, so an error of ending it is of no use to it.
    let _ = carried.owner.kill();
    Err(Fault::refused(
        Code::LimitUnavailable,
        format!(
            "the required limit on {} is not held by the kernel: {} is {} here ({})",
            kinds.join(", "),
            first.kind,
            first.state,
            first.mechanism
        ),
    )
    .remedy([
        "drop the requirement, or use a machine that holds the limit: `glovebox doctor` says what is \
         missing, and "
            .into(),
        Setting::Layers.of("memory"),
        " makes the disk limit exact".into(),
    ]))
}

/// Returns the facts on the limits of a backend that cannot enforce any, each with the reason
/// `why`. The owner's timer approximates the wall-clock limit.
pub fn unheld_limits(spec: &SandboxSpec, why: &str) -> Vec<LimitFact> {
    let fact = |(kind, value)| match kind {
        LimitKind::Wall => LimitFact {
            kind,
            value,
            state: LimitState::Approximate,
            mechanism: "timer of the sandbox's owner".to_owned(),
        },
        _ => LimitFact {
            kind,
            value,
            state: LimitState::Absent,
            mechanism: why.to_owned(),
        },
    };
    spec.jail.limits.set().map(fact).collect()
}

/// Starts a guest and exchanges greetings with it.
pub(crate) fn bring_up(cx: &CreateCx<'_>, begun: Begun) -> Result<(Link, Box<dyn Owner>), Fault> {
    let carried = create(cx, begun)?;
    match greet(carried.reader, carried.writer, &carried.early, cx.deadline) {
        Ok(greeted) => Ok((Link::new(greeted), carried.owner)),
        Err(mut fault) => {
            // Read before the kill: afterwards the reason would be our own signal.
            let before = carried.owner.exit_reason();
            let _ = carried.owner.kill();
            if let Some(exit_reason) = before {
                fault.message = format!("{}; {exit_reason}", fault.message);
            }
            Err(fault)
        }
    }
}
