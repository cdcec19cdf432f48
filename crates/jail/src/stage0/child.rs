//! Stage 0's child: mounts, pivot, restrictions, self-test.

use super::examination::examine;
use super::mounts::{self, DetachedMount, Mounts};
use super::observation::{self, HostProc, LandlockTrial};
use super::{
    AccessRules, Admission, Context as _, FailedStep, GuestHandover, NameServer, ParentMessage,
    ProcessExit, Report, SelfTest, own_network, settings, staging,
};
use crate::bounds::{BOUNDS, Mechanism, SOFT_OPEN_FILES};
use crate::channel;
use crate::identity::{self, Separation};
use crate::landlock;
use crate::plan::{MapWriter, Plan};
use crate::seccomp;
use crate::sys::holder::Network;
use crate::sys::landlock_trial::Trial;
use crate::sys::once;
use crate::sys::unshare::unshare;
use crate::tracing::Tracing;
use glovebox_spec::Net;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// Stack size of the set-up thread, in bytes.
const STACK_BYTES: usize = 128 << 10;

/// Turns this process into the first process of the sandbox. On failure it reports the step and
/// returns the exit code.
pub(super) fn build(
    control: OwnedFd,
    gate: OwnedFd,
    own_network: bool,
    umask: Mode,
) -> Result<GuestHandover, ProcessExit> {
    let network = own_network.then(Network::begin);
    let beside = SetupThread::begin();
    // The socket belongs to the parent until its message. If that does not come, the parent has
    // reported the reason.
    let Ok(go) = receive_go(&gate) else {
        return Err(ProcessExit(1));
    };
    let Ok(Some((plan, fds))) = channel::receive::<Plan>(&control) else {
        return Err(ProcessExit(1));
    };
    let mut fds = fds.into_iter();
    let supervisor = fds.next();
    let plan = Arc::new(plan);
    let built = beside.and_then(|beside| assemble(&control, &gate, go, network, beside, &plan));
    match built {
        Ok(BuiltSandbox {
            landlock,
            names,
            separation,
            self_test,
        }) => {
            drop(gate);
            if channel::send(&control, &Report::Ready(Box::new(self_test.clone())), &[]).is_err() {
                return Err(ProcessExit(1));
            }
            let walls = AccessRules::of(&plan);
            let plan = Arc::unwrap_or_clone(plan);
            Ok(GuestHandover {
                umask,
                link: control,
                supervisor,
                landlock,
                names,
                separation,
                walls,
                env: plan.env,
                cwd: plan.cwd.as_path().as_os_str().as_bytes().to_vec(),
                processors: plan.seal.processors,
                open_files: plan.seal.open_files,
                self_test,
            })
        }
        Err(broken) => {
            let _ = channel::send(&control, &Report::Broken(broken), &[]);
            Err(ProcessExit(1))
        }
    }
}

