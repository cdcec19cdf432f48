//! The second door of a supervisor: what is asked of it and not of its guest.
//!
//! One order per connection over a sequenced-packet socket, one answer. A sandbox that was frozen
//! over a connection is let go when the connection ends, so a client cannot leave it frozen by dying.

pub(crate) mod handover;
pub(crate) mod network;
pub(crate) mod socket;

use crate::checkpoint::workspace;
use crate::checkpoint::{change, flatten, stack, store};
use crate::fault;
use crate::link::set_nonblocking;
use crate::process::freeze::{Freezer, LayerChangeGuard};
use crate::state::layout::{Layout, open_dir};
use crate::state::trash;
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
use std::time::Duration;

/// Name of the socket in a sandbox's directory.
pub(crate) const CONTROL: &str = "control";
/// Longest order or answer.
const PACKET_BYTES: usize = 64 << 10;
/// Clients served at once; more wait in the listener's backlog.
const MAX_CLIENTS: u32 = 32;
/// Clients that may wait to be accepted.
const BACKLOG: i32 = 64;
/// How long a client may take to say what it wants.
const ORDER_WAIT: Duration = Duration::from_secs(10);
/// How long letting a sandbox go may take.
const THAW_WAIT: Duration = Duration::from_secs(5);
const STACK_BYTES: usize = 128 << 10;

/// What is asked of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Hold the sandbox still until this connection ends.
    Freeze,
    /// Over the connection of a freeze: say whether nothing has run since.
    Verify,
    /// Hand over the directory of layers that are in memory.
    Layers,
    /// Make a checkpoint.
    Checkpoint {
        comment: Option<String>,
        /// Of a copy, while things run.
        is_live: bool,
    },
    /// Go back to a checkpoint.
    Restore { id: String },
    /// Forget a checkpoint.
    Delete { id: String },
    /// End the guest and keep the files.
    Stop { reason: String },
    /// About the network.
    Network(NetworkOrder),
}

/// Its answer: the id of the checkpoint it was about, what was asked for as JSON, or nothing.
pub(crate) type Answer = Result<String, Fault>;

/// A change that takes the guest away for a moment, for the thread that owns it.
#[derive(Debug)]
pub(crate) struct ControlCommand {
    pub(crate) order: Order,
    pub(crate) changing: LayerChangeGuard,
    reply: Sender<Answer>,
}

impl ControlCommand {
    /// Answers the client, if it still waits. Others may change things from then on.
    pub(crate) fn answer(self, answer: Answer) {
        drop(self.changing);
        let _ = self.reply.send(answer);
    }
}

/// Where a supervisor's threads meet.
#[derive(Debug)]
pub(crate) struct ControlServer {
    pub(crate) layout: Layout,
    pub(crate) dir: PathBuf,
    pub(crate) freezer: Arc<Freezer>,
    /// The way out, where the sandbox has one. Another one when its guest is started anew.
    egress: Mutex<Option<ProxyHandle>>,
    /// The directory of layers that are in memory.
    layers: Option<OwnedFd>,
    commands: Mutex<VecDeque<ControlCommand>>,
    /// Readable when there are commands.
    wake: OwnedFd,
    listener: OwnedFd,
    clients: AtomicU32,
}

