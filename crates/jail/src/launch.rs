//! The host's half of a start: runs the guest program as stage 0, hands it the plan, and waits
//! until the sandbox has checked itself.

use crate::counters::Counters;
use crate::plan::Plan;
use crate::stage0::mountinfo;
use crate::stage0::{
    Admission, FailedStep, Group, HOST_NETWORK, OWN_GROUP, OWN_NETWORK, ParentPlan, Report,
    SandboxNamespaces, SelfTest,
};
use crate::sys::starter::StartedProgram;
use crate::{channel, program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::Shutdown;
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions};
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A sandbox that has checked itself.
#[derive(Debug)]
pub struct LaunchedSandbox {
    /// Socket to the guest; the next byte on it belongs to the wire protocol.
    pub link: OwnedFd,
    /// The first process of the sandbox.
    pub init: Init,
    /// What it found when it checked itself.
    pub self_test: SelfTest,
    /// Walls that could be built only in part.
    pub degraded: Vec<String>,
    /// The directory of its writable layers, if they are in memory; they live as long as it is open.
    pub layers: Option<OwnedFd>,
    /// What counts its memory, if the plan asks for that.
    pub counters: Option<Counters>,
    /// The sockets of its way out, if the plan has one: where questions for names arrive, then unbound stream
    /// sockets.
    pub egress: Vec<OwnedFd>,
}

/// What stage 0 has said until the sandbox was ready.
struct Stage0Report {
    self_test: SelfTest,
    degraded: Vec<String>,
    layers: Option<OwnedFd>,
    counters: Option<Counters>,
    egress: Vec<OwnedFd>,
}

/// The first process of a sandbox, a child of this process. Its end is the end of everything in
/// the sandbox's pid namespace.
#[derive(Debug)]
pub struct Init {
    /// Pid as the host sees it.
    pub pid: i32,
    pidfd: OwnedFd,
    /// Kept for an exchange of its layers. They keep the mounts alive, so they go when it has ended.
    spaces: Mutex<Option<SandboxNamespaces>>,
}

impl Init {
    /// Kills the whole sandbox and waits until it is gone. Idempotent.
    ///
    /// # Errors
    /// Only when the kernel refuses, which it has no reason to.
    pub fn kill(&self) -> io::Result<()> {
        self.end().map(drop)
    }

    /// As [`Self::kill`], but for the mounts of the sandbox, which nobody sees any more: the kernel takes
    /// them apart, in about the time that all the rest took, when what is returned is dropped.
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn end(&self) -> io::Result<Option<OwnedFd>> {
        self.begin_kill()?;
        self.reap()?;
        Ok(self.spaces().take().map(|spaces| spaces.mount))
    }

    /// Kills the whole sandbox and does not wait: taking it apart keeps the kernel busy for a while.
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn begin_kill(&self) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Made from what came with the news of its birth.
    fn new(pid: i32, fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        let pidfd = fds.next()?;
        let spaces = fds
            .next()
            .zip(fds.next())
            .map(|(user, mount)| SandboxNamespaces { user, mount });
        Some(Self {
            pid,
            pidfd,
            spaces: Mutex::new(spaces),
        })
    }

