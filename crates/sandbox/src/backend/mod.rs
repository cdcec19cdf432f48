//! Backends: what stands behind a sandbox. Each gives one byte stream to a guest and an owner that
//! knows how to report on it and how to end it; nothing else of a sandbox differs between them.
//!
//! A backend is a [`Driver`]. Three are built in; a program registers further ones, which live in crates of
//! their own, before it does anything else.

mod bootstrap;
mod command;
mod host;
mod native;
mod words;

pub use bootstrap::{GuestPlace, bring_guest, quote, shell_script};
pub use host::spawn_guest;
pub use native::Layering;
pub(crate) use native::{kill_left_group, sweep, sweep_base};

pub use crate::breach::LimitBreach;
use crate::link::{Link, greet};
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
use std::time::Instant;

/// What a backend is given.
#[derive(Debug)]
pub struct CreateCx<'a> {
    /// What is wanted.
    pub spec: &'a SandboxSpec,
    /// The sandbox's name.
    pub name: &'a Name,
    /// The sandbox's own directory. It may hold the layers of an earlier life.
    pub dir: &'a Path,
    /// The state directory, for things sandboxes share.
    pub state_dir: &'a Path,
    /// What checkpoints froze, newest first.
    pub frozen: Vec<CheckpointLayer>,
    /// Directory of the git seed below them.
    pub seed: Option<PathBuf>,
    /// What earlier sandboxes of the project left in caches, newest first.
    pub caches: Vec<FrozenCache>,
    /// What becomes of what is written to caches.
    pub cache_keeping: CacheKeeping,
    /// Whether the files of an earlier life are at the service.
    pub is_resumed: bool,
    /// The leased slot: no other live sandbox of this state directory has it.
    pub slot: u32,
    /// The guest.
    pub image: &'a GuestImage,
    /// The rules, the log and the accounts of the network, where an earlier guest of this life had them.
    pub egress: Option<Arc<Control>>,
    /// When coming up must be done.
    pub deadline: Instant,
}

/// What a backend gives: a stream whose peer is a guest about to introduce itself.
#[derive(Debug)]
pub struct GuestStream {
    /// Frames from the guest.
    pub reader: OwnedFd,
    /// Frames to the guest.
    pub writer: OwnedFd,
    /// Bytes of the guest that were read already.
    pub early: Vec<u8>,
    /// Who ends it.
    pub owner: Box<dyn Owner>,
}

impl GuestStream {
    /// A stream of which nothing was read yet.
    pub fn new(reader: OwnedFd, writer: OwnedFd, owner: Box<dyn Owner>) -> Self {
        Self {
            reader,
            writer,
            early: Vec::new(),
            owner,
        }
    }
}

/// The one who answers for a sandbox. Dropping it must leave nothing running.
pub trait Owner: Send + Sync + Debug {
    /// The isolation report, without what only the guest can tell.
    fn report(&self) -> Report;

    /// How often a process of this sandbox was ended for want of memory.
    fn oom_kills(&self) -> u64 {
        0
    }

    /// How often a new process was refused because of the limit on them.
    fn forks_refused(&self) -> u64 {
        0
    }

    /// The proxy that is its way out, where it may reach some hosts and not others.
    fn egress(&self) -> Option<ProxyHandle> {
        None
    }

    /// What it wanted to reach in this time (CLOCK_MONOTONIC, in nanoseconds) and may not.
    fn refused_hosts(&self, _during: RangeInclusive<u64>, _is_shared: bool) -> Vec<Denial> {
        Vec::new()
    }

    /// The limit that was broken, if that is why the sandbox was ended.
    fn limit_breach(&self) -> Option<LimitBreach> {
        None
    }

    /// One sentence about how the guest ended, if it has and it is known.
    fn exit_reason(&self) -> Option<String> {
        None
    }

    /// The process of this machine whose end ends the sandbox.
    fn process(&self) -> Option<ProcessRef> {
        None
    }

    /// What holds its processes still, if the kernel can do that for all of them at once.
    fn group_freezer(&self) -> Option<GroupFreezer> {
        None
    }

    /// The directory of its writable layers, if they are in memory and it lives.
    fn memory_layers(&self) -> Option<OwnedFd> {
        None
    }

    /// Prepares to give the sandbox other layers while it lives, with these below its writable ones.
    /// `None` where that cannot be done.
    fn exchange(&self, _cx: ExchangeCx<'_>) -> Option<Result<Layering, Fault>> {
        None
    }

    /// Begins to end everything, where that takes a while and can be waited for later.
    fn begin_kill(&self) {}

