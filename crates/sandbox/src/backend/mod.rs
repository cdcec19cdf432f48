//! Backends: what stands behind a sandbox. Each gives one byte stream to a guest and an owner that
//! knows how to report on it and how to end it; nothing else of a sandbox differs between them.

mod bootstrap;
mod command;
mod host;
mod native;
mod words;

pub(crate) use native::{Layering, kill_left_group, sweep, sweep_base};

use crate::breach::LimitBreach;
use crate::link::{Link, greet};
use crate::process::ProcessRef;
use crate::{Backend, CacheKeeping, GuestImage, LimitFact, Name, Report, SandboxSpec};
use glovebox_egress::{Control, ProxyHandle};
use glovebox_jail::cgroup::GroupFreezer;
use glovebox_jail::launch::Stage0;
use glovebox_jail::plan::{CheckpointLayer, FrozenCache};
use glovebox_jail::spec::{LimitKind, LimitState};
use glovebox_proto::{Code, Denial, Fault, Setting};
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// What a backend is given.
#[derive(Debug)]
pub(crate) struct CreateCx<'a> {
    /// What is wanted.
    pub(crate) spec: &'a SandboxSpec,
    /// The sandbox's name.
    pub(crate) name: &'a Name,
    /// The sandbox's own directory. It may hold the layers of an earlier life.
    pub(crate) dir: &'a Path,
    /// The state directory, for things sandboxes share.
    pub(crate) state_dir: &'a Path,
    /// What checkpoints froze, newest first.
    pub(crate) frozen: Vec<CheckpointLayer>,
    /// Directory of the git seed below them.
    pub(crate) seed: Option<PathBuf>,
    /// What earlier sandboxes of the project left in caches, newest first.
    pub(crate) caches: Vec<FrozenCache>,
    /// What becomes of what is written to caches.
    pub(crate) cache_keeping: CacheKeeping,
    /// The leased slot: no other live sandbox of this state directory has it.
    pub(crate) slot: u32,
    /// The guest.
    pub(crate) image: &'a GuestImage,
    /// The rules, the log and the accounts of the network, where an earlier guest of this life had them.
    pub(crate) egress: Option<Arc<Control>>,
    /// When coming up must be done.
    pub(crate) deadline: Instant,
}

/// What a backend gives: a stream whose peer is a guest about to introduce itself.
#[derive(Debug)]
pub(crate) struct GuestStream {
    /// Frames from the guest.
    pub(crate) reader: OwnedFd,
    /// Frames to the guest.
    pub(crate) writer: OwnedFd,
    /// Bytes of the guest that were read already.
    pub(crate) early: Vec<u8>,
    /// Who ends it.
    pub(crate) owner: Box<dyn Owner>,
}

impl GuestStream {
    pub(crate) fn new(reader: OwnedFd, writer: OwnedFd, owner: Box<dyn Owner>) -> Self {
        Self {
            reader,
            writer,
            early: Vec::new(),
            owner,
        }
    }
}

/// The one who answers for a sandbox. Dropping it must leave nothing running.
pub(crate) trait Owner: Send + Sync + Debug {
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

    /// Ends all processes; what they wrote can still be collected.
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
pub(crate) struct ExchangeCx<'a> {
    /// The guest.
    pub(crate) image: &'a GuestImage,
    /// What is to be frozen then, newest first. Layers that are about to be frozen stand where they
    /// are now.
    pub(crate) frozen: Vec<CheckpointLayer>,
    /// Directory of the git seed below them.
    pub(crate) seed: Option<PathBuf>,
    /// The parts that are exchanged.
    pub(crate) parts: &'a [&'static str],
}

/// The part of a guest's coming up that needs to know little and takes long. Dropping it undoes it.
#[derive(Debug, Default)]
pub(crate) struct StartingGuest(Option<Stage0>);

/// Begins to bring up a guest, so that the rest can be prepared meanwhile.
pub(crate) fn begin(
    spec: &SandboxSpec,
    image: &GuestImage,
    state_dir: &Path,
) -> Result<StartingGuest, Fault> {
    match &spec.backend {
        Backend::Native => {
            native::begin(&spec.jail, image, state_dir).map(|begun| StartingGuest(Some(begun)))
        }
        Backend::Host | Backend::Command { .. } => Ok(StartingGuest::default()),
    }
}

/// Brings a guest up behind the backend the spec names.
pub(crate) fn create(cx: &CreateCx<'_>, begun: StartingGuest) -> Result<GuestStream, Fault> {
    let carried = match &cx.spec.backend {
        Backend::Native => native::create(cx, begun.0),
        Backend::Host => host::create(cx),
        Backend::Command { carrier } => command::create(cx, carrier),
    }?;
    check_required(cx.spec, &carried)?;
    Ok(carried)
}

/// What would be done to start a sandbox, in plain words, without doing it.
///
/// # Errors
/// As starting it would, as far as that can be known beforehand.
pub fn explain(spec: &SandboxSpec) -> Result<String, Fault> {
    match &spec.backend {
        Backend::Native => native::explain(spec),
        Backend::Host => Ok("an ordinary process of the caller; nothing is isolated\n".to_owned()),
        Backend::Command { carrier } => {
            let words: Vec<_> = carrier.iter().map(|word| word.to_string_lossy()).collect();
            Ok(format!(
                "the guest at the other end of `{}`; that machine decides what isolates it\n",
                words.join(" ").escape_debug()
            ))
        }
    }
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
fn unheld_limits(spec: &SandboxSpec, why: &str) -> Vec<LimitFact> {
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
pub(crate) fn bring_up(
    cx: &CreateCx<'_>,
    begun: StartingGuest,
) -> Result<(Link, Box<dyn Owner>), Fault> {
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
