//! Handle of one live sandbox: sends requests and returns replies.
//!
//! The sandbox is owned by this process, or by a supervisor of which this process is a client. For
//! callers the two differ only in what dropping the handle does: dropping an owned sandbox ends it
//! and removes its files; dropping a client's handle closes a connection. The most frequent
//! requests have methods of their own in `commands` and `files`.

mod addresses;
mod commands;
pub(crate) mod denials;
mod files;
pub(crate) mod frozen;
pub(crate) mod frozen_commands;
mod keeping;
mod not_shown;
mod output_words;
mod owners;
pub(crate) mod ports;
pub(crate) mod stream;
pub(crate) mod wall_clock;

pub use commands::CommandOutput;

use crate::applied::{ProjectChange, read_changes};
use crate::backend::Owner;
use crate::breach::LimitBreach;
use crate::cache::KeptCaches;
use crate::checkpoint::{self, workspace};
use crate::control::network::{self, NetworkOrder};
use crate::control::{self, Order};
use crate::handle::frozen::{FrozenKind, FrozenSandbox};
use crate::handle::stream::Stream;
use crate::handle::wall_clock::WallClockTimer;
use crate::lifecycle::termination;
use crate::link::Incoming;
use crate::link::{Link, WaitFailure};
use crate::link_meter::LinkStats;
use crate::process::freeze::Freezer;
use crate::report::REPORT_FILE;
use crate::state::cleanup::CleanupWorker;
use crate::state::layout::Layout;
use crate::state::sandbox_dir::{SandboxDir, read_json};
use crate::state::slot::Slot;
use crate::{Backend, Name, Report, WorkspaceLayers};
use glovebox_egress::{Control, RuleInForce, TrafficStats};
use glovebox_proto::{Class, Code, Denial, EgressReason, ExitReport, Facts, Fault, Reply, Request};
use serde_bytes::ByteBuf;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Facts about a sandbox that are known without asking it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxInfo {
    /// Name of the sandbox.
    pub name: Name,
    /// Backend of the sandbox.
    pub backend: Backend,
    /// Time of creation, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
}

/// Time for a reply that needs no work, added to the time that the request itself allows.
const REPLY_SLACK: Duration = Duration::from_secs(30);
/// Time for a reply about files; disks can be slow.
const FILE_WAIT: Duration = Duration::from_mins(5);

/// Time for a freeze; other clients may hold the sandbox's files.
const FREEZE_WAIT: Duration = Duration::from_mins(1);

/// Time for a stop, which writes files back first.
const STOP_WAIT: Duration = Duration::from_secs(30);
/// Interval of checks whether the sandbox has stopped.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A live sandbox. Share it by reference or `Arc` between threads.
#[derive(Debug)]
pub struct Sandbox {
    core: Arc<SandboxCore>,
    info: SandboxInfo,
    dir: PathBuf,
    layout: Layout,
    owned: Option<OwnedSandbox>,
}

/// Parts of a sandbox that only its owner has.
#[derive(Debug)]
pub(crate) struct OwnedSandbox {
    pub(crate) sandbox_dir: SandboxDir,
    pub(crate) slot: Slot,
    pub(crate) wall_clock: Option<WallClockTimer>,
    /// Package caches to keep when the sandbox ends.
    pub(crate) caches: Option<KeptCaches>,
    pub(crate) cleanup: Arc<CleanupWorker>,
}

/// Link of a sandbox and, if this process owns the sandbox, its owner. Open streams share it.
#[derive(Debug)]
pub(crate) struct SandboxCore {
    pub(crate) link: Link,
    owner: Option<Box<dyn Owner>>,
    /// Time of the start, from the request to the guest's greeting.
    came_up_in: Duration,
    limits_seen: LimitCounts,
    breach: OnceLock<LimitBreach>,
    freezer: OnceLock<Arc<Freezer>>,
}

