//! Supervisor: the small process that owns one named sandbox. It starts the guest, serves many
//! clients, and ends with the guest. If it dies in any way, the guest sees the end of its link and
//! ends too, and the kernel releases the locks.

mod exchange;
mod router;
mod service;
mod watch_parent;

use crate::backend::{self, CreateCx, Owner};
use crate::breach::LimitBreach;
use crate::cache::{CacheLease, KeptCaches};
use crate::checkpoint::workspace;
use crate::checkpoint::{self, change, stack};
use crate::control::handover;
use crate::control::socket;
use crate::control::{self, ControlServer, Order};
use crate::handle::SandboxCore;
use crate::link::{GuestLink, set_nonblocking};
use crate::process::freeze::Freezer;
use crate::report::REPORT_FILE;
use crate::state::layout::{Layout, open_dir};
use crate::state::sandbox_dir::is_kept;
use crate::state::sandbox_dir::{SandboxDir, read_spec, write_json};
use crate::state::status::{SandboxState, Status};
use crate::supervisor::router::{EndReason, Router};
use crate::{CheckpointStore, GuestImage, Name, Report, SandboxSpec, WorkspaceLayers, fault};
use glovebox_egress::Control;
use glovebox_jail::plan::{CheckpointLayer, first_id, range_of};
use glovebox_jail::skeleton::give_to_range;
use glovebox_proto::{Code, Fault};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time for the handover.
const HANDOVER_WAIT: Duration = Duration::from_secs(10);
/// Maximum number of clients that wait to be accepted.
const BACKLOG: i32 = 128;

/// Runs `glovebox __supervise --state DIR NAME`. Returns when the sandbox has ended.
///
/// Preconditions: standard input is the handover socket of the process that starts the supervisor,
/// and nothing has been read from it. As soon as the sandbox is ready, `after_ready` is called with
/// the layers of the workspace, if it has any. It must return quickly.
///
/// # Errors
/// The errors of starting the sandbox, which are also sent to the process that started the
/// supervisor, and the errors of removing files afterwards.
pub fn supervise(
    state_dir: &Path,
    name: &Name,
    after_ready: impl FnOnce(WorkspaceLayers),
) -> Result<(), Fault> {
    let starter = take_stdin()?;
    // Ctrl-C and a hang-up of that process's terminal must not end the supervisor. Fails only for
    // the leader of a process group, which has the same effect.
    let _ = rustix::process::setsid();
    let layout = Layout::open(state_dir)?;
    let [lock, slot] = handover::take_over(&starter, Instant::now() + HANDOVER_WAIT)?;
    let sandbox_dir = SandboxDir::adopt(&layout, name, lock)?;
    // A resumed sandbox was kept for its files, so a failed start must not remove them.
    let is_resumed = sandbox_dir.holds_work();
    let up = come_up(&layout, &sandbox_dir, &starter);
    let mut life = match up {
        Ok(life) => life,
        Err(fault) => {
            if !handover::answer(&starter, Err(fault.clone())) {
                undo(&layout, sandbox_dir, is_resumed)?;
            }
            return Err(fault);
        }
    };
    // From here on other clients may use the sandbox, so it stays even if the process that started
    // it is gone.
    handover::answer(&starter, Ok(()));
    drop(starter);
    let in_memory = || life.control.layers();
    if let Ok(layers) = workspace::layers(&layout, &sandbox_dir.path, in_memory) {
        after_ready(layers);
    }
    let end = life.live(&layout, &sandbox_dir);
    life.router.say_farewell(life.owner.as_ref(), &end);
    let caches = life.caches.map(|lease| KeptCaches::new(lease, &life.spec));
    let owner = life.owner.as_ref();
    let result = clean_up(&layout, sandbox_dir, owner, life.status, end, caches);
    // The next sweep finds layers that stay.
    let _ = checkpoint::store::collect_garbage(&layout);
    drop(slot);
    result
}

/// Times at which a sandbox ends by itself. `None` for no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) wall: Option<(Instant, u64)>,
    pub(crate) lease: Option<Duration>,
    /// Time without a client and a running job.
    pub(crate) idle: Option<Duration>,
}

impl Timing {
    fn of(spec: &SandboxSpec) -> Self {
        let wall = spec.jail.limits.wall_ms;
        Self {
            wall: wall
                .and_then(|ms| Some((Instant::now().checked_add(Duration::from_millis(ms))?, ms))),
            lease: spec.lease_ms.map(Duration::from_millis),
            // A sandbox that ends with its parent is not kept when it stops.
            idle: backend::idle_time(spec).filter(|_| !spec.is_bound()),
        }
    }
}

/// Takes the handover socket from standard input and replaces it by `/dev/null`.
fn take_stdin() -> Result<OwnedFd, Fault> {
    let broken =
        |errno: rustix::io::Errno| fault::plain_io("cannot take over standard input", errno);
    let starter = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| fault::plain_io("cannot take over standard input", error))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(broken)?;
    rustix::stdio::dup2_stdin(&null).map_err(broken)?;
    Ok(starter)
}

