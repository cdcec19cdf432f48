//! Control socket of a supervisor, for requests that its guest does not handle.
//!
//! Each connection over a sequenced-packet socket carries one order and one answer. A freeze ends
//! with its connection, so a client that dies cannot leave the sandbox frozen.

pub(crate) mod handover;
pub(crate) mod network;
pub(crate) mod socket;

use crate::backend::{self, Owner, ServiceCx};
use crate::checkpoint::workspace;
use crate::checkpoint::{change, flatten, remote, stack, store};
use crate::fault;
use crate::link::set_nonblocking;
use crate::link_meter::LinkMeter;
use crate::process::freeze::{Freezer, LayerChangeGuard};
use crate::state::layout::{Layout, open_dir};
use crate::state::trash;
use crate::{Name, SandboxSpec};
use glovebox_egress::ProxyHandle;
use glovebox_proto::{Code, Fault, decode, encode};
use network::NetworkOrder;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, shutdown, socket_with, sockopt::socket_peercred,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Name of the socket in a sandbox's directory.
pub(crate) const CONTROL: &str = "control";
/// Maximum size of an order or answer, in bytes.
const PACKET_BYTES: usize = 64 << 10;
/// Maximum number of clients served at once. More wait in the listener's backlog.
const MAX_CLIENTS: u32 = 32;
/// Maximum number of clients that wait to be accepted.
const BACKLOG: i32 = 64;
/// Maximum time for a client to send its order.
const ORDER_WAIT: Duration = Duration::from_secs(10);
/// Maximum time for a service to make a checkpoint.
const CHECKPOINT_WAIT: Duration = Duration::from_mins(5);
/// Maximum time to thaw a sandbox.
const THAW_WAIT: Duration = Duration::from_secs(5);
const STACK_BYTES: usize = 128 << 10;

/// Order to a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Freeze the sandbox until this connection ends.
    Freeze,
    /// Check that nothing has run since the freeze. Sent over the connection of the freeze.
    Verify,
    /// Send the directory of layers in memory.
    Layers,
    /// Create a checkpoint.
    Checkpoint {
        comment: Option<String>,
        /// True to copy the layers while commands run.
        is_live: bool,
    },
    /// Restore a checkpoint.
    Restore { id: String },
    /// Delete a checkpoint.
    Delete { id: String },
    /// End the guest and keep the files.
    Stop { reason: String },
    /// Order about the network.
    Network(NetworkOrder),
    /// Return the counters of the link to the guest, or null.
    Link,
}

/// Answer to an order: the id of a checkpoint, JSON, or an empty text, depending on the order.
pub(crate) type Answer = Result<String, Fault>;

/// Change for which the guest may be restarted, for the thread that owns the guest.
#[derive(Debug)]
pub(crate) struct ControlCommand {
    pub(crate) order: Order,
    pub(crate) changing: LayerChangeGuard,
    reply: Sender<Answer>,
}

impl ControlCommand {
    /// Sends the answer to the client, if it still waits, and allows other changes.
    pub(crate) fn answer(self, answer: Answer) {
        drop(self.changing);
        let _ = self.reply.send(answer);
    }
}

/// State that a supervisor's threads share.
#[derive(Debug)]
pub(crate) struct ControlServer {
    pub(crate) layout: Layout,
    pub(crate) dir: PathBuf,
    pub(crate) freezer: Arc<Freezer>,
    /// Egress proxy, if the sandbox has one. Replaced when the guest is restarted.
    egress: Mutex<Option<ProxyHandle>>,
    /// Counters of the link to the guest, if it has any. Replaced when the guest is restarted.
    link: Mutex<Option<Arc<LinkMeter>>>,
    /// Directory of layers in memory. `None` if they are on disk.
    layers: Option<OwnedFd>,
    /// Spec and name of a sandbox whose checkpoints a service keeps.
    service: Option<(SandboxSpec, Name)>,
    commands: Mutex<VecDeque<ControlCommand>>,
    /// Event descriptor, readable when there are commands.
    wake: OwnedFd,
    listener: OwnedFd,
    clients: AtomicU32,
}