impl SandboxCore {
    /// Creates the core of a sandbox that this process owns. `came_up_in` is the duration of its
    /// start, for the report.
    pub(crate) fn owned(link: Link, owner: Box<dyn Owner>, came_up_in: Duration) -> Self {
        Self {
            limits_seen: LimitCounts::of(owner.as_ref()),
            owner: Some(owner),
            came_up_in,
            ..Self::foreign(link)
        }
    }

    /// Creates the core of a sandbox that a supervisor owns.
    pub(crate) fn foreign(link: Link) -> Self {
        Self {
            link,
            owner: None,
            came_up_in: Duration::ZERO,
            limits_seen: LimitCounts::default(),
            breach: OnceLock::new(),
            freezer: OnceLock::new(),
        }
    }

    /// Adds to a reply the facts that only this side knows.
    pub(crate) fn finish(&self, mut reply: Result<Reply, Fault>) -> Result<Reply, Fault> {
        if let (Ok(Reply::Exited(report)), Some(owner)) = (&mut reply, &self.owner) {
            let news = self.limits_seen.look(owner.as_ref());
            complete(report, news, owner.as_ref());
        }
        reply.map_err(|fault| self.explain(fault))
    }

    /// Adds to a fault of a lost link the reason for the loss, if it is known.
    pub(crate) fn explain(&self, mut fault: Fault) -> Fault {
        if fault.class != Class::Lost {
            return fault;
        }
        let breach = self
            .breach
            .get()
            .cloned()
            .or_else(|| self.owner.as_ref()?.limit_breach());
        if let Some(breach) = breach {
            let ended = breach.into_fault();
            fault.message = ended.message;
            fault.remedy = ended.remedy.or(fault.remedy);
        } else if let Some(exit_reason) = self.owner.as_ref().and_then(|owner| owner.exit_reason())
        {
            fault.message = format!("{}; {exit_reason}", fault.message);
        }
        fault
    }

    /// Ends the sandbox and records the limit that was exceeded.
    pub(crate) fn end_for(&self, breach: LimitBreach) {
        // Set before the end, so that the failing requests already name the reason. A second breach
        // does not replace the first.
        let _ = self.breach.set(breach);
        if let Some(owner) = &self.owner {
            // The threads that wait learn of the end through the link, even if this fails.
            let _ = owner.halt();
        }
    }

    /// Sends a request and waits for its reply until `deadline`. `None` waits without limit.
    pub(crate) fn ask(&self, request: &Request, deadline: Option<Instant>) -> Result<Reply, Fault> {
        let id = self
            .link
            .open(request)
            .map_err(|fault| self.explain(fault))?;
        let reply = loop {
            match self.link.recv(id, deadline) {
                Ok(Incoming::Reply(reply)) => break self.finish(reply),
                Ok(Incoming::Data { .. }) => {}
                Err(WaitFailure::TimedOut) => {
                    let fault = Fault::failed(Code::TimedOut, "the guest did not answer in time");
                    break Err(
                        fault.remedy("`glovebox kill NAME` ends a sandbox that does not answer")
                    );
                }
                Err(WaitFailure::Lost(fault)) => break Err(self.explain(fault)),
            }
        };
        self.link.release(id);
        reply
    }

    /// Returns the isolation report of a sandbox that this process owns. `None` for a sandbox of a
    /// supervisor.
    pub(crate) fn report(&self) -> Result<Option<Report>, Fault> {
        let Some(owner) = &self.owner else {
            return Ok(None);
        };
        let mut report = owner.report();
        if report.facts.is_null() {
            match self.ask(&Request::Facts, Instant::now().checked_add(REPLY_SLACK))? {
                Reply::Facts(facts) => report.set_facts(&facts),
                _ => return Err(unexpected("facts")),
            }
        }
        report.link = owner.link_meter().map(|meter| meter.stats());
        let came_up_us = self.came_up_in.as_micros() as u64;
        report.timings_us.push(("ready".to_owned(), came_up_us));
        Ok(Some(report))
    }

