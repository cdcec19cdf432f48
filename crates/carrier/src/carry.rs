//! Link to a guest for callers: a socket, and a handle that reports the state of the link.

use crate::connect::{Attempt, Connect, ConnectFailure, Pipe};
use crate::fault::system_fault;
use crate::pump::{Pump, PumpCx};
use crate::status::{LinkShared, Outage};
use crate::times::{Sizes, Times};
use glovebox_proto::resume::Identity;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::LinkMeter;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::rand::{GetRandomFlags, getrandom};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Guest that can be reached.
#[derive(Debug)]
pub struct LinkedGuest {
    /// Frames to and from the guest, as if it were a child with this socket as its standard
    /// streams. The stream ends when the guest has ended or is lost.
    pub stream: OwnedFd,
    /// Handle of the link.
    pub link: CarriedLink,
}

/// Link to a guest over pipes that may break. Dropping it closes the link.
#[derive(Debug)]
pub struct CarriedLink {
    shared: Arc<LinkShared>,
    notice: Duration,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Opens the first pipe to a guest, and carries frames over it and its successors. Blocks until the
/// first pipe is open, but not until the guest has answered, so that the handshake travels with the
/// first bytes. `deadline` applies to the pipe and to the answer.
///
/// # Errors
/// The fault of the last attempt to open the pipe; `io` if no socket or thread can be created.
/// The fault of the last attempt to open the pipe; a failure to make sockets or a thread.
pub fn carry(
    connect: Box<dyn Connect>,
    times: Times,
    sizes: Sizes,
    deadline: Instant,
) -> Result<LinkedGuest, Fault> {
    let connect: Arc<dyn Connect> = Arc::from(connect);
    let first = open_first(&*connect, times, deadline)?;
    let flags = SocketFlags::CLOEXEC;
    let (stream, local) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|errno| system_fault("make a socket pair", errno))?;
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|errno| system_fault("make an event descriptor", errno))?;
    let shared = Arc::new(LinkShared::new(wake));
    let pump = Pump::new(
        PumpCx {
            connect,
            times,
            sizes,
            deadline,
            identity: random_identity()?,
            local,
            shared: Arc::clone(&shared),
        },
        first,
    )?;
    let thread = std::thread::Builder::new()
        .name("carrier".to_owned())
        .spawn(move || pump.run())
        .map_err(|error| Fault::failed(Code::Io, format!("cannot start a thread: {error}")))?;
    let link = CarriedLink {
        shared,
        notice: times.notice,
        thread: Mutex::new(Some(thread)),
    };
    Ok(LinkedGuest { stream, link })
}

/// Opens the first pipe. Retries while the service asks to wait.
fn open_first(connect: &dyn Connect, times: Times, deadline: Instant) -> Result<Pipe, Fault> {
    let mut failures = 0;
    loop {
        let (fault, after) = match connect.connect(Attempt::First, deadline) {
            Ok(pipe) => return Ok(pipe),
            Err(ConnectFailure::Final(fault)) => return Err(fault),
            Err(ConnectFailure::Retry { fault, after }) => (fault, after),
        };
        let pause = times.backoff.pause(failures);
        let pause = pause.max(after.unwrap_or_default());
        if Instant::now() + pause >= deadline {
            return Err(fault);
        }
        std::thread::sleep(pause);
        failures += 1;
    }
}

impl CarriedLink {
    /// Returns the fault if the guest is lost: the window passed, the guest refused or broke the
    /// protocol, or the service reported it gone. `None` also after an orderly end.
    pub fn lost(&self) -> Option<Fault> {
        self.shared.status().lost.clone()
    }

    /// Returns the counters of the link.
    pub fn meter(&self) -> &Arc<LinkMeter> {
        &self.shared.meter
    }

    /// Returns the number of times that a broken pipe was replaced.
    pub fn reconnects(&self) -> u64 {
        self.shared.meter.stats().reconnects
    }

    /// Returns the current outage, once it has lasted for the time of [`Times::notice`].
    pub fn waiting_since(&self) -> Option<Outage> {
        let outage = self.shared.status().outage?;
        (outage.since.elapsed() >= self.notice).then_some(outage)
    }

    /// Tells the guest to end its jobs and itself, and closes the link. Blocks for a few seconds at
    /// most. Bytes that the caller wrote before still reach the guest.
    pub fn close(&self) {
        self.shared.is_closing.store(true, Ordering::Release);
        self.shared.wake();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for CarriedLink {
    fn drop(&mut self) {
        self.close();
    }
}

fn random_identity() -> Result<Identity, Fault> {
    let mut session = [0; 16];
    let mut key = [0; 32];
    for bytes in [&mut session[..], &mut key[..]] {
        getrandom(bytes, GetRandomFlags::empty())
            .map_err(|errno| system_fault("get random bytes", errno))?;
    }
    Ok(Identity { session, key })
}