/// A running sandbox.
#[derive(Debug)]
struct RunningSandbox {
    router: Router,
    owner: Box<dyn Owner>,
    spec: SandboxSpec,
    status: Status,
    slot: u32,
    /// Package caches that it keeps. `None` if it keeps none.
    caches: Option<CacheLease>,
    control: Arc<ControlServer>,
}

impl RunningSandbox {
    /// Serves clients until the sandbox ends, through every change of its files.
    fn live(&mut self, layout: &Layout, sandbox_dir: &SandboxDir) -> EndReason {
        let timing = Timing::of(&self.spec);
        loop {
            match self.router.run(self.owner.as_ref(), timing, &self.control) {
                EndReason::CommandPending => {
                    while let Some(command) = self.control.take() {
                        if let Order::Stop { reason } = &command.order {
                            let end = EndReason::Stopped(reason.clone());
                            command.answer(Ok(String::new()));
                            return end;
                        }
                        let changed = match &command.order {
                            Order::Restore { id } if has_service_checkpoints(&self.spec) => {
                                let id = id.clone();
                                self.restore_at_service(layout, sandbox_dir, command, &id)
                            }
                            _ => self.change(layout, sandbox_dir, command),
                        };
                        if let Err(fault) = changed {
                            return EndReason::Lost(fault);
                        }
                    }
                }
                end => return end,
            }
        }
    }
}

/// Returns true if a service keeps the checkpoints of a sandbox.
fn has_service_checkpoints(spec: &SandboxSpec) -> bool {
    spec.checkpoints() == CheckpointStore::Service
}

/// A guest that accepts requests.
struct RunningGuest {
    greeted: GuestLink,
    owner: Box<dyn Owner>,
    /// Paths in the trash that are still to be removed.
    thrown: Vec<PathBuf>,
}

/// Starts a guest on the sandbox's stack. `egress` holds the rules and accounts of an earlier
/// guest's proxy.
fn raise(
    layout: &Layout,
    sandbox_dir: &SandboxDir,
    spec: &SandboxSpec,
    slot: u32,
    caches: Option<&CacheLease>,
    egress: Option<Arc<Control>>,
) -> Result<RunningGuest, Fault> {
    service::finish_restore(layout, sandbox_dir, spec)?;
    let begin = Instant::now();
    // Closed again as soon as the guest runs.
    let image = GuestImage::shared(&layout.base())?;
    let begun = backend::begin(spec, &image, layout.state())?;
    // Finished before the stack is read, because an interrupted change may replace it.
    let thrown = change::finish(layout, &sandbox_dir.path)?;
    let stack = stack::read(&sandbox_dir.path)?;
    // Recorded before the mount, or a collection of garbage could remove a mounted layer.
    stack::note_mounted(&sandbox_dir.path, &stack, &[])?;
    let mut frozen = checkpoint::frozen(layout, &stack.layers);
    if let Some(layer) = sandbox_dir.saved_layer() {
        give_to_slot(&layer, slot)?;
        frozen.push(CheckpointLayer {
            root: None,
            workspace: Some(layer),
            first_id: None,
        });
    }
    let cx = CreateCx {
        spec,
        name: &sandbox_dir.name,
        dir: &sandbox_dir.path,
        state_dir: layout.state(),
        slot,
        frozen,
        seed: checkpoint::seed_layer(layout, &stack.layers),
        caches: caches.map(CacheLease::frozen).unwrap_or_default(),
        cache_keeping: CacheLease::keeping(caches),
        image: &image,
        egress,
        is_resumed: sandbox_dir.has_remote_files(),
        deadline: begin + Duration::from_millis(spec.start_ms),
    };
    let (link, owner) = backend::bring_up(&cx, begun)?;
    sandbox_dir.note_remote_files(spec)?;
    drop(image);
    let core = SandboxCore::owned(link, owner, begin.elapsed());
    let report = core.report()?;
    let (link, owner) = core.into_parts();
    let Some(owner) = owner else {
        return Err(fault::internal("the sandbox has no owner"));
    };
    // The counters of the link change as long as the guest lives.
    let report = report.map(|report| Report {
        link: None,
        ..report
    });
    write_json(&sandbox_dir.path.join(REPORT_FILE), &report)?;
    Ok(RunningGuest {
        greeted: link.into_greeted(),
        owner,
        thrown,
    })
}

/// Changes the owners of a saved layer to the sandbox's present ids, if it belongs to another
/// range.
fn give_to_slot(layer: &Path, slot: u32) -> Result<(), Fault> {
    let owner = std::fs::metadata(layer).map_err(|error| fault::io("inspect", layer, error))?;
    match range_of(owner.uid()) {
        Some(first) if first != first_id(slot) => give_to_range(layer, first_id(slot))
            .map_err(|error| fault::io("change the owner of", layer, error)),
        _ => Ok(()),
    }
}