/// A complete sandbox.
struct BuiltSandbox {
    landlock: Option<OwnedFd>,
    names: Option<NameServer>,
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

/// Waits for the sandbox's control groups, which the host makes during the first mounts. Returns
/// the files for joining them, too.
fn receive_groups(control: &OwnedFd) -> Result<(Admission, Vec<OwnedFd>), FailedStep> {
    channel::receive::<Admission>(control)
        .ok()
        .flatten()
        .ok_or_else(|| FailedStep::new("hear from the host", Errno::PIPE))
}

/// Moves this thread into the sandbox's control groups; its later children start in them.
fn join_groups(entrances: &[OwnedFd]) -> Result<(), FailedStep> {
    let processors = rustix::thread::sched_getaffinity(None);
    for entrance in entrances {
        rustix::io::write(entrance, b"0").cannot("join the sandbox's control group")?;
    }
    // Before Linux 6.2 a thread that joins a `cpuset` group loses the processors that its caller
    // chose (taskset(1)).
    if let Ok(processors) = processors
        && rustix::thread::sched_getaffinity(None) != Ok(processors)
    {
        // The kernel refuses a set without any processor of the group. The group's set then
        // applies.
        let _ = rustix::thread::sched_setaffinity(None, &processors);
    }
    // unshare comes after joining: the groups of this moment become the root of the new namespace.
    unshare(UnshareFlags::NEWCGROUP).cannot("create the sandbox's control-group namespace")
}

/// Gives up the caller's ids, in this thread.
fn take_setup_ids(plan: &Plan) -> Result<(), FailedStep> {
    if plan.identity.writer != MapWriter::Single {
        // With a single id the kernel forbids this, and the caller's groups stay.
        identity::leave_groups().cannot("leave the caller's groups")?;
    }
    if plan.identity.has_root {
        identity::become_setup_root().cannot("become root of the sandbox for its set-up")?;
    }
    Ok(())
}

/// Input of the second thread for its part of the set-up.
struct SetupJob {
    plan: Arc<Plan>,
    sources: Arc<Vec<OwnedFd>>,
    staging: OwnedFd,
    made: SyncSender<Result<DetachedMount, FailedStep>>,
    /// Delivers the root of the sandbox after everything has been mounted in it.
    root: Receiver<OwnedFd>,
}

/// A second thread for set-up work that takes time and depends on nothing else. It is started
/// before the plan arrives, because the start takes time as well, and it has ended before commands
/// run.
struct SetupThread {
    jobs: SyncSender<SetupJob>,
    thread: JoinHandle<Result<landlock::BuiltRuleset, FailedStep>>,
}

impl SetupThread {
    fn begin() -> Result<Self, FailedStep> {
        let (jobs, inbox) = sync_channel::<SetupJob>(1);
        let thread = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || inbox.recv().map_err(|_| given_up())?.work());
        let thread = thread.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
            FailedStep::new("start a thread for the set-up", errno)
        })?;
        Ok(Self { jobs, thread })
    }

    /// Blocks until the thread has ended. Returns its ruleset.
    fn finish(self) -> Result<landlock::BuiltRuleset, FailedStep> {
        self.thread.join().map_err(|_| given_up())?
    }
}

impl SetupJob {
    fn work(self) -> Result<landlock::BuiltRuleset, FailedStep> {
        if let Err(broken) = take_setup_ids(&self.plan) {
            // The first thread waits for a mount and gets the error instead.
            let _ = self.made.send(Err(broken.clone()));
            return Err(broken);
        }
        mounts::make_beside(&self.staging, &self.plan, &self.sources, &self.made);
        drop((self.sources, self.staging));
        let root = self.root.recv().map_err(|_| given_up())?;
        AccessRules::of(&self.plan)
            .build_in(root.as_fd())
            .map_err(|error| {
                FailedStep::new(format!("build the Landlock rules ({error})"), Errno::INVAL)
            })
    }
}

/// Returns the error of a thread whose peer has stopped. The peer's own error names the cause.
fn given_up() -> FailedStep {
    FailedStep::new("finish the set-up", Errno::CANCELED)
}

