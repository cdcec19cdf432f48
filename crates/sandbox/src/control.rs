//! The second door of a supervisor: what is asked of it and not of its guest.
//!
//! One order per connection over a sequenced-packet socket, one answer. A sandbox that was frozen
//! over a connection is let go when the connection ends, so a client cannot leave it frozen by dying.

use crate::fault;
use crate::freeze::Freezer;
use crate::layout::open_dir;
use glovebox_proto::{Code, Fault, decode, encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, shutdown, socket_with, sockopt::socket_peercred,
};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
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
}

/// Its answer.
pub(crate) type Answer = Result<(), Fault>;

/// Listens in the sandbox's directory and serves from threads of its own.
pub(crate) fn serve(dir_path: &Path, freezer: Arc<Freezer>) -> Result<(), Fault> {
    let broken = |errno| fault::io("make the control socket of", dir_path, errno);
    let dir = open_dir(dir_path).map_err(broken)?;
    // One of an earlier life.
    let _ = std::fs::remove_file(dir_path.join(CONTROL));
    let listener = new_socket().map_err(broken)?;
    bind(&listener, &address(&dir).map_err(broken)?).map_err(broken)?;
    listen(&listener, BACKLOG).map_err(broken)?;
    spawn(move || accept(&listener, &freezer))
        .map_err(|error| fault::plain_io("cannot start a thread for the control socket", error))
}

fn spawn(body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
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

fn accept(listener: &OwnedFd, freezer: &Arc<Freezer>) {
    let clients = Arc::new(AtomicU32::new(0));
    loop {
        let socket = match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) if is_ours(&socket) => socket,
            Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => continue,
            // Out of descriptors or memory, for now.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
            clients.fetch_sub(1, Ordering::Relaxed);
            let busy = Fault::failed(Code::Busy, "the supervisor serves too many clients");
            send(&socket, &Err::<(), _>(busy.retryable()));
            continue;
        }
        let (freezer, clients) = (Arc::clone(freezer), Arc::clone(&clients));
        // Without a thread the connection ends at once, and the client says so.
        let _ = spawn(move || {
            attend(&socket, &freezer);
            clients.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn attend(socket: &OwnedFd, freezer: &Arc<Freezer>) {
    if !wait_readable(socket, Some(ORDER_WAIT)) {
        return;
    }
    match receive::<Order>(socket) {
        Ok(Some(Order::Freeze)) => match freezer.freeze() {
            Ok(hold) => {
                send(socket, &Ok::<(), Fault>(()));
                // Readable means that the client has hung up or died; it has nothing more to say.
                wait_readable(socket, None);
                drop(hold);
            }
            Err(fault) => send(socket, &Err::<(), _>(fault)),
        },
        Ok(None) => {}
        Err(fault) => send(socket, &Err::<(), _>(fault)),
    }
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
pub(crate) fn order(dir: &Path, order: &Order, wait: Duration) -> Result<OwnedFd, Fault> {
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
    if !wait_readable(&socket, Some(wait)) {
        return Err(Fault::failed(
            Code::TimedOut,
            "the supervisor did not answer in time",
        ));
    }
    match receive::<Answer>(&socket)? {
        Some(answer) => answer.map(|()| socket),
        None => Err(Fault::lost(
            Code::LinkLost,
            "the supervisor ended without an answer",
        )),
    }
}

/// Ends a connection and waits until the other side has done what that means.
pub(crate) fn hang_up(socket: &OwnedFd) {
    if shutdown(socket, Shutdown::Write).is_ok() {
        wait_readable(socket, Some(THAW_WAIT));
    }
}