fn come_up(
    layout: &Layout,
    sandbox_dir: &SandboxDir,
    starter: &OwnedFd,
) -> Result<RunningSandbox, Fault> {
    let mut spec = read_spec(&sandbox_dir.path)?;
    handover::take_values(starter, &mut spec, Instant::now() + HANDOVER_WAIT)?;
    let mut status: Status = crate::state::sandbox_dir::read_status(&sandbox_dir.path)?;
    status.pid = std::process::id();
    sandbox_dir.write_status(&status)?;
    let slot = status
        .slot
        .ok_or_else(|| fault::internal("the sandbox has no slot"))?;
    let caches = CacheLease::take(layout, &spec, &sandbox_dir.path)?;
    let RunningGuest {
        greeted,
        owner,
        thrown,
    } = raise(layout, sandbox_dir, &spec, slot, caches.as_ref(), None)?;
    let listener = open_socket(&sandbox_dir.path)?;
    let freezer = Freezer::new(owner.process(), owner.group_freezer());
    let control = Arc::new(ControlServer::new(
        layout.clone(),
        sandbox_dir.path.clone(),
        freezer,
        owner.memory_layers(),
        has_service_checkpoints(&spec).then(|| (spec.clone(), sandbox_dir.name.clone())),
    )?);
    control.set_owner(owner.as_ref());
    watch_parent::watch_parent(layout, &spec, &control)?;
    let router = Router::new(greeted, listener)?;
    if !handover::is_awaited(starter) {
        return Err(Fault::failed(
            Code::Cancelled,
            "whoever started the sandbox has given up waiting for it",
        ));
    }
    status.process = owner.process();
    status.state = SandboxState::Ready;
    sandbox_dir.write_status(&status)?;
    if !thrown.is_empty() {
        control.clear(thrown);
    }
    Ok(RunningSandbox {
        router,
        owner,
        spec,
        status,
        slot,
        caches,
        control,
    })
}

/// Undoes a failed start, in place of a starting process that is gone.
fn undo(layout: &Layout, sandbox_dir: SandboxDir, is_resumed: bool) -> Result<(), Fault> {
    if !is_resumed {
        return sandbox_dir.discard(layout);
    }
    let mut status = crate::state::sandbox_dir::read_status(&sandbox_dir.path)?;
    status.state = SandboxState::Lost;
    status.process = None;
    sandbox_dir.write_status(&status)
}

fn open_socket(dir_path: &Path) -> Result<OwnedFd, Fault> {
    let broken = |errno| fault::io("make the socket of", dir_path, errno);
    let dir = open_dir(dir_path).map_err(broken)?;
    // Left by an earlier supervisor.
    let _ = std::fs::remove_file(dir_path.join("socket"));
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(broken)?;
    bind(&listener, &socket::address(&dir).map_err(broken)?).map_err(broken)?;
    listen(&listener, BACKLOG).map_err(broken)?;
    set_nonblocking(&listener)?;
    Ok(listener)
}

fn clean_up(
    layout: &Layout,
    sandbox_dir: SandboxDir,
    owner: &dyn Owner,
    mut status: Status,
    end: EndReason,
    caches: Option<KeptCaches>,
) -> Result<(), Fault> {
    // Fails if there is no such file, which is the aim.
    let _ = std::fs::remove_file(sandbox_dir.path.join("socket"));
    let _ = std::fs::remove_file(sandbox_dir.path.join(control::CONTROL));
    // Files at a service are removed only on request. After a loss or a stop they may be the only
    // copy of the work.
    let is_wanted = matches!(end, EndReason::Shutdown | EndReason::CommandPending);
    let ended = if sandbox_dir.has_remote_files() && !is_wanted {
        owner.halt()
    } else {
        owner.kill()
    };
    if let Err(fault) = ended {
        // Processes may still run, so the files and ids must not be used by another sandbox.
        status.state = SandboxState::Lost;
        status.reason = Some(fault.message.clone());
        sandbox_dir.write_status(&status)?;
        return Err(fault);
    }
    // After the kill, so that nothing writes to the caches while they are moved.
    let is_in_order = !matches!(end, EndReason::Lost(_));
    let kept = caches
        .filter(|_| is_in_order)
        .map_or(Ok(()), |caches| caches.keep(layout, &sandbox_dir.path));
    let reason = match end {
        EndReason::Shutdown | EndReason::CommandPending => None,
        EndReason::Stopped(reason) => Some(reason),
        EndReason::Wall(ms) => Some(LimitBreach::wall_clock(ms).reason),
        EndReason::Lease(lease) => Some(format!(
            "no client was connected for {} s",
            lease.as_secs_f64()
        )),
        EndReason::Idle(idle) => Some(format!(
            "no client was connected and no command ran for {} s",
            idle.as_secs_f64()
        )),
        EndReason::Lost(fault) => Some(
            owner
                .limit_breach()
                .map_or(fault.message, |breach| breach.reason),
        ),
    };
    match reason {
        Some(reason) if is_kept(&sandbox_dir) => {
            status.state = SandboxState::Stopped;
            status.process = None;
            status.reason = Some(match &kept {
                Ok(()) => reason,
                Err(fault) => format!("{reason}; {}", fault.message),
            });
            sandbox_dir.write_status(&status)?;
        }
        _ => sandbox_dir.discard(layout)?,
    }
    kept
}