fn assemble(
    control: &OwnedFd,
    gate: &OwnedFd,
    go: ParentMessage,
    network: Option<Result<Network, Errno>>,
    beside: SetupThread,
    plan: &Arc<Plan>,
) -> Result<BuiltSandbox, FailedStep> {
    let mut clock = Clock {
        started: Instant::now(),
        marks: Vec::new(),
    };
    take_setup_ids(plan)?;
    // A kernel without keyrings has no keys that could be inherited.
    match once::new_session_keyring() {
        Ok(()) | Err(Errno::NOSYS) => {}
        Err(errno) => return Err(FailedStep::new("leave the caller's session keyring", errno)),
    }
    rustix::system::sethostname(plan.hostname.as_bytes()).cannot("set the host name")?;
    // This comes before the first mount. The mounts copied from the host are slaves of the host's
    // (mount_namespaces(7)), so later mounts of the host would appear inside.
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .cannot("detach from the host's mount events")?;

    let mut mounts = Mounts::new(plan)?;
    // The parent has opened these meanwhile.
    let sources = if go.has_sources {
        receive_sources(gate, plan)?
    } else {
        mounts::open_sources(&plan.sources)?
    };
    mounts.place_layers(plan, &sources)?;
    if plan.layers_in_memory() {
        let layers = staging::open(mounts.staging(), "layers")?;
        channel::send(control, &Report::Layers, &[layers.as_fd()])
            .map_err(|_| FailedStep::new("hand the layers over", Errno::PIPE))?;
    }
    let (sender, made) = sync_channel(plan.steps.len());
    let (mounted, root) = sync_channel(1);
    let sources = Arc::new(sources);
    let job = SetupJob {
        plan: Arc::clone(plan),
        sources: Arc::clone(&sources),
        staging: share(mounts.staging())?,
        made: sender,
        root,
    };
    beside.jobs.send(job).map_err(|_| given_up())?;
    let mut groups = None;
    mounts.apply(plan, &sources, &made, |mounts| {
        groups = Some(receive_groups(control)?);
        mounts.show_groups(plan, control)
    })?;
    let (admission, entrances) = groups.ok_or_else(given_up)?;
    drop(sources);
    mounted
        .send(share(mounts.root()?)?)
        .map_err(|_| given_up())?;
    // This comes before `seal`, which gives up the capabilities that the settings need.
    let unset = settings::set_user_namespace(plan.seal.nested)?;
    join_groups(&entrances)?;
    drop(entrances);
    if admission.counts_memory {
        mounts.hand_over_counters(control)?;
    }
    // This comes before the pivot: the process that makes the namespace opens it by the host's
    // /proc.
    enter_network(network, plan.net.is_own())?;
    if plan.net.is_own() {
        open_own_network(control, plan.seal.gid)?;
    }
    // This comes before any command runs, which could take these ports.
    let names = match plan.net {
        Net::Host => None,
        Net::None => Some(NameServer::Guest(own_network::bind_resolver()?)),
        Net::Egress => {
            own_network::hand_over(control, &plan.captured)?;
            Some(NameServer::Owner)
        }
    };
    let host_proc = HostProc::open()?;
    mounts.pivot()?;
    // The owner reads the table of mounts while this process goes on.
    channel::send(control, &Report::Mounts, &[host_proc.mounts()?.as_fd()])
        .map_err(|_| FailedStep::new("show what is mounted", Errno::PIPE))?;
    clock.mark("mounts");

    rustix::process::chdir(glovebox_spec::WORKSPACE).cannot("enter the workspace")?;
    // This comes after the last mount and the pivot, which need the capabilities that it gives up.
    let separation = seal(plan)?;
    // The child of stage 0 still has the caller's stdin, stdout and stderr.
    silence_stdio()?;
    let built = beside.finish()?;
    let ruleset = built.fd.as_ref().map(AsFd::as_fd);
    let trial = ruleset
        .map(|ruleset| observation::begin_landlock_trial(ruleset, &host_proc))
        .transpose()?;
    let is_nested = plan.seal.nested.is_some();
    let profile = if is_nested {
        seccomp::Profile::Nested
    } else {
        seccomp::Profile::Default
    };
    // This comes after the set-up's last calls for mounts and namespaces, which its default profile
    // refuses.
    install_filter(profile)?;
    let tracing = Tracing::judge(built.abi, is_nested, host_proc.ptrace_scope());
    if tracing.needs_filter() {
        install_filter(seccomp::Profile::Untraced)?;
    }
    clock.mark("seal");
    let mut self_test = examine(built.abi, is_nested);
    self_test.observed = observation::observe(plan, &host_proc)?;
    self_test.tracing = tracing;
    self_test.max_user_namespaces = host_proc.max_user_namespaces();
    let mut ours = vec![control.as_raw_fd(), gate.as_raw_fd()];
    ours.extend(trial.iter().flat_map(Trial::descriptors));
    if let Some(NameServer::Guest(socket)) = &names {
        ours.push(socket.as_raw_fd());
    }
    self_test.open_fds = host_proc.open_fds(&ours)?;
    // The trial runs beside the self-test, so its result is awaited last.
    self_test.observed.landlock = trial
        .map(|trial| trial.finish().map(LandlockTrial::new))
        .transpose()
        .cannot("try the Landlock rules")?;
    host_proc.await_single_thread()?;
    drop(host_proc);
    clock.mark("self-test");
    self_test.timings_us = clock.marks;
    self_test.unset_bounds = unset;
    Ok(BuiltSandbox {
        landlock: built.fd,
        names,
        separation,
        self_test,
    })
}