impl ControlServer {
    /// Creates the socket in the sandbox's directory and listens on it.
    pub(crate) fn new(
        layout: Layout,
        dir: PathBuf,
        freezer: Arc<Freezer>,
        layers: Option<OwnedFd>,
        service: Option<(SandboxSpec, Name)>,
    ) -> Result<Self, Fault> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags)
            .map_err(|errno| fault::plain_io("cannot make an event descriptor", errno))?;
        Ok(Self {
            listener: open_socket(&dir)?,
            clients: AtomicU32::new(0),
            layout,
            dir,
            freezer,
            egress: Mutex::default(),
            link: Mutex::default(),
            layers,
            service,
            commands: Mutex::default(),
            wake,
        })
    }

    /// Takes the egress proxy and the counters of the link from the owner of a new guest.
    pub(crate) fn set_owner(&self, owner: &dyn Owner) {
        *self.egress.lock().unwrap_or_else(PoisonError::into_inner) = owner.egress();
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = owner.link_meter();
    }

    fn answer_about_link(&self) -> Answer {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = link.as_ref().map(|meter| meter.stats());
        network::to_json(&stats)
    }

    fn answer_about_network(&self, order: NetworkOrder) -> Answer {
        // Cloned, because an order may take long and must not block a restart of the guest.
        let proxy = self
            .egress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        network::answer(proxy.as_ref(), order)
    }

    /// Returns the directory of layers in memory.
    pub(crate) fn layers(&self) -> Result<OwnedFd, Fault> {
        let layers = self.layers.as_ref().map(OwnedFd::try_clone);
        layers
            .ok_or_else(workspace::gone_with_memory)?
            .map_err(|error| fault::plain_io("cannot copy a file descriptor", error))
    }

    /// Returns the listener; readable when [`Self::admit`] has a client to admit.
    pub(crate) fn door(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Serves each waiting client on a thread of its own. An idle supervisor has no such thread.
    pub(crate) fn admit(self: &Arc<Self>) {
        while let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) {
            if !is_ours(&socket) {
                continue;
            }
            if self.clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
                self.clients.fetch_sub(1, Ordering::Relaxed);
                let busy = Fault::failed(Code::Busy, "the supervisor serves too many clients");
                send(&socket, &Answer::Err(busy.retryable()));
                continue;
            }
            let control = Arc::clone(self);
            let served = spawn(move || {
                attend(&socket, &control);
                control.clients.fetch_sub(1, Ordering::Relaxed);
            });
            if served.is_err() {
                // The socket was dropped with the closure, so the client sees the end of the
                // connection.
                self.clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the descriptor that is readable when [`Self::take`] has a command.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn commands(&self) -> MutexGuard<'_, VecDeque<ControlCommand>> {
        // The queue is never half changed.
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next command. `None` if there is none.
    pub(crate) fn take(&self) -> Option<ControlCommand> {
        let mut commands = self.commands();
        let command = commands.pop_front();
        if commands.is_empty() {
            // Cleared under the lock, or the wake-up of a command that is pushed meanwhile would be
            // lost.
            let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        }
        command
    }

    pub(crate) fn post(&self, order: Order) -> Answer {
        let changing = self.freezer.change()?;
        let (reply, answer) = mpsc::channel();
        let command = ControlCommand {
            order,
            changing,
            reply,
        };
        self.commands().push_back(command);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        answer.recv().unwrap_or_else(|_| {
            Err(Fault::lost(
                Code::LinkLost,
                "the sandbox ended before its files could be changed",
            ))
        })
    }

    /// Copies the writable layers while the sandbox is frozen.
    fn copy(&self, comment: Option<&str>) -> Answer {
        let changing = self.freezer.change()?;
        let held = changing.freeze()?;
        let verify = || held.verify();
        let taken = change::copy_checkpoint(&self.layout, &self.dir, comment, &verify);
        drop(held);
        taken.map(|checkpoint| checkpoint.id)
    }

    /// Has a service make a checkpoint, while the sandbox runs. `None` if no service keeps its
    /// checkpoints.
    fn checkpoint_at_service(&self, comment: Option<&str>) -> Option<Answer> {
        let (spec, name) = self.service.as_ref()?;
        let make = || {
            let _changing = self.freezer.change()?;
            let new = remote::NewCheckpoint::begin(&self.dir, comment)?;
            let cx = ServiceCx {
                spec,
                state_dir: self.layout.state(),
                known: &[],
                deadline: Instant::now() + CHECKPOINT_WAIT,
            };
            let text = comment.unwrap_or_default();
            let id = backend::checkpoints(&cx)?.create(&cx, name, text)?;
            new.finish(&id).map(|made| made.id)
        };
        Some(make())
    }

    fn delete(&self, id: String) -> Answer {
        if self.service.is_some() {
            return Err(Fault::refused(
                Code::Unsupported,
                "checkpoints that a service keeps are deleted there, or with the machine",
            )
            .remedy("use the service's own program"));
        }
        let _changing = self.freezer.change()?;
        stack::checkpoint(&self.dir, &id)?;
        stack::remove_checkpoint(&self.dir, &id)?;
        Ok(id)
    }

    /// Merges layers of a stack that has grown, while the sandbox runs.
    pub(crate) fn flatten(self: &Arc<Self>) {
        let control = Arc::clone(self);
        // If no thread can be started, the next checkpoint tries again.
        let _ = spawn(move || {
            while let Ok(Some(merged)) = flatten::merge(&control.layout, &control.dir) {
                let Ok(changing) = control.freezer.change() else {
                    return;
                };
                let installed = flatten::install(&control.dir, merged);
                drop(changing);
                if installed.is_err() {
                    return;
                }
            }
        });
    }

    /// Removes discarded files while the sandbox runs.
    pub(crate) fn clear(self: &Arc<Self>, places: Vec<PathBuf>) {
        let control = Arc::clone(self);
        // A sweep removes files that stay.
        let _ = spawn(move || {
            for place in places {
                let _ = trash::remove(&control.layout, &place);
            }
            let _ = store::collect_garbage(&control.layout);
        });
    }
}

/// Opens the control socket in the sandbox's directory.
fn open_socket(dir_path: &Path) -> Result<OwnedFd, Fault> {
    let broken = |errno| fault::io("make the control socket of", dir_path, errno);
    let dir = open_dir(dir_path).map_err(broken)?;
    // Left by an earlier supervisor.
    let _ = std::fs::remove_file(dir_path.join(CONTROL));
    let listener = new_socket().map_err(broken)?;
    bind(&listener, &address(&dir).map_err(broken)?).map_err(broken)?;
    listen(&listener, BACKLOG).map_err(broken)?;
    set_nonblocking(&listener)?;
    Ok(listener)
}

/// Runs `body` on a thread of its own.
pub(crate) fn spawn(body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
    builder.spawn(body).map(|_| ())
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

/// Returns the address by way of the directory's descriptor, because a path may be longer than an
/// address allows (unix(7)).
fn address(dir: &OwnedFd) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{CONTROL}", dir.as_raw_fd()))
}

fn is_ours(socket: &OwnedFd) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

fn attend(socket: &OwnedFd, control: &ControlServer) {
    if !wait_readable(socket, Some(ORDER_WAIT)) {
        return;
    }
    let answer = match receive::<Order>(socket) {
        Ok(Some(Order::Freeze)) => match control.freezer.freeze() {
            Ok(hold) => {
                send(socket, &Answer::Ok(String::new()));
                // Any packet but a question means that the client has closed the connection or
                // died.
                while wait_readable(socket, None)
                    && matches!(receive::<Order>(socket), Ok(Some(Order::Verify)))
                {
                    send(socket, &hold.verify().map(|()| String::new()));
                }
                drop(hold);
                return;
            }
            Err(fault) => Err(fault),
        },
        Ok(Some(Order::Layers)) => match control.layers() {
            Ok(layers) => {
                send(socket, &Answer::Ok(String::new()));
                // Fails only if the client is gone.
                let _ = handover::hand_over(socket, &[layers.as_fd()]);
                return;
            }
            Err(fault) => Err(fault),
        },
        Ok(Some(Order::Checkpoint { comment, is_live })) => {
            match control.checkpoint_at_service(comment.as_deref()) {
                Some(answer) => answer,
                None if is_live => control.copy(comment.as_deref()),
                None => control.post(Order::Checkpoint { comment, is_live }),
            }
        }
        Ok(Some(Order::Delete { id })) => control.delete(id),
        Ok(Some(Order::Network(order))) => control.answer_about_network(order),
        Ok(Some(Order::Link)) => control.answer_about_link(),
        Ok(Some(order)) => control.post(order),
        Ok(None) => return,
        Err(fault) => Err(fault),
    };
    send(socket, &answer);
}

fn wait_readable(socket: &OwnedFd, wait: Option<Duration>) -> bool {
    let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
    loop {
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], wait.as_ref()) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn send<T: Serialize>(socket: &OwnedFd, message: &T) {
    // A client that is gone gets no answer.
    if let Ok(bytes) = encode(message) {
        let _ = rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL);
    }
}