    /// Ends all processes; what they wrote can still be collected, by another life of the sandbox where its files are
    /// at a service.
    fn halt(&self) -> Result<(), Fault> {
        self.kill()
    }

    /// Ends everything; returns when it is gone. Ending it twice is fine.
    fn kill(&self) -> Result<(), Fault>;

    /// As [`Self::kill`], but what nobody sees any more and only takes time may be left to `leave`: letting
    /// go of it is all that remains to be done.
    fn end(&self, _leave: &mut dyn FnMut(OwnedFd)) -> Result<(), Fault> {
        self.kill()
    }
}

/// What an exchange of layers is given.
#[derive(Debug)]
pub struct ExchangeCx<'a> {
    /// The guest.
    pub image: &'a GuestImage,
    /// What is to be frozen then, newest first. Layers that are about to be frozen stand where they
    /// are now.
    pub frozen: Vec<CheckpointLayer>,
    /// Directory of the git seed below them.
    pub seed: Option<PathBuf>,
    /// The parts that are exchanged.
    pub parts: &'a [&'static str],
}

/// The part of a guest's coming up that needs to know little and takes long. Only its backend knows what it is;
/// dropping it undoes it.
#[derive(Debug, Default)]
pub struct Begun(Option<Box<dyn Any + Send>>);

impl Begun {
    /// Work that has begun.
    pub fn new(work: impl Any + Send) -> Self {
        Self(Some(Box::new(work)))
    }

    /// That work, if it is of this type.
    pub fn take<T: Any>(self) -> Option<T> {
        self.0?.downcast().ok().map(|work| *work)
    }
}

/// What is asked about things that a service holds for a state directory.
#[derive(Debug)]
pub struct ServiceCx<'a> {
    /// Options and credential of the backend; nothing else of it counts.
    pub spec: &'a SandboxSpec,
    /// The state directory.
    pub state_dir: &'a Path,
    /// Sandboxes that it knows.
    pub known: &'a [Name],
    /// When an answer must be there.
    pub deadline: Instant,
}

/// What a service says about the machine on which sandboxes would be. Untrusted, and empty where it says nothing.
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

/// Something that a service holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldMachine {
    /// Name at the service.
    pub name: String,
    /// State, in the service's word. Untrusted.
    pub state: String,
    /// Claim of this state directory to it.
    pub claim: Claim,
}

/// Claim of a state directory to a machine of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// It belongs to a sandbox here.
    InUse,
    /// It was made from here, and no sandbox here needs it.
    Left,
    /// It only looks as if it had been made from here.
    Foreign,
}

/// A kind of sandbox: how its guest is brought up, and its words for people.
pub trait Driver: Debug + Send + Sync {
    /// Name and abilities.
    fn backend(&self) -> Backend;

    /// Checks a spec without touching anything.
    ///
    /// # Errors
    /// What of the spec this backend cannot be asked for.
    fn check(&self, _spec: &SandboxSpec) -> Result<(), Fault> {
        Ok(())
    }

    /// What it offers where native sandboxes are refused: words that follow its name. `None` if it is no substitute.
    fn offer(&self) -> Option<&'static str> {
        None
    }

    /// What would be done to start a sandbox, in plain words, without doing it.
    ///
    /// # Errors
    /// As starting it would, as far as that can be known beforehand.
    fn explain(&self, spec: &SandboxSpec) -> Result<String, Fault>;

    /// Words for one line of a list.
    fn summary(&self, spec: &SandboxSpec) -> Vec<String>;

    /// Begins to bring up a guest, so that the rest can be prepared meanwhile.
    ///
    /// # Errors
    /// What keeps it from coming up.
    fn begin(
        &self,
        _spec: &SandboxSpec,
        _image: &GuestImage,
        _state_dir: &Path,
    ) -> Result<Begun, Fault> {
        Ok(Begun::default())
    }

    /// Brings a guest up.
    ///
    /// # Errors
    /// What keeps it from coming up. Nothing of it is left then.
    fn create(&self, cx: &CreateCx<'_>, begun: Begun) -> Result<GuestStream, Fault>;

    /// Asks the backend's service whether sandboxes can be there, and makes none.
    ///
    /// # Errors
    /// As [`Self::list_held`].
    fn probe(&self, _cx: &ServiceCx<'_>) -> Result<ServiceFacts, Fault> {
        Err(no_service(self.backend()))
    }

    /// What the backend's service holds for a state directory.
    ///
    /// # Errors
    /// `unsupported` for a backend without such a service; what keeps the service from answering.
    fn list_held(&self, _cx: &ServiceCx<'_>) -> Result<Vec<HeldMachine>, Fault> {
        Err(no_service(self.backend()))
    }

    /// Removes what the service holds for a sandbox whose guest does not run. Nothing being there is fine.
    ///
    /// # Errors
    /// As [`Self::list_held`].
    fn destroy(&self, _cx: &ServiceCx<'_>, _name: &Name) -> Result<(), Fault> {
        Err(no_service(self.backend()))
    }

    /// Removes one of them, unless a sandbox that is known needs it by now.
    ///
    /// # Errors
    /// As [`Self::list_held`]; [`still_needed`].
    fn remove_held(&self, _cx: &ServiceCx<'_>, _machine: &HeldMachine) -> Result<(), Fault> {
        Err(no_service(self.backend()))
    }
}