impl ControlServer {
    /// Listens in the sandbox's directory.
    pub(crate) fn new(
        layout: Layout,
        dir: PathBuf,
        freezer: Arc<Freezer>,
        layers: Option<OwnedFd>,
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
            layers,
            commands: Mutex::default(),
            wake,
        })
    }

    /// Sets the way out that is asked from now on.
    pub(crate) fn set_egress(&self, proxy: Option<ProxyHandle>) {
        *self.egress.lock().unwrap_or_else(PoisonError::into_inner) = proxy;
    }

    fn answer_about_network(&self, order: NetworkOrder) -> Answer {
        // An order may take long, and must not hold up a change of the guest.
        let proxy = self
            .egress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        network::answer(proxy.as_ref(), order)
    }

    /// The directory of layers that are in memory.
    pub(crate) fn layers(&self) -> Result<OwnedFd, Fault> {
        let layers = self.layers.as_ref().map(OwnedFd::try_clone);
        layers
            .ok_or_else(workspace::gone_with_memory)?
            .map_err(|error| fault::plain_io("cannot copy a file descriptor", error))
    }

    /// Where clients knock; readable when [`Self::admit`] has somebody to admit.
    pub(crate) fn door(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Serves those who knock, each from a thread of its own for as long as it takes: an idle
    /// supervisor has none.
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
                // The connection has ended with the thread, and the client says so.
                self.clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Readable when [`Self::take`] has something.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn commands(&self) -> MutexGuard<'_, VecDeque<ControlCommand>> {
        // A queue is never half changed.
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next command.
    pub(crate) fn take(&self) -> Option<ControlCommand> {
        let mut commands = self.commands();
        let command = commands.pop_front();
        if commands.is_empty() {
            // Under the lock, so that a command that comes between is not lost.
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

    /// Copies the writable layers while everything is held still.
    fn copy(&self, comment: Option<&str>) -> Answer {
        let changing = self.freezer.change()?;
        let held = changing.freeze()?;
        let verify = || held.verify();
        let taken = change::copy_checkpoint(&self.layout, &self.dir, comment, &verify);
        drop(held);
        taken.map(|checkpoint| checkpoint.id)
    }

    fn delete(&self, id: String) -> Answer {
        let _changing = self.freezer.change()?;
        stack::checkpoint(&self.dir, &id)?;
        stack::remove_checkpoint(&self.dir, &id)?;
        Ok(id)
    }

    /// Merges layers of a stack that has grown, while everybody goes on.
    pub(crate) fn flatten(self: &Arc<Self>) {
        let control = Arc::clone(self);
        // Without a thread now, the next checkpoint tries again.
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

    /// Removes what was thrown away, while everybody goes on.
    pub(crate) fn clear(self: &Arc<Self>, places: Vec<PathBuf>) {
        let control = Arc::clone(self);
        // What is not removed now is removed by a sweep.
        let _ = spawn(move || {
            for place in places {
                let _ = trash::remove(&control.layout, &place);
            }
            let _ = store::collect_garbage(&control.layout);
        });
    }
}

/// The socket in the sandbox's directory.
fn open_socket(dir_path: &Path) -> Result<OwnedFd, Fault> {
    let broken = |errno| fault::io("make the control socket of", dir_path, errno);
    let dir = open_dir(dir_path).map_err(broken)?;
    // One of an earlier life.
    let _ = std::fs::remove_file(dir_path.join(CONTROL));
    let listener = new_socket().map_err(broken)?;
    bind(&listener, &address(&dir).map_err(broken)?).map_err(broken)?;
    listen(&listener, BACKLOG).map_err(broken)?;
    set_nonblocking(&listener)?;
    Ok(listener)
}

/// Runs it on a thread of its own.
pub(crate) fn spawn(body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
    builder.spawn(body).map(|_| ())
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

/// Through the directory's descriptor, for paths may be longer than an address holds (unix(7)).
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
                // Anything else than a question means that the client has hung up or died.
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
                // A client that is gone needs none.
                let _ = handover::hand_over(socket, &[layers.as_fd()]);
                return;
            }
            Err(fault) => Err(fault),
        },
        Ok(Some(Order::Checkpoint {
            comment,
            is_live: true,
        })) => control.copy(comment.as_deref()),
        Ok(Some(Order::Delete { id })) => control.delete(id),
        Ok(Some(Order::Network(order))) => control.answer_about_network(order),
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
    // A client that is gone needs no answer.
    if let Ok(bytes) = encode(message) {
        let _ = rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL);
    }
}

/// `None` when the other end is gone.
fn receive<T: serde::de::DeserializeOwned>(socket: &OwnedFd) -> Result<Option<T>, Fault> {
    let mut bytes = vec![0_u8; PACKET_BYTES];
    match rustix::io::read(socket, bytes.as_mut_slice()) {
        Ok(0) | Err(_) => Ok(None),
        Ok(count) => decode(&bytes[..count], "control message")
            .map(Some)
            .map_err(|error| fault::internal(error.to_string())),
    }
}

/// Gives an order to the supervisor of the sandbox in `dir` and waits for the answer. The connection
/// comes back with it.
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

/// Asks over the connection of a freeze whether nothing has run since.
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

/// Gives an order and waits for nothing.
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

/// The directory of the layers of the sandbox in `dir`, which are in memory.
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

/// Ends a connection and waits until the other side has done what that means.
pub(crate) fn hang_up(socket: &OwnedFd) {
    if shutdown(socket, Shutdown::Write).is_ok() {
        wait_readable(socket, Some(THAW_WAIT));
    }
}