/// Receives a message. `None` if the other end is gone.
fn receive<T: serde::de::DeserializeOwned>(socket: &OwnedFd) -> Result<Option<T>, Fault> {
    let mut bytes = vec![0_u8; PACKET_BYTES];
    match rustix::io::read(socket, bytes.as_mut_slice()) {
        Ok(0) | Err(_) => Ok(None),
        Ok(count) => decode(&bytes[..count], "control message")
            .map(Some)
            .map_err(|error| fault::internal(error.to_string())),
    }
}

/// Sends an order to the supervisor of the sandbox in `dir` and waits for the answer. Returns the
/// connection with it.
pub(crate) fn order(dir: &Path, order: &Order, wait: Duration) -> Result<(String, OwnedFd), Fault> {
    let socket = tell(dir, order)?;
    if !wait_readable(&socket, Some(wait)) {
        return Err(Fault::failed(
            Code::TimedOut,
            "the supervisor did not answer in time",
        ));
    }
    match receive::<Answer>(&socket)? {
        Some(answer) => answer.map(|words| (words, socket)),
        None => Err(Fault::lost(
            Code::LinkLost,
            "the supervisor ended without an answer",
        )),
    }
}

/// Checks over the connection of a freeze that nothing has run since.
pub(crate) fn verify(socket: &OwnedFd) -> Result<(), Fault> {
    send(socket, &Order::Verify);
    let answer = if wait_readable(socket, Some(ORDER_WAIT)) {
        receive::<Answer>(socket)?
    } else {
        None
    };
    let gone = || Fault::lost(Code::LinkLost, "the supervisor ended without an answer");
    answer.ok_or_else(gone)?.map(drop)
}