/// A machine that was to be removed belongs to a sandbox by now.
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

/// Adds backends to those that are built in: once, before anything else is asked of this crate.
pub fn register(drivers: Vec<Box<dyn Driver>>) {
    let backends: Vec<Backend> = drivers.iter().map(|driver| driver.backend()).collect();
    if DRIVERS.set(drivers).is_ok() {
        Backend::add(backends.into_iter());
    }
}

/// What drives a backend. Every [`Backend`] of a spec has a driver, because both are registered together.
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

/// What to do where native sandboxes are refused: the backend that can take their place here, else what it lacks.
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

/// Checks a spec without touching the system.
///
/// # Errors
/// `invalid-argument`, naming the field, and what the backend refuses.
pub(crate) fn check(spec: &SandboxSpec) -> Result<(), Fault> {
    spec.validate()?;
    driver(spec.backend)?.check(spec)
}

/// What the service of the spec's backend holds.
pub(crate) fn list_held(cx: &ServiceCx<'_>) -> Result<Vec<HeldMachine>, Fault> {
    driver(cx.spec.backend)?.list_held(cx)
}

/// Asks the service of the spec's backend whether sandboxes can be there.
pub(crate) fn probe(cx: &ServiceCx<'_>) -> Result<ServiceFacts, Fault> {
    driver(cx.spec.backend)?.probe(cx)
}

/// Removes what the service of the spec's backend holds for a sandbox.
pub(crate) fn destroy(cx: &ServiceCx<'_>, name: &Name) -> Result<(), Fault> {
    driver(cx.spec.backend)?.destroy(cx, name)
}

/// Removes one of them.
pub(crate) fn remove_held(cx: &ServiceCx<'_>, machine: &HeldMachine) -> Result<(), Fault> {
    driver(cx.spec.backend)?.remove_held(cx, machine)
}

/// Words of the backend for one line of a list.
pub(crate) fn summary(spec: &SandboxSpec) -> Vec<String> {
    driver(spec.backend).map_or_else(|_| Vec::new(), |driver| driver.summary(spec))
}

/// Begins to bring up a guest, so that the rest can be prepared meanwhile.
pub(crate) fn begin(
    spec: &SandboxSpec,
    image: &GuestImage,
    state_dir: &Path,
) -> Result<Begun, Fault> {
    driver(spec.backend)?.begin(spec, image, state_dir)
}

/// Brings a guest up behind the backend the spec names.
pub(crate) fn create(cx: &CreateCx<'_>, begun: Begun) -> Result<GuestStream, Fault> {
    let carried = driver(cx.spec.backend)?.create(cx, begun)?;
    check_required(cx.spec, &carried)?;
    Ok(carried)
}

/// What would be done to start a sandbox, in plain words, without doing it.
///
/// # Errors
/// As starting it would, as far as that can be known beforehand.
pub fn explain(spec: &SandboxSpec) -> Result<String, Fault> {
    driver(spec.backend)?.explain(spec)
}

/// Refuses a sandbox in which the kernel does not hold a limit marked as required: one that is only
/// watched can be passed for a moment.
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
    // The sandbox was never handed out; whether its end succeeds changes nothing for the caller.
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

/// The limits of a backend that has nothing to hold them with; the wall clock is the owner's.
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

/// Brings a guest up and meets it.
pub(crate) fn bring_up(cx: &CreateCx<'_>, begun: Begun) -> Result<(Link, Box<dyn Owner>), Fault> {
    let carried = create(cx, begun)?;
    match greet(carried.reader, carried.writer, &carried.early, cx.deadline) {
        Ok(greeted) => Ok((Link::new(greeted), carried.owner)),
        Err(mut fault) => {
            // A guest that ended says why; one that hangs is ended first.
            let before = carried.owner.exit_reason();
            let _ = carried.owner.kill();
            if let Some(exit_reason) = before {
                fault.message = format!("{}; {exit_reason}", fault.message);
            }
            Err(fault)
        }
    }
}