    /// The namespaces of its mounts, until it is known to have ended.
    pub(crate) fn spaces(&self) -> MutexGuard<'_, Option<SandboxNamespaces>> {
        // Nothing is ever half changed under it.
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its end.
    fn reap(&self) -> io::Result<()> {
        loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
            {
                // Somebody else in this process has waited for it already.
                Ok(_) | Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Becomes readable when the sandbox has ended.
    pub fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }
}

/// Why a start failed.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The guest program could not be started at all.
    #[error("cannot start the guest program: {0}")]
    Spawn(#[source] io::Error),
    /// A step inside failed.
    #[error("cannot {}: {}", .0.step, io::Error::from_raw_os_error(.0.errno))]
    Step(FailedStep),
    /// Something on the host's side failed, such as joining a control group.
    #[error("{0}")]
    Host(String),
    /// The guest ended without a word.
    #[error("the sandbox ended while it was being built")]
    Vanished,
    /// It took too long.
    #[error("the sandbox was not ready after {0:?}")]
    TimedOut(Duration),
    /// What came back was not understood.
    #[error("the sandbox's answer is malformed: {0}")]
    Malformed(#[source] io::Error),
}

/// Stage 0, started and waiting for its plan. Dropping it ends it.
///
/// It is started before the plan is ready: loading a program and making namespaces takes as long
/// as preparing layers and control groups, and the two need not wait for each other.
#[derive(Debug)]
pub struct Stage0 {
    process: StartedProgram,
    link: OwnedFd,
    started: Instant,
    /// Whether its child is known.
    has_child: bool,
    /// Whether it waits for [`Stage0::place`].
    awaits_group: bool,
}

impl Stage0 {
    /// Starts the guest program at `program` as stage 0. Nothing inside must be able to write to
    /// that file (CVE-2019-5736).
    ///
    /// `own_network` says whether the plan will give the sandbox a network namespace of its own,
    /// `awaits_group` that [`Self::place`] will be called.
    ///
    /// # Errors
    /// [`LaunchError::Spawn`].
    pub fn spawn(
        program: &Path,
        own_network: bool,
        awaits_group: bool,
    ) -> Result<Self, LaunchError> {
        let started = Instant::now();
        let network = if own_network {
            OWN_NETWORK
        } else {
            HOST_NETWORK
        };
        let words = ["stage0", network, OWN_GROUP];
        let count = if awaits_group { 3 } else { 2 };
        let (process, link) =
            program::start(program, &words[..count]).map_err(LaunchError::Spawn)?;
        Ok(Self {
            process,
            link,
            started,
            has_child: false,
            awaits_group,
        })
    }

    /// Has the sandbox be born in the control group whose directory of version 2 this is, where the kernel
    /// allows it. Does nothing unless that is waited for.
    ///
    /// # Errors
    /// [`LaunchError::Spawn`].
    pub fn place(&self, group: Option<BorrowedFd<'_>>) -> Result<(), LaunchError> {
        if !self.awaits_group {
            return Ok(());
        }
        let fds: Vec<_> = group.into_iter().collect();
        channel::send(&self.link, &Group, &fds)
            .map_err(|error| LaunchError::Spawn(self.process.failure().unwrap_or(error)))
    }

    /// Hands over the plan, by which the sandbox is built while the caller goes on. What it is made of must
    /// be there.
    ///
    /// # Errors
    /// [`LaunchError`], as far as it is known by now.
    pub fn hand_over(&self, plan: &Plan) -> Result<(), LaunchError> {
        let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
            .map_err(|errno| LaunchError::Spawn(errno.into()))?;
        let outside = ParentPlan {
            identity: plan.identity.clone(),
            sources: plan.sources.clone(),
        };
        let sent = channel::send(&self.link, &outside, &[])
            .and_then(|()| channel::send(&self.link, plan, &[own.as_fd()]));
        unless_gone(sent)
    }

    /// Waits until the sandbox has checked itself, at most `deadline` from the start of stage 0.
    ///
    /// Precondition: [`Self::hand_over`]. `counts_memory` says whether [`LaunchedSandbox::counters`] are wanted.
    /// `entrances` are files to which the sandbox's first process writes `0` before there are others, to put
    /// itself and all it becomes under limits ([`crate::cgroup::Cgroup::entrances`]). `admit` is called with the pid
    /// of the sandbox's first process as soon as that exists, unless it was born in its group
    /// ([`Self::place`]), to move it there from outside; the process goes on building meanwhile, but
    /// nothing of the caller's runs inside before it has returned.
    ///
    /// # Errors
    /// [`LaunchError`]; whatever was started is gone again.
    pub fn run(
        mut self,
        counts_memory: bool,
        deadline: Duration,
        entrances: &[OwnedFd],
        admit: impl FnOnce(i32) -> Result<(), String>,
    ) -> Result<LaunchedSandbox, LaunchError> {
        let mut init = None;
        let fds: Vec<_> = entrances.iter().map(AsFd::as_fd).collect();
        let sent = channel::send(&self.link, &Admission { counts_memory }, &fds);
        let built = unless_gone(sent)
            .and_then(|()| await_ready(&self.link, self.started, deadline, admit, &mut init));
        self.has_child = init.is_some();
        match built {
            Ok(Stage0Report {
                self_test,
                degraded,
                layers,
                counters,
                egress,
            }) => {
                let init = init.ok_or(LaunchError::Vanished)?;
                let link = self.link.try_clone().map_err(LaunchError::Malformed)?;
                Ok(LaunchedSandbox {
                    link,
                    init,
                    self_test,
                    degraded,
                    layers,
                    counters,
                    egress,
                })
            }
            Err(error) => {
                if let Some(init) = init {
                    let _ = init.kill();
                }
                Err(match (error, self.process.failure()) {
                    (LaunchError::Vanished, Some(failure)) => LaunchError::Spawn(failure),
                    (error, _) => error,
                })
            }
        }
    }
}

/// What was sent to a stage 0 that has ended is of no interest: what it said before is worth more.
fn unless_gone(sent: io::Result<()>) -> Result<(), LaunchError> {
    match sent {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            ) =>
        {
            Ok(())
        }
        // It waits for something that will never come.
        sent => sent.map_err(LaunchError::Spawn),
    }
}

impl Stage0 {
    /// Ends the child of which nothing was heard yet. It is a child of this process, and nobody else
    /// would wait for it. Gives the step that failed, if there is no child for that reason.
    fn end_child(&self) -> Option<FailedStep> {
        const PATIENCE: Duration = Duration::from_secs(2);
        // Without a plan to come stage 0 says what it has done and ends.
        let _ = rustix::net::shutdown(&self.link, Shutdown::Write);
        let begun = Instant::now();
        while wait_readable(&self.link, begun, PATIENCE).is_ok() {
            match channel::receive::<Report>(&self.link) {
                Ok(Some((Report::Born { pid, .. }, fds))) => {
                    if let Some(init) = Init::new(pid, fds) {
                        let _ = init.kill();
                    }
                    return None;
                }
                Ok(Some((Report::Broken(step), _))) => return Some(step),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
        None
    }

    /// Ends it, since something else has failed. Gives the step that it could not do itself, if there was one.
    pub fn give_up(mut self) -> Option<FailedStep> {
        self.has_child = true;
        self.end_child()
    }
}

impl Drop for Stage0 {
    fn drop(&mut self) {
        if !self.has_child {
            let _ = self.end_child();
        }
    }
}

fn await_ready(
    link: &OwnedFd,
    started: Instant,
    deadline: Duration,
    admit: impl FnOnce(i32) -> Result<(), String>,
    init: &mut Option<Init>,
) -> Result<Stage0Report, LaunchError> {
    let mut admit = Some(admit);
    let mut degraded = Vec::new();
    let mut layers = None;
    let mut counters = None;
    let mut egress = Vec::new();
    let mut mounts = Vec::new();
    loop {
        wait_readable(link, started, deadline)?;
        // TRUST: until `Ready` the other end runs our own code; lengths are bounded all the same.
        match channel::receive::<Report>(link) {
            Ok(Some((Report::Born { pid, is_in_group }, fds))) => {
                *init = Some(Init::new(pid, fds).ok_or(LaunchError::Vanished)?);
                if !is_in_group && let Some(admit) = admit.take() {
                    admit(pid).map_err(LaunchError::Host)?;
                }
            }
            Ok(Some((Report::Degraded(note), _))) => degraded.push(note),
            Ok(Some((Report::Layers, fds))) => layers = fds.into_iter().next(),
            Ok(Some((Report::Egress, fds))) => egress = fds,
            Ok(Some((Report::Counters, fds))) => counters = Counters::new(fds),
            // Nothing is mounted after this. What cannot be read leaves the list without what was planned.
            Ok(Some((Report::Mounts, fds))) => {
                let table = fds.into_iter().next().ok_or(LaunchError::Vanished)?;
                mounts = mountinfo::read_table(table).map_err(|errno| {
                    LaunchError::Step(FailedStep::new("understand the list of mounts", errno))
                })?;
            }
            Ok(Some((Report::Ready(mut self_test), _))) => {
                self_test.observed.mounts = mounts;
                return Ok(Stage0Report {
                    self_test: *self_test,
                    degraded,
                    layers,
                    counters,
                    egress,
                });
            }
            Ok(Some((Report::Broken(broken), _))) => return Err(LaunchError::Step(broken)),
            Ok(None) => return Err(LaunchError::Vanished),
            Err(error) => return Err(LaunchError::Malformed(error)),
        }
    }
}

/// Waits for one answer of a process that was started at `started`.
pub(crate) fn receive_answer<T: DeserializeOwned>(
    process: &StartedProgram,
    link: &OwnedFd,
    started: Instant,
    deadline: Duration,
) -> Result<T, LaunchError> {
    wait_readable(link, started, deadline)?;
    match channel::receive::<T>(link) {
        Ok(Some((answer, _))) => Ok(answer),
        Ok(None) => Err(process
            .failure()
            .map_or(LaunchError::Vanished, LaunchError::Spawn)),
        Err(error) => Err(LaunchError::Malformed(error)),
    }
}

pub(crate) fn wait_readable(
    link: &OwnedFd,
    started: Instant,
    deadline: Duration,
) -> Result<(), LaunchError> {
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(LaunchError::TimedOut(deadline));
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(link, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(LaunchError::Malformed(errno.into())),
        }
    }
}
