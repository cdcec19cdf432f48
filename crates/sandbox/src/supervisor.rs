//! The small process that owns one named sandbox: it brings the guest up, lets many clients talk to
//! it, and ends with it. When it dies, however it dies, the guest sees the end of its link and ends
//! too, and the kernel lets go of the locks.

use crate::backend::{CreateCx, Owner};
use crate::cell::{Cell, Status, read_spec, write_json};
use crate::freeze::Freezer;
use crate::handle::Core;
use crate::layout::{Layout, open_dir};
use crate::link::set_nonblocking;
use crate::registry::{State, bring_up};
use crate::router::{End, Router};
use crate::{GuestImage, Name, SandboxSpec, client, control, fault, launch, wall};
use glovebox_proto::{Code, Fault};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the handover may take.
const HANDOVER_WAIT: Duration = Duration::from_secs(10);
/// Clients that may wait to be accepted.
const BACKLOG: i32 = 128;

/// The body of `glovebox __supervise --state DIR NAME`. Returns when the sandbox has ended.
///
/// Preconditions: standard input is the handover socket of the process that starts the supervisor,
/// and nothing has read from it.
///
/// # Errors
/// Whatever kept the sandbox from coming up, which the starter has been told as well, or what could
/// not be removed afterwards.
pub fn supervise(state_dir: &Path, name: &Name) -> Result<(), Fault> {
    let starter = take_stdin()?;
    // Ctrl-C and the end of the starter's terminal are not for us. Fails only for a process that
    // leads a group already, and then that is as good.
    let _ = rustix::process::setsid();
    let layout = Layout::open(state_dir)?;
    let [lock, slot] = launch::take_over(&starter, Instant::now() + HANDOVER_WAIT)?;
    let cell = Cell::adopt(&layout, name, lock)?;
    // A sandbox that lives again was kept for its files; they outlast a start that fails.
    let is_resumed = cell.has_layers();
    let up = come_up(&layout, &cell, &starter);
    let (router, owner, spec, status) = match up {
        Ok(up) => up,
        Err(fault) => {
            if !launch::answer(&starter, Err(fault.clone())) {
                undo(&layout, cell, is_resumed)?;
            }
            return Err(fault);
        }
    };
    // From here on others may use the sandbox, so it stays even if its starter is gone by now.
    launch::answer(&starter, Ok(()));
    drop(starter);
    let end = router.run(owner.as_ref(), Timing::of(&spec));
    let result = clean_up(&layout, cell, owner.as_ref(), status, end);
    drop(slot);
    result
}

/// When a sandbox ends by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) wall: Option<(Instant, u64)>,
    pub(crate) lease: Option<Duration>,
}

impl Timing {
    fn of(spec: &SandboxSpec) -> Self {
        let wall = spec.jail.limits.wall_ms;
        Self {
            wall: wall
                .and_then(|ms| Some((Instant::now().checked_add(Duration::from_millis(ms))?, ms))),
            lease: spec.lease_ms.map(Duration::from_millis),
        }
    }
}

/// Takes the handover socket off standard input and leaves `/dev/null` there.
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

type Up = (Router, Box<dyn Owner>, SandboxSpec, Status);

fn come_up(layout: &Layout, cell: &Cell, starter: &OwnedFd) -> Result<Up, Fault> {
    let spec = read_spec(&cell.path)?;
    let mut status: Status = crate::cell::read_status(&cell.path)?;
    status.pid = std::process::id();
    cell.write_status(&status)?;
    let slot = status
        .slot
        .ok_or_else(|| fault::internal("the sandbox has no slot"))?;
    let begin = Instant::now();
    let (link, owner) = {
        // Closed again as soon as the guest runs from it.
        let image = GuestImage::shared(&layout.base())?;
        bring_up(&CreateCx {
            spec: &spec,
            name: &cell.name,
            dir: &cell.path,
            state_dir: layout.state(),
            slot,
            frozen: Vec::new(),
            image: &image,
            deadline: begin + Duration::from_millis(spec.start_ms),
        })?
    };
    let core = Core::owned(link, owner, begin.elapsed());
    let report = core.report();
    let (link, owner) = core.into_parts();
    let Some(owner) = owner else {
        return Err(fault::internal("the sandbox has no owner"));
    };
    write_json(&cell.path.join("report.json"), &report?)?;
    let listener = open_socket(&cell.path)?;
    control::serve(&cell.path, Freezer::new(owner.process()))?;
    let router = Router::new(link.into_greeted(), listener)?;
    if !launch::is_awaited(starter) {
        return Err(Fault::failed(
            Code::Cancelled,
            "whoever started the sandbox has given up waiting for it",
        ));
    }
    status.process = owner.process();
    status.state = State::Ready;
    cell.write_status(&status)?;
    Ok((router, owner, spec, status))
}

/// Undoes a start that failed, in the place of a starter that is gone.
fn undo(layout: &Layout, cell: Cell, is_resumed: bool) -> Result<(), Fault> {
    if !is_resumed {
        return cell.discard(layout);
    }
    let mut status = crate::cell::read_status(&cell.path)?;
    status.state = State::Lost;
    status.process = None;
    cell.write_status(&status)
}

fn open_socket(dir_path: &Path) -> Result<OwnedFd, Fault> {
    let broken = |errno| fault::io("make the socket of", dir_path, errno);
    let dir = open_dir(dir_path).map_err(broken)?;
    // One of an earlier life.
    let _ = std::fs::remove_file(dir_path.join("socket"));
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(broken)?;
    bind(&listener, &client::address(&dir).map_err(broken)?).map_err(broken)?;
    listen(&listener, BACKLOG).map_err(broken)?;
    set_nonblocking(&listener)?;
    Ok(listener)
}

fn clean_up(
    layout: &Layout,
    cell: Cell,
    owner: &dyn Owner,
    mut status: Status,
    end: End,
) -> Result<(), Fault> {
    // Not being there is what is wanted.
    let _ = std::fs::remove_file(cell.path.join("socket"));
    let _ = std::fs::remove_file(cell.path.join(control::CONTROL));
    let killed = owner.kill();
    let reason = match end {
        End::Shutdown => None,
        End::Wall(ms) => Some(wall::breach(ms)),
        End::Lease(lease) => Some(format!(
            "no client was connected for {} s",
            lease.as_secs_f64()
        )),
        End::Lost(fault) => Some(owner.limit_breach().unwrap_or(fault.message)),
    };
    match reason {
        Some(reason) if cell.has_layers() => {
            status.state = State::Stopped;
            status.process = None;
            status.reason = Some(reason);
            cell.write_status(&status)?;
        }
        _ => cell.discard(layout)?,
    }
    killed
}
