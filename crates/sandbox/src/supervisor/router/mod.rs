//! Main loop of a supervisor: passes frames between many clients and one guest.
//!
//! Request ids are translated. All other fields are passed on unchanged, so credit works from end
//! to end and the loop buffers at most one window for each channel of a request. The loop is one
//! thread with one poll(2).
//!
//! Clients are processes of the same user; one that violates the protocol is disconnected. The
//! guest is untrusted; if it violates the protocol, the sandbox ends. If a client disconnects, its
//! open requests are cancelled.

mod client;
mod idle;
mod memory;
mod renew;
mod route;

use crate::backend::Owner;
use crate::breach::LimitBreach;
use crate::control::ControlServer;
use crate::handle::LimitCounts;
use crate::link::{GuestLink, Outgoing, StreamSet, until, wire_fault};
use crate::supervisor::Timing;
use client::Client;
use glovebox_proto::limits::MAX_OPEN_REQUESTS;
use glovebox_proto::{
    Code, Decoder, Fault, FrameKind, Header, Hello, Reply, Request, RequestId, Role, WireError,
    decode, encode,
};
use idle::IdleWatch;
use memory::with_limits;
use route::{ClientKey, Route};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt::socket_peercred};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of clients served at once. More wait in the listener's backlog.
const MAX_CLIENTS: usize = 512;
/// Number of bytes waiting for the guest above which clients are not read.
const GUEST_HIGH_WATER_BYTES: usize = 1 << 20;
/// Maximum time for a client to send its greeting.
const GREET_WAIT: Duration = Duration::from_secs(10);
/// Maximum time for clients to receive the last replies.
const FAREWELL_WAIT: Duration = Duration::from_millis(500);

/// Reason for which the loop ended.
#[derive(Debug)]
pub(crate) enum EndReason {
    /// A client requested a shutdown.
    Shutdown,
    /// A client requested a stop that keeps the files. Holds its reason.
    Stopped(String),
    /// The wall-clock limit passed. Holds its value in milliseconds.
    Wall(u64),
    /// No client was connected for this long.
    Lease(Duration),
    /// No client was connected and no job ran for this long.
    Idle(Duration),
    /// The guest is gone or violated the protocol.
    Lost(Fault),
    /// The sandbox has not ended: a command waits in the control server.
    CommandPending,
}

/// State of the loop.
#[derive(Debug)]
pub(crate) struct Router {
    reader: OwnedFd,
    writer: OwnedFd,
    decoder: Decoder,
    to_guest: Outgoing,
    /// Greeting sent to clients: the guest's own.
    hello: Vec<u8>,
    listener: OwnedFd,
    clients: BTreeMap<ClientKey, Client>,
    last_client: ClientKey,
    routes: HashMap<u32, Route>,
    last_id: u32,
    has_shutdown: bool,
    idle_since: Instant,
    idle: IdleWatch,
    limits_seen: LimitCounts,
}

impl Router {
    pub(crate) fn new(greeted: GuestLink, listener: OwnedFd) -> Result<Self, Fault> {
        let GuestLink {
            reader,
            writer,
            decoder,
            hello,
        } = greeted;
        Ok(Self {
            reader,
            writer,
            decoder,
            to_guest: Outgoing::default(),
            hello: encode(&hello)?,
            listener,
            clients: BTreeMap::new(),
            last_client: 0,
            routes: HashMap::new(),
            last_id: 0,
            has_shutdown: false,
            idle_since: Instant::now(),
            idle: IdleWatch::default(),
            limits_seen: LimitCounts::default(),
        })
    }

    /// Serves clients until the sandbox ends or a control command arrives.
    pub(crate) fn run(
        &mut self,
        owner: &dyn Owner,
        timing: Timing,
        control: &Arc<ControlServer>,
    ) -> EndReason {
        self.limits_seen = LimitCounts::of(owner);
        let end = loop {
            if let Err(end) = self.turn(owner, timing, control) {
                break end;
            }
        };
        match end {
            // The guest ends after its reply, so the end of the link is expected.
            EndReason::Lost(_) if self.has_shutdown => EndReason::Shutdown,
            end => end,
        }
    }

    /// Returns true if a request is open.
    pub(crate) fn is_busy(&self) -> bool {
        !self.routes.is_empty()
    }

    /// Continues with another guest. Requests that were open with the old one end with `fault`.
    pub(crate) fn replace(&mut self, greeted: GuestLink, fault: &Fault) -> Result<(), Fault> {
        for (_, route) in std::mem::take(&mut self.routes) {
            if let Some(client) = route.client.and_then(|key| self.clients.get_mut(&key)) {
                client.ids.remove(&route.client_id);
                send_reply(client, route.client_id, &Err(fault.clone()));
            }
        }
        self.hello = encode(&greeted.hello)?;
        self.reader = greeted.reader;
        self.writer = greeted.writer;
        self.decoder = greeted.decoder;
        // Frames queued for the old guest must not reach the new one.
        self.to_guest = Outgoing::default();
        self.forget_idle_check();
        Ok(())
    }