    pub(crate) fn into_parts(self) -> (Link, Option<Box<dyn Owner>>) {
        (self.link, self.owner)
    }
}

/// Adds to the report of a command's exit the facts that only the owner knows.
pub(crate) fn complete(report: &mut ExitReport, news: LimitNews, owner: &dyn Owner) {
    (report.oom, report.fork_refused) = (news.oom, news.fork_refused);
    // TRUST: only this side can tell which hosts and secrets were refused, so such entries from the
    // guest are dropped, except for addresses.
    let is_told_inside = |denial: &Denial| match denial {
        Denial::Egress { reason, .. } => *reason == EgressReason::Address,
        Denial::Secret { .. } => false,
        _ => true,
    };
    report.denials.retain(is_told_inside);
    report
        .denials
        .extend(owner.refused_hosts(report.span_ns(), report.had_company));
}

/// Counter values at the previous sample.
#[derive(Debug, Default)]
pub(crate) struct LimitCounts {
    oom_kills: AtomicU64,
    forks_refused: AtomicU64,
}

/// Limits that have acted since the previous sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitNews {
    pub(crate) oom: bool,
    pub(crate) fork_refused: bool,
}

impl LimitCounts {
    /// Takes the first sample.
    pub(crate) fn of(owner: &dyn Owner) -> Self {
        Self {
            oom_kills: AtomicU64::new(owner.oom_kills()),
            forks_refused: AtomicU64::new(owner.forks_refused()),
        }
    }

    /// Compares with the previous sample and replaces it.
    pub(crate) fn look(&self, owner: &dyn Owner) -> LimitNews {
        let has_grown = |seen: &AtomicU64, now: u64| seen.fetch_max(now, Ordering::Relaxed) < now;
        LimitNews {
            oom: has_grown(&self.oom_kills, owner.oom_kills()),
            fork_refused: has_grown(&self.forks_refused, owner.forks_refused()),
        }
    }
}

/// Returns the time that a reply may take unless the caller sets another. `None` means no limit.
fn patience(request: &Request) -> Option<Duration> {
    let slack = |ms: u64| Some(REPLY_SLACK + Duration::from_millis(ms));
    match request {
        Request::Exec(exec) if exec.detach => slack(0),
        Request::Exec(exec) => exec.timeout_ms.and_then(|ms| slack(ms + exec.grace_ms)),
        Request::JobRead { wait_ms, .. } => slack(*wait_ms),
        Request::JobWait { wait_ms, .. } => wait_ms.and_then(slack),
        Request::JobKill { grace_ms, .. } => slack(*grace_ms),
        Request::JobAttach { .. }
        | Request::JobStream { .. }
        | Request::FileRead { .. }
        | Request::FileWrite { .. }
        | Request::TreeScan { .. }
        | Request::TreePut { .. }
        | Request::TreeGet { .. }
        | Request::Connect { .. }
        | Request::Hold => None,
        Request::Ports
        | Request::Stat { .. }
        | Request::List { .. }
        | Request::Mkdir { .. }
        | Request::Remove { .. }
        | Request::Rename { .. }
        | Request::ReadLink { .. }
        | Request::Edit { .. } => Some(FILE_WAIT),
        Request::Glob(glob) => slack(glob.deadline_ms),
        Request::Grep(grep) => slack(grep.deadline_ms),
        _ => slack(0),
    }
}

fn unexpected(wanted: &str) -> Fault {
    Fault::lost(
        Code::Protocol,
        format!("the guest answered something else than {wanted}"),
    )
}

impl Sandbox {
    pub(crate) fn new(
        core: Arc<SandboxCore>,
        info: SandboxInfo,
        dir: PathBuf,
        layout: Layout,
        owned: Option<OwnedSandbox>,
    ) -> Self {
        Self {
            core,
            info,
            dir,
            layout,
            owned,
        }
    }

    /// Returns the facts that are known without asking the sandbox.
    pub fn info(&self) -> &SandboxInfo {
        &self.info
    }