/// Sends an order without waiting for the answer.
pub(crate) fn tell(dir: &Path, order: &Order) -> Result<OwnedFd, Fault> {
    let gone = |errno| fault::io("reach the supervisor of", dir, errno);
    let place = open_dir(dir).map_err(gone)?;
    let socket = new_socket().map_err(gone)?;
    connect(&socket, &address(&place).map_err(gone)?).map_err(gone)?;
    if !is_ours(&socket) {
        return Err(Fault::refused(
            Code::PermissionDenied,
            "the supervisor runs as another user",
        ));
    }
    send(&socket, order);
    Ok(socket)
}

/// Returns the directory of the layers in memory of the sandbox in `dir`.
pub(crate) fn layers(dir: &Path) -> Result<OwnedFd, Fault> {
    let socket = match order(dir, &Order::Layers, ORDER_WAIT) {
        Ok((_, socket)) => socket,
        Err(fault) if fault.code == Code::NotFound => return Err(workspace::gone_with_memory()),
        Err(fault) => return Err(fault),
    };
    if wait_readable(&socket, Some(ORDER_WAIT))
        && let Ok(mut fds) = handover::receive(&socket)
        && let Some(layers) = fds.pop()
    {
        return Ok(layers);
    }
    let message = "the supervisor did not hand the layers over";
    Err(Fault::lost(Code::LinkLost, message))
}

/// Closes a connection and waits until the supervisor has thawed the sandbox, at most
/// [`THAW_WAIT`].
pub(crate) fn hang_up(socket: &OwnedFd) {
    if shutdown(socket, Shutdown::Write).is_ok() {
        wait_readable(socket, Some(THAW_WAIT));
    }
}