    /// Waits once and handles all events.
    fn turn(
        &mut self,
        owner: &dyn Owner,
        timing: Timing,
        control: &Arc<ControlServer>,
    ) -> Result<(), EndReason> {
        if let Some(idle) = timing.idle {
            self.check_idle(idle)?;
        }
        let deadline = self.next_deadline(timing)?;
        let Ok(left) = until(deadline) else {
            return Ok(());
        };
        let takes_more = self.to_guest.len() <= GUEST_HIGH_WATER_BYTES;
        let mut fds = Vec::with_capacity(5 + self.clients.len());
        fds.push(PollFd::new(&self.reader, PollFlags::IN));
        let is_writing = !self.to_guest.is_empty();
        fds.push(PollFd::new(
            &self.writer,
            if is_writing {
                PollFlags::OUT
            } else {
                PollFlags::empty()
            },
        ));
        let is_accepting = self.clients.len() < MAX_CLIENTS;
        fds.push(PollFd::new(
            &self.listener,
            if is_accepting {
                PollFlags::IN
            } else {
                PollFlags::empty()
            },
        ));
        fds.push(PollFd::from_borrowed_fd(control.wake(), PollFlags::IN));
        fds.push(PollFd::from_borrowed_fd(control.door(), PollFlags::IN));
        for client in self.clients.values() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, takes_more);
            flags.set(PollFlags::OUT, !client.outgoing.is_empty());
            fds.push(PollFd::new(&client.socket, flags));
        }
        match poll(&mut fds, left.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(EndReason::Lost(gone(&format!(": {errno}")))),
        }
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        let keys: Vec<ClientKey> = self.clients.keys().copied().collect();

        if !ready[0].is_empty() {
            self.read_guest(owner, timing)?;
        }
        if !ready[1].is_empty() {
            self.flush_guest()?;
        }
        for (key, ready) in keys.into_iter().zip(&ready[5..]) {
            self.serve_client(key, *ready)?;
        }
        if !ready[2].is_empty() {
            self.accept();
        }
        self.drop_broken()?;
        if !ready[4].is_empty() {
            control.admit();
        }
        if ready[3].is_empty() {
            Ok(())
        } else {
            Err(EndReason::CommandPending)
        }
    }

    fn next_deadline(&self, timing: Timing) -> Result<Option<Instant>, EndReason> {
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        let mut sooner = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
        if let Some((at, wall_ms)) = timing.wall {
            if at <= now {
                return Err(EndReason::Wall(wall_ms));
            }
            sooner(at);
        }
        if let Some(lease) = timing.lease
            && self.clients.is_empty()
            && let Some(at) = self.idle_since.checked_add(lease)
        {
            if at <= now {
                return Err(EndReason::Lease(lease));
            }
            sooner(at);
        }
        if let Some(at) = timing.idle.and_then(|idle| self.idle_check_at(idle)) {
            sooner(at);
        }
        for client in self.clients.values().filter(|client| !client.has_greeted) {
            sooner(client.since + GREET_WAIT);
        }
        Ok(next)
    }

    fn accept(&mut self) {
        while self.clients.len() < MAX_CLIENTS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = accept_with(&self.listener, flags) else {
                return;
            };
            // The directory is accessible to this user only; this is a second check.
            let is_ours =
                socket_peercred(&socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid());
            if !is_ours {
                continue;
            }
            let mut client = Client::new(socket);
            client.send(
                Header::control(FrameKind::Hello, RequestId(0), self.hello.len() as u32),
                &self.hello,
            );
            self.last_client += 1;
            self.clients.insert(self.last_client, client);
        }
    }

    /// Removes broken clients and those without a greeting, and cancels their open requests.
    fn drop_broken(&mut self) -> Result<(), EndReason> {
        let is_over = |client: &Client| {
            client.is_broken || (!client.has_greeted && client.since.elapsed() >= GREET_WAIT)
        };
        let over: Vec<ClientKey> = self
            .clients
            .iter()
            .filter(|(_, client)| is_over(client))
            .map(|(key, _)| *key)
            .collect();
        for key in over {
            let Some(client) = self.clients.remove(&key) else {
                continue;
            };
            for id in client.ids.values() {
                let Some(route) = self.routes.get_mut(id) else {
                    continue;
                };
                let credits = route.abandon();
                self.tell_guest(Header::control(FrameKind::Cancel, RequestId(*id), 0), &[])?;
                for (channel, bytes) in credits {
                    self.tell_guest(
                        Header::credit(RequestId(*id), channel),
                        &bytes.to_le_bytes(),
                    )?;
                }
            }
            if self.clients.is_empty() {
                self.idle_since = Instant::now();
            }
        }
        Ok(())
    }

    fn tell_guest(&mut self, header: Header, payload: &[u8]) -> Result<(), EndReason> {
        self.to_guest
            .send(&self.writer, header, payload)
            .map_err(|errno| EndReason::Lost(gone(&format!(": {errno}"))))
    }

    fn flush_guest(&mut self) -> Result<(), EndReason> {
        self.to_guest
            .flush(&self.writer)
            .map_err(|errno| EndReason::Lost(gone(&format!(": {errno}"))))
    }

    // From clients to the guest.

    fn serve_client(&mut self, key: ClientKey, ready: PollFlags) -> Result<(), EndReason> {
        // Taken out, so that its frames can change the rest of the state.
        let Some(mut client) = self.clients.remove(&key) else {
            return Ok(());
        };
        if ready.contains(PollFlags::OUT) {
            client.flush();
        }
        if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) && !client.is_broken {
            client.read();
            let mut decoder = std::mem::take(&mut client.decoder);
            let outcome = loop {
                match decoder.next_frame() {
                    Ok(None) => break Ok(true),
                    Ok(Some(frame)) => {
                        match self.take_from_client(key, &mut client, frame.header, frame.payload) {
                            Ok(true) => {}
                            other => break other,
                        }
                    }
                    Err(_) => break Ok(false),
                }
            };
            client.decoder = decoder;
            client.is_broken |= !matches!(outcome, Ok(true));
            self.clients.insert(key, client);
            return outcome.map(|_| ());
        }
        self.clients.insert(key, client);
        Ok(())
    }

    /// Handles a frame. Returns false if the client violated the protocol.
    fn take_from_client(
        &mut self,
        key: ClientKey,
        client: &mut Client,
        header: Header,
        payload: &[u8],
    ) -> Result<bool, EndReason> {
        let client_id = header.id.0;
        if header.kind == FrameKind::Hello {
            let is_fine = !client.has_greeted && Hello::accept(payload, Role::Host).is_ok();
            client.has_greeted = true;
            return Ok(is_fine);
        }
        if !client.has_greeted {
            return Ok(false);
        }
        if header.kind == FrameKind::Request {
            return self.open_route(key, client, client_id, payload);
        }
        // The client may have sent this before it received the reply, so an unknown id is not a
        // violation.
        let Some(id) = client.ids.get(&client_id).copied() else {
            return Ok(true);
        };
        let Some(route) = self.routes.get_mut(&id) else {
            return Ok(true);
        };
        let booked = match header.kind {
            FrameKind::Data => route.input(header.channel, header.len),
            FrameKind::Credit => match <[u8; 4]>::try_from(payload) {
                Ok(bytes) => route.credit_from_client(header.channel, u32::from_le_bytes(bytes)),
                Err(_) => return Ok(false),
            },
            FrameKind::Cancel => Ok(()),
            _ => return Ok(false),
        };
        if booked.is_err() {
            return Ok(false);
        }
        self.tell_guest(
            Header {
                id: RequestId(id),
                ..header
            },
            payload,
        )?;
        Ok(true)
    }

    fn open_route(
        &mut self,
        key: ClientKey,
        client: &mut Client,
        client_id: u32,
        payload: &[u8],
    ) -> Result<bool, EndReason> {
        let Ok(request) = decode::<Request>(payload, "request") else {
            return Ok(false);
        };
        if client.ids.contains_key(&client_id) {
            return Ok(false);
        }
        if self.routes.len() >= MAX_OPEN_REQUESTS {
            let fault = Fault::failed(
                Code::Busy,
                format!("{MAX_OPEN_REQUESTS} requests are open already"),
            )
            .retryable();
            send_reply(client, client_id, &Err(fault));
            return Ok(true);
        }
        self.has_shutdown |= matches!(request, Request::Shutdown);
        let RequestId(id) = self.next_id();
        client.ids.insert(client_id, id);
        self.routes
            .insert(id, Route::new(key, client_id, StreamSet::of(&request)));
        self.tell_guest(
            Header::control(FrameKind::Request, RequestId(id), payload.len() as u32),
            payload,
        )?;
        Ok(true)
    }

    // From the guest to clients.

    fn read_guest(&mut self, owner: &dyn Owner, timing: Timing) -> Result<(), EndReason> {
        let mut decoder = std::mem::take(&mut self.decoder);
        match rustix::io::read(&self.reader, decoder.space()) {
            Ok(0) => return Err(EndReason::Lost(gone(""))),
            Ok(count) => decoder.filled(count),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(EndReason::Lost(gone(&format!(": {errno}")))),
        }
        let outcome = loop {
            match decoder.next_frame() {
                Ok(None) => break Ok(()),
                Ok(Some(frame)) => {
                    self.take_from_guest(owner, timing, frame.header, frame.payload)?;
                }
                Err(error) => break Err(error),
            }
        };
        self.decoder = decoder;
        outcome.map_err(|error| EndReason::Lost(wire_fault(&error)))
    }

    fn take_from_guest(
        &mut self,
        owner: &dyn Owner,
        timing: Timing,
        header: Header,
        payload: &[u8],
    ) -> Result<(), EndReason> {
        let broke = |error: WireError| EndReason::Lost(wire_fault(&error));
        // TRUST: the guest chose the id. It must be that of an open request.
        let id = header.id.0;
        let Some(route) = self.routes.get_mut(&id) else {
            return Err(broke(WireError::BadHeader(
                "frame for a request that is not open",
            )));
        };
        let is_news = match header.kind {
            FrameKind::Data => route
                .output(header.channel, header.len, header.is_last)
                .map_err(broke)?,
            FrameKind::Credit => {
                let bytes = <[u8; 4]>::try_from(payload)
                    .map_err(|_| broke(WireError::BadHeader("credit frame without its amount")))?;
                route
                    .credit_from_guest(header.channel, u32::from_le_bytes(bytes))
                    .map_err(broke)?;
                true
            }
            FrameKind::Reply => true,
            FrameKind::Hello | FrameKind::Request | FrameKind::Cancel => {
                return Err(broke(WireError::BadHeader(
                    "a frame kind only a host sends",
                )));
            }
        };
        let (client_id, key) = (route.client_id, route.client);
        if key.is_none() && header.kind == FrameKind::Data {
            let credit = route.refill(header.channel);
            if let Some((channel, bytes)) = credit {
                self.tell_guest(Header::credit(RequestId(id), channel), &bytes.to_le_bytes())?;
            }
        }
        if header.kind == FrameKind::Reply {
            self.routes.remove(&id);
            self.take_idle_reply(id, payload, timing.idle)?;
        }
        let Some(client) = key.and_then(|key| self.clients.get_mut(&key)) else {
            return Ok(());
        };
        if header.kind == FrameKind::Reply {
            client.ids.remove(&client_id);
            if let Some(reply) = with_limits(payload, owner, &self.limits_seen) {
                send_reply(client, client_id, &reply);
                return Ok(());
            }
        }
        if is_news {
            client.send(
                Header {
                    id: RequestId(client_id),
                    ..header
                },
                payload,
            );
        }
        Ok(())
    }

    /// Answers all open requests with the reason of the end, and waits briefly until clients have
    /// received it.
    pub(crate) fn say_farewell(&mut self, owner: &dyn Owner, end: &EndReason) {
        let fault = match end {
            EndReason::Shutdown | EndReason::CommandPending => {
                Fault::lost(Code::LinkLost, "the sandbox was killed")
            }
            EndReason::Stopped(_) => Fault::lost(Code::LinkLost, "the sandbox was stopped"),
            EndReason::Wall(wall_ms) => LimitBreach::wall_clock(*wall_ms).into_fault(),
            EndReason::Lease(_) | EndReason::Idle(_) => LimitBreach::lease().into_fault(),
            EndReason::Lost(fault) => match (owner.limit_breach(), owner.exit_reason()) {
                (Some(breach), _) => breach.into_fault(),
                (None, Some(exit_reason)) => Fault {
                    message: format!("{}; {exit_reason}", fault.message),
                    ..fault.clone()
                },
                (None, None) => fault.clone(),
            },
        };
        for route in self.routes.values() {
            if let Some(client) = route.client.and_then(|key| self.clients.get_mut(&key)) {
                send_reply(client, route.client_id, &Err(fault.clone()));
            }
        }
        let deadline = Instant::now() + FAREWELL_WAIT;
        loop {
            self.clients
                .retain(|_, client| !client.is_broken && !client.outgoing.is_empty());
            let mut fds: Vec<_> = self
                .clients
                .values()
                .map(|client| PollFd::new(&client.socket, PollFlags::OUT))
                .collect();
            if fds.is_empty() {
                return;
            }
            let Ok(left) = until(Some(deadline)) else {
                return;
            };
            if poll(&mut fds, left.as_ref()).is_err() {
                return;
            }
            drop(fds);
            for client in self.clients.values_mut() {
                client.flush();
            }
        }
    }
}

fn gone(detail: &str) -> Fault {
    Fault::lost(
        Code::LinkLost,
        format!("the link to the guest ended{detail}"),
    )
}

fn send_reply(client: &mut Client, client_id: u32, reply: &Result<Reply, Fault>) {
    if let Ok(payload) = encode(reply) {
        let header = Header::control(FrameKind::Reply, RequestId(client_id), payload.len() as u32);
        client.send(header, &payload);
    }
}