    /// Returns the state directory of the sandbox.
    pub fn state_dir(&self) -> &Path {
        self.layout.state()
    }

    /// Returns the sandbox's own directory on this machine. A native sandbox's layers are below it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the changes to the project that other sandboxes applied while this one ran, oldest
    /// first, at most 20.
    pub fn project_changes(&self) -> Vec<ProjectChange> {
        read_changes(&self.dir)
    }

    /// Sends a request and waits for its reply, for the time that the request itself allows plus a
    /// margin. Stream data of the request is discarded; use [`Self::open`] to receive it.
    ///
    /// # Errors
    /// The guest's own faults; `timed-out` if no reply came in time; the loss of the link.
    pub fn call(&self, request: Request) -> Result<Reply, Fault> {
        let wait = patience(&request);
        self.call_for(request, wait)
    }

    /// As [`Self::call`], with the caller's time limit. `None` waits without limit.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a request is used up; callers build it in place"
    )]
    pub fn call_for(&self, request: Request, wait: Option<Duration>) -> Result<Reply, Fault> {
        let deadline = wait.and_then(|wait| Instant::now().checked_add(wait));
        self.core.ask(&request, deadline)
    }

    /// Sends a request and returns a stream for its data and its reply.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a request is used up; callers build it in place"
    )]
    pub fn open(&self, request: Request) -> Result<Stream, Fault> {
        let deadline = match &request {
            Request::Exec(exec) if !exec.detach => exec.timeout_ms.and_then(|timeout_ms| {
                let wait = Duration::from_millis(timeout_ms.saturating_add(exec.grace_ms));
                Instant::now().checked_add(wait)
            }),
            _ => None,
        };
        let id = self
            .core
            .link
            .open(&request)
            .map_err(|fault| self.core.explain(fault))?;
        Ok(Stream::new(Arc::clone(&self.core), id, deadline))
    }

    /// Measures the time of one round trip.
    pub fn ping(&self) -> Result<Duration, Fault> {
        let start = Instant::now();
        match self.call(Request::Ping(ByteBuf::new()))? {
            Reply::Pong(bytes) if bytes.is_empty() => Ok(start.elapsed()),
            _ => Err(unexpected("the ping")),
        }
    }

    /// Returns the facts about the inside that the guest reports.
    pub fn facts(&self) -> Result<Facts, Fault> {
        match self.call(Request::Facts)? {
            Reply::Facts(facts) => Ok(facts),
            _ => Err(unexpected("facts")),
        }
    }

    /// Returns the isolation report.
    pub fn report(&self) -> Result<Report, Fault> {
        if let Some(report) = self.core.report()? {
            return Ok(report);
        }
        let mut report: Report = read_json(&self.dir.join(REPORT_FILE))?;
        report.link = self.link_stats()?;
        Ok(report)
    }

    /// Returns the counters of the link to a guest on another machine. `None` if its backend has no
    /// link that outlives broken connections.
    fn link_stats(&self) -> Result<Option<LinkStats>, Fault> {
        if !self.info.backend.capabilities().can_resume {
            return Ok(None);
        }
        let (answer, _) = control::order(&self.dir, &Order::Link, REPLY_SLACK)?;
        network::read(&answer)
    }

    /// Returns the location of the workspace's layers on this machine.
    ///
    /// # Errors
    /// `unsupported` if the workspace has no layers that are visible from outside.
    pub fn workspace_layers(&self) -> Result<WorkspaceLayers, Fault> {
        workspace::layers(&self.layout, &self.dir, || match &self.core.owner {
            Some(owner) => owner
                .memory_layers()
                .ok_or_else(workspace::gone_with_memory),
            None => control::layers(&self.dir),
        })
    }

    /// Opens hosts (rules and names of presets) until the sandbox ends, in a sandbox with
    /// [`Net::Egress`](glovebox_spec::Net::Egress). Returns the rules that were added.
    ///
    /// # Errors
    /// `unsupported` for a sandbox with another network; `invalid-argument` for a text that is not
    /// a rule or cannot be opened while a sandbox runs.
    pub fn allow_hosts(&self, words: &[String]) -> Result<Vec<RuleInForce>, Fault> {
        if let Some(owner) = &self.core.owner {
            let proxy = owner.egress().ok_or_else(network::no_filtered_network)?;
            return network::allow(&proxy, words, None);
        }
        let order = Order::Network(NetworkOrder::allow(words, None)?);
        let (answer, _) = control::order(&self.dir, &order, REPLY_SLACK)?;
        network::read(&answer)
    }

    /// Closes hosts that [`Self::allow_hosts`] opened. Existing connections stay open.
    ///
    /// # Errors
    /// As [`Self::allow_hosts`].
    pub fn close_hosts(&self, words: &[String]) -> Result<(), Fault> {
        // Adding a rule again replaces its end. A lifetime of zero ends it now.
        let lifetime = Some(Duration::ZERO);
        if let Some(owner) = &self.core.owner {
            let proxy = owner.egress().ok_or_else(network::no_filtered_network)?;
            return network::allow(&proxy, words, lifetime).map(drop);
        }
        let order = Order::Network(NetworkOrder::allow(words, lifetime)?);
        control::order(&self.dir, &order, REPLY_SLACK).map(drop)
    }

    /// Returns the rules in force. Empty for a sandbox without an egress proxy.
    ///
    /// # Errors
    /// The errors of reaching its supervisor.
    pub fn network_rules(&self) -> Result<Vec<RuleInForce>, Fault> {
        if let Some(owner) = &self.core.owner {
            let proxy = owner.egress();
            return Ok(proxy.map_or_else(Vec::new, |proxy| proxy.control().rules()));
        }
        let mut rules: Vec<RuleInForce> = Vec::new();
        loop {
            let skip = rules.len();
            let order = Order::Network(NetworkOrder::Rules { skip });
            let page: Vec<RuleInForce> = match control::order(&self.dir, &order, REPLY_SLACK) {
                Ok((answer, _)) => network::read(&answer)?,
                Err(fault) if fault.code == Code::Unsupported => return Ok(rules),
                Err(fault) => return Err(fault),
            };
            if page.is_empty() {
                return Ok(rules);
            }
            rules.extend(page);
        }
    }

    /// Returns the traffic that the egress proxy relayed. `None` for a sandbox with another
    /// network.
    ///
    /// # Errors
    /// The errors of reaching its supervisor.
    pub fn network_stats(&self) -> Result<Option<TrafficStats>, Fault> {
        if let Some(owner) = &self.core.owner {
            return Ok(owner.egress().map(|proxy| proxy.control().stats()));
        }
        let order = Order::Network(NetworkOrder::Stats);
        match control::order(&self.dir, &order, REPLY_SLACK) {
            Ok((answer, _)) => network::read(&answer).map(Some),
            Err(fault) if fault.code == Code::Unsupported => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Returns the rules, the log and the accounts of the egress proxy. They outlive the sandbox,
    /// and are complete after it was dropped. `None` unless this process owns the sandbox and it
    /// has an egress proxy.
    pub fn network_control(&self) -> Option<Arc<Control>> {
        let proxy = self.core.owner.as_ref()?.egress()?;
        Some(Arc::clone(proxy.control()))
    }

    /// Freezes every process of a native sandbox until the result is dropped or this process ends.
    /// The guest is frozen as well, so requests wait meanwhile.
    ///
    /// # Errors
    /// `unsupported` for other backends; `busy` if the processes could not be frozen.
    pub fn freeze(&self) -> Result<FrozenSandbox, Fault> {
        if !self.info.backend.capabilities().can_freeze {
            return Err(Fault::failed(
                Code::Unsupported,
                "only the processes of a native sandbox can be held still",
            ));
        }
        let kind = if let Some(owner) = &self.core.owner {
            let new = || Freezer::new(owner.process(), owner.group_freezer());
            FrozenKind::Own {
                hold: self.core.freezer.get_or_init(new).freeze()?,
            }
        } else {
            let (_, held) = control::order(&self.dir, &Order::Freeze, FREEZE_WAIT)?;
            FrozenKind::Remote(held)
        };
        Ok(FrozenSandbox { kind })
    }

    /// Ends the sandbox and removes its files; returns when it is gone.
    ///
    /// # Errors
    /// Fails if a process could not be ended or a file could not be removed.
    pub fn destroy(self) -> Result<(), Fault> {
        self.finish().map(drop)
    }

    /// As [`Self::destroy`], and reports on the package caches that were to be kept.
    ///
    /// # Errors
    /// As [`Self::destroy`].
    pub fn finish(mut self) -> Result<ShutdownReport, Fault> {
        match self.owned.take() {
            Some(owned) => end(&self.core, &self.layout, owned),
            None => {
                termination::kill(&self.layout, &self.info.name).map(|_| ShutdownReport::default())
            }
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            // There is no caller to report to. The next sweep removes the remains.
            let _ = end(&self.core, &self.layout, owned);
        }
    }
}

/// Result of ending a sandbox.
#[derive(Debug, Default)]
pub struct ShutdownReport {
    /// Reason for which the package caches could not be kept although the spec asked for it. `None`
    /// if they were kept or were not to be.
    pub lost_caches: Option<Fault>,
}

/// Returns why the sandbox is already broken when it is about to be ended: an exceeded limit or a
/// lost link. `None` if it works.
fn disorder(core: &SandboxCore) -> Option<String> {
    let breach = core.breach.get().cloned();
    let breach = breach.or_else(|| core.owner.as_ref()?.limit_breach());
    breach
        .map(|breach| breach.reason)
        .or_else(|| core.link.lost().map(|fault| fault.message))
}

/// Keeps what an ended sandbox wrote to package caches. A sandbox that was interrupted may have
/// written only half of a file, so with a `disorder` nothing is kept and a fault is returned.
fn keep_caches(
    layout: &Layout,
    sandbox_dir: &SandboxDir,
    caches: Option<KeptCaches>,
    disorder: Option<String>,
) -> Option<Fault> {
    let caches = caches?;
    match disorder {
        None => caches.keep(layout, &sandbox_dir.path).err(),
        Some(_) if !caches.is_writer() => None,
        Some(why) => Some(Fault::failed(
            Code::Cancelled,
            format!("package caches are not kept, because the sandbox did not end in order: {why}"),
        )),
    }
}

fn end(core: &SandboxCore, layout: &Layout, owned: OwnedSandbox) -> Result<ShutdownReport, Fault> {
    let OwnedSandbox {
        sandbox_dir,
        slot,
        wall_clock,
        caches,
        cleanup,
    } = owned;
    // Read before the kill, which itself ends the link.
    let disorder = disorder(core);
    if let Some(owner) = &core.owner {
        owner.begin_kill();
    }
    drop(wall_clock);
    core.link
        .lose(Fault::lost(Code::LinkLost, "the sandbox was destroyed"));
    let killed = core.owner.as_ref().map_or(Ok(()), |owner| {
        owner.end(&mut |mounts| cleanup.close_in_background(mounts))
    });
    if let Err(fault) = killed {
        // Processes may still run. The directory therefore stays for a sweep to find, and the
        // slot's ids are not given to another sandbox while this process lives.
        std::mem::forget(slot);
        return Err(fault);
    }
    // After the kill, so that nothing writes to the caches while they are moved, and before the
    // directory that holds them is removed.
    let lost_caches = keep_caches(layout, &sandbox_dir, caches, disorder);
    checkpoint::seed::discard(layout, &sandbox_dir.path, &cleanup);
    let discarded = sandbox_dir.leave_to(layout, &cleanup);
    // Last, because the files removed above belong to the ids of the slot.
    slot.release();
    discarded.map(|()| ShutdownReport { lost_caches })
}
