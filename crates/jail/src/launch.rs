//! Host side of a start: runs the guest program as stage 0, sends it the plan, and waits until the
//! sandbox has checked itself.

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

/// A sandbox that has been built and has checked itself.
#[derive(Debug)]
pub struct LaunchedSandbox {
    /// Socket to the guest. Its next byte belongs to the wire protocol.
    pub link: OwnedFd,
    /// The first process of the sandbox.
    pub init: Init,
    /// Result of its self-test.
    pub self_test: SelfTest,
    /// Restrictions that could only be applied in part, as texts for the report.
    pub degraded: Vec<String>,
    /// Directory of its writable layers if they are in memory, else `None`. The layers exist as
    /// long as it is open.
    pub layers: Option<OwnedFd>,
    /// Counters of its memory, if [`Stage0::run`] was asked for them.
    pub counters: Option<Counters>,
    /// Sockets of its egress proxy, if the plan has one: the socket that receives DNS queries, then
    /// unbound stream sockets.
    pub egress: Vec<OwnedFd>,
}

/// Messages of stage 0 up to the moment at which the sandbox was ready.
struct Stage0Report {
    self_test: SelfTest,
    degraded: Vec<String>,
    layers: Option<OwnedFd>,
    counters: Option<Counters>,
    egress: Vec<OwnedFd>,
}

/// The first process of a sandbox, a child of this process. When it ends, the kernel kills every
/// process of the sandbox's pid namespace.
#[derive(Debug)]
pub struct Init {
    /// Pid as the host sees it.
    pub pid: i32,
    pidfd: OwnedFd,
    /// Namespaces of its mounts, needed for an exchange of its layers. They keep the mounts alive,
    /// so they are dropped when the process has ended.
    spaces: Mutex<Option<SandboxNamespaces>>,
}

impl Init {
    /// Kills the whole sandbox. Blocks until it is gone. Idempotent.
    ///
    /// # Errors
    /// Only if the kernel refuses, for which there is no known cause.
    pub fn kill(&self) -> io::Result<()> {
        self.end().map(drop)
    }

    /// Does the same as [`Self::kill`], but keeps the sandbox's mounts, which no process sees any
    /// more. The kernel takes them apart when the returned descriptor is dropped, which takes about
    /// as long as all the rest.
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn end(&self) -> io::Result<Option<OwnedFd>> {
        self.begin_kill()?;
        self.reap()?;
        Ok(self.spaces().take().map(|spaces| spaces.mount))
    }

    /// Starts to kill the whole sandbox and does not wait: the kernel needs a while to take it
    /// apart.
    ///
    /// # Errors
    /// As [`Self::kill`].
    pub fn begin_kill(&self) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates the value from the descriptors of [`Report::Born`]. `None` if the pidfd is missing.
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

    /// Returns the namespaces of its mounts. `None` after the process was waited for, or if they
    /// could not be opened.
    pub(crate) fn spaces(&self) -> MutexGuard<'_, Option<SandboxNamespaces>> {
        // The value is replaced as a whole, so it is valid even after a panic.
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until the process has ended.
    fn reap(&self) -> io::Result<()> {
        loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
            {
                // Other code of this process has waited for it already.
                Ok(_) | Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Returns the descriptor that becomes readable when the sandbox has ended.
    pub fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }
}

/// Error of starting a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The guest program could not be started at all.
    #[error("cannot start the guest program: {0}")]
    Spawn(#[source] io::Error),
    /// A step inside the sandbox failed.
    #[error("cannot {}: {}", .0.step, io::Error::from_raw_os_error(.0.errno))]
    Step(FailedStep),
    /// A step on the host failed, such as joining a control group.
    #[error("{0}")]
    Host(String),
    /// The guest ended without a report.
    #[error("the sandbox ended while it was being built")]
    Vanished,
    /// The sandbox was not ready within this time.
    #[error("the sandbox was not ready after {0:?}")]
    TimedOut(Duration),
    /// A message of the guest could not be decoded.
    #[error("the sandbox's answer is malformed: {0}")]
    Malformed(#[source] io::Error),
}

/// Stage 0, started and waiting for its plan. Dropping it ends it.
///
/// It is started before the plan is ready: loading the program and creating the namespaces takes as
/// long as preparing layers and control groups, and neither depends on the other.
#[derive(Debug)]
pub struct Stage0 {
    process: StartedProgram,
    link: OwnedFd,
    started: Instant,
    /// True if its child has reported itself.
    has_child: bool,
    /// True if it waits for [`Stage0::place`].
    awaits_group: bool,
}

impl Stage0 {
    /// Starts the guest program at `program` as stage 0. No process of a sandbox may be able to
    /// write to that file (CVE-2019-5736).
    ///
    /// `own_network` is true if the plan will give the sandbox a network namespace, `awaits_group`
    /// if the caller will call [`Self::place`].
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

    /// Sends stage 0 the directory of the version 2 control group in which it creates the sandbox,
    /// where the kernel allows that. `None` means that there is no such group. Does nothing unless
    /// stage 0 waits for it.
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

    /// Sends the plan. Stage 0 then builds the sandbox while the caller goes on. The sources of the
    /// plan must exist.
    ///
    /// # Errors
    /// [`LaunchError`], if a failure is known by now.
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

    /// Blocks until the sandbox has checked itself, at most until `deadline` after the start of
    /// stage 0.
    ///
    /// Precondition: [`Self::hand_over`]. `counts_memory` requests [`LaunchedSandbox::counters`].
    /// `entrances` are files to which the sandbox's first process writes `0` before it has
    /// children, to put itself and all its descendants under limits
    /// ([`crate::cgroup::Cgroup::entrances`]). `admit` is called with the pid of that process as
    /// soon as it exists, unless it was created inside its group ([`Self::place`]), and moves it
    /// there from outside. The process goes on building meanwhile, but runs no command of the
    /// caller before `admit` has returned.
    ///
    /// # Errors
    /// [`LaunchError`]; every process that was started is gone.
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

/// Ignores the error of sending to a stage 0 that has ended. Its earlier report names the cause.
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
        // Other errors count: stage 0 would wait for a message that never comes.
        sent => sent.map_err(LaunchError::Spawn),
    }
}

impl Stage0 {
    /// Ends the child, which has not reported itself yet. It is a child of this process, so no
    /// other process would wait for it. Returns the step that failed, if there is no child for that
    /// reason.
    fn end_child(&self) -> Option<FailedStep> {
        const PATIENCE: Duration = Duration::from_secs(2);
        // When no plan can come, stage 0 reports the child it has made and ends.
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

    /// Ends stage 0 because of a failure elsewhere. Returns the step that stage 0 itself failed in,
    /// if there was one.
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
            // No mount follows this message. A table that cannot be read fails the start, because
            // the plan could not be compared with it.
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

/// Waits for one reply of a process that was started at `started`.
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