/// Installs a system-call filter on this process and its later children.
fn install_filter(profile: seccomp::Profile) -> Result<(), FailedStep> {
    seccomp::install(profile).map_err(|error| {
        FailedStep::new(
            format!("install the system-call filter ({error})"),
            Errno::INVAL,
        )
    })
}

/// Returns a duplicate of a descriptor.
fn share(fd: &OwnedFd) -> Result<OwnedFd, FailedStep> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3).cannot("share a descriptor")
}

/// Allows commands to bind ports below 1024 and to send echo requests (icmp(7)) in their own
/// network. Settings that cannot be written are reported.
fn open_own_network(control: &OwnedFd, gid: u32) -> Result<(), FailedStep> {
    let settings = [
        (
            "/proc/sys/net/ipv4/ip_unprivileged_port_start",
            "0".to_owned(),
            "commands cannot listen on ports below 1024",
        ),
        (
            "/proc/sys/net/ipv4/ping_group_range",
            format!("{gid} {gid}"),
            "commands cannot send echo requests (ping)",
        ),
    ];
    for (path, value, loss) in settings {
        let written = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|file| rustix::io::write(&file, value.as_bytes()));
        if let Err(errno) = written {
            let note = Report::Degraded(format!("{loss}: {errno}"));
            channel::send(control, &note, &[])
                .map_err(|_| FailedStep::new("report what the network lacks", Errno::PIPE))?;
        }
    }
    Ok(())
}

/// Enters the network namespace whose creation began before the plan arrived.
fn enter_network(
    network: Option<Result<Network, Errno>>,
    is_wanted: bool,
) -> Result<(), FailedStep> {
    let step = "create the sandbox's network namespace, with its loopback interface up";
    if network.is_some() != is_wanted {
        return Err(FailedStep::new(step, Errno::INVAL));
    }
    let Some(network) = network else {
        return Ok(());
    };
    let made = network.and_then(Network::finish).cannot(step)?;
    move_into_link_name_space(made.as_fd(), Some(LinkNameSpaceType::Network))
        .cannot("enter the sandbox's network namespace")
}

fn gate_is_closed() -> FailedStep {
    FailedStep::new("hear from stage 0", Errno::PIPE)
}

fn receive_go(gate: &OwnedFd) -> Result<ParentMessage, FailedStep> {
    let (go, _) = channel::receive::<ParentMessage>(gate)
        .ok()
        .flatten()
        .ok_or_else(gate_is_closed)?;
    Ok(go)
}

fn receive_sources(gate: &OwnedFd, plan: &Plan) -> Result<Vec<OwnedFd>, FailedStep> {
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

fn seal(plan: &Plan) -> Result<Separation, FailedStep> {
    let lower = |resource: Resource, soft: u64, hard: u64| -> Result<(), Errno> {
        // Limits are only lowered: raising one takes a capability that the caller may lack.
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
    // One byte, not zero: no core fits in it, and with this value the kernel does not start the
    // host's core handler either (core(5): "piping core dumps" ignores the limit otherwise).
    lower(Resource::Core, 1, 1).cannot("forbid core files")?;
    for bound in &BOUNDS {
        let (resource, soft) = match bound.mechanism {
            Mechanism::Rlimit(resource) => (resource, bound.max),
            Mechanism::HardRlimit(resource) => (resource, SOFT_OPEN_FILES),
            Mechanism::UserSetting(_) | Mechanism::MountOption | Mechanism::Filter => continue,
        };
        // If commands may have more files than the bound, the hard limit has to allow them. A lower
        // limit applies to commands alone, because this process has files open for all of them.
        let hard = match resource {
            Resource::Nofile => bound.max.max(plan.seal.open_files.unwrap_or(0).into()),
            _ => bound.max,
        };
        lower(resource, soft, hard).cannot(&format!("limit {}", bound.name))?;
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

fn silence_stdio() -> Result<(), FailedStep> {
    let step = "detach from the caller's standard streams";
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .cannot(step)?;
    rustix::stdio::dup2_stdin(&null).cannot(step)?;
    rustix::stdio::dup2_stdout(&null).cannot(step)?;
    rustix::stdio::dup2_stderr(&null).cannot(step)
}
