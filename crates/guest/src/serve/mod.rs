//! Event loop of the guest: one thread and one epoll instance that owns all state.
//!
//! In: frames from the host, output of jobs, deaths of children, results of worker threads, timers.
//! Out: frames. Only the wait for events blocks. Worker threads do everything else that may block.
//! The loop does not read what it would have to buffer without bound: while the link is congested
//! it takes no result and no followed output, and with many more unread answers it reads no request
//! either.

mod dispatch;
mod transfers;

use crate::files::TopLayer;
use crate::frame_writer::LinkEnd;
use crate::freeze::{Freeze, FreezeEffect};
use crate::jobs::{CommandDefaults, Jobs};
use crate::link::Link;
use crate::network_use::NetworkUse;
use crate::poll::{Poll, Token};
use crate::programs::Programs;
use crate::requests::Requests;
use crate::timers::Timer;
use crate::transfers::{Buffers, StepOutcome};
use crate::workers::Workers;
use glovebox_jail::confine::MonitorClient;
use glovebox_jail::process::{self, Separation, Wardens};
use glovebox_jail::processors::Processors;
use glovebox_jail::stage0::{AccessRules, NameServer};
use glovebox_proto::{Capability, Facts, FrameRef, Hello, RequestId, Role, WireError};
use rustix::event::epoll::Event;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use rustix::time::Timespec;
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time at the end for the last frames to be sent; below, for processes to die.
const LAST_FRAMES: Duration = Duration::from_secs(1);
const LAST_KILLS: Duration = Duration::from_secs(5);
/// Maximum time at the end for a step of a transfer, so that it leaves nothing half-written.
const LAST_STEPS: Duration = Duration::from_secs(1);

/// Settings and resources of the guest.
#[derive(Debug)]
pub(crate) struct Cx {
    /// Pidfd of the supervisor, with which the guest must end; it is readable when the supervisor
    /// is dead.
    pub(crate) supervisor: Option<OwnedFd>,
    /// Landlock ruleset for commands and file operations.
    pub(crate) landlock: Option<OwnedFd>,
    /// Protection of this process from the commands.
    pub(crate) separation: Separation,
    /// Rules to build the Landlock ruleset from; `None` without a sandbox.
    pub(crate) walls: Option<AccessRules>,
    /// Resolver for name lookups in a sandbox with a network namespace of its own.
    pub(crate) names: Option<NameServer>,
    /// Monitor of a sandbox without namespaces.
    pub(crate) monitor: Option<MonitorClient>,
    /// Base environment of commands.
    pub(crate) base_env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Absolute directory in which commands and relative paths begin.
    pub(crate) default_cwd: Vec<u8>,
    /// Processors that commands start on; `None` for all.
    pub(crate) processors: Option<Processors>,
    /// Limit on open files of each command; `None` to inherit the limit of this process.
    pub(crate) open_files: Option<u32>,
    /// True if this is the init of a pid namespace, whose exit ends every process in it.
    pub(crate) is_init: bool,
    /// Facts learnt before serving (refused calls, Landlock ABI, open descriptors).
    pub(crate) facts: Facts,
}

/// Reason why serving ended other than at the host's request.
#[derive(Debug)]
pub(crate) enum ServeError {
    /// The host violated the protocol.
    Protocol(WireError),
    /// A system call failed that the guest depends on.
    System(&'static str, Errno),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Protocol(error) => write!(f, "the host broke the protocol: {error}"),
            Self::System(step, errno) => write!(f, "cannot {step}: {errno}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// Kinds of events in one turn, besides streams.
#[derive(Debug, Default)]
struct TurnEvents {
    is_request: bool,
    is_result: bool,
    /// True if a child of this process has died.
    has_dead: bool,
    /// True if a command has ended.
    has_ended: bool,
}

/// Current epoll registrations that depend on congestion.
#[derive(Debug, Default)]
struct PollInterests {
    /// True if the workers' descriptor is not watched.
    is_result_paused: bool,
    /// True if the link's input is not watched.
    is_request_paused: bool,
    /// True if the link's output is watched.
    is_output_watched: bool,
}

/// The event loop and everything it drives.
pub(crate) struct EventLoop {
    poll: Poll,
    requests: Requests,
    jobs: Jobs,
    freeze: Freeze,
    workers: Workers<StepOutcome>,
    children: OwnedFd,
    supervisor: Option<OwnedFd>,
    /// Rules from which the rulesets for commands and files are built.
    walls: Option<AccessRules>,
    /// Facts learnt before serving.
    facts: Facts,
    /// Absolute directory in which relative paths begin.
    default_cwd: Arc<[u8]>,
    /// Buffers for transfers.
    buffers: Arc<Buffers>,
    /// Buffer that tunnels read to.
    scratch: Vec<u8>,
    programs: Arc<Programs>,
    /// Upper layer of the sandbox's overlay; `None` outside a sandbox with namespaces.
    top_layer: Option<TopLayer>,
    listening: PollInterests,
    has_greeted: bool,
    is_shutting_down: bool,
}

/// Serves until the host closes the link, asks for shutdown or violates the protocol. When this
/// returns, no process that a command started is left (as init: none will outlive the exit).
///
/// Preconditions: no other thread runs, and no other code of this process waits for children.
///
/// # Errors
/// [`ServeError`]; the caller prints it as one line.
pub(crate) fn run(link_in: OwnedFd, link_out: OwnedFd, cx: Cx) -> Result<(), ServeError> {
    let is_init = cx.is_init;
    let mut event_loop = EventLoop::new(link_in, link_out, cx)?;
    let result = event_loop.work();
    if result.is_ok() && event_loop.is_shutting_down {
        event_loop.send_last_frames();
    }
    // The exit of an init kills every process of its namespace (pid_namespaces(7)). Elsewhere they
    // must be killed here.
    if !is_init {
        event_loop.drop_transfers();
        event_loop.jobs.end_everything(LAST_KILLS);
    }
    match result {
        Ok(()) | Err(LinkEnd::Closed) => Ok(()),
        Err(LinkEnd::Failed(errno)) => Err(ServeError::System("use the link", errno)),
        Err(LinkEnd::Violation(error)) => Err(ServeError::Protocol(error)),
    }
}

impl EventLoop {
    fn new(link_in: OwnedFd, link_out: OwnedFd, mut cx: Cx) -> Result<Self, ServeError> {
        let at = |step| move |errno| ServeError::System(step, errno);
        process::keep_heap_small();
        // Before the signalfd and before any thread: a SIGCHLD that one thread does not block is
        // discarded (its default action), and the child would not be reaped.
        process::reset_and_block_signals().map_err(at("block signals"))?;
        // A monitor reads the arguments of this process's system calls, so it must stay dumpable.
        // There, Landlock keeps commands out of its memory.
        if cx.monitor.is_none() {
            process::set_non_dumpable().map_err(at("close this process to others"))?;
        }
        // Init inherits orphans in any case. Elsewhere they would go to the init of the machine,
        // where no job could find and kill them.
        if !cx.is_init {
            process::become_subreaper().map_err(at("become a subreaper"))?;
        }
        for fd in [&link_in, &link_out] {
            let flags = rustix::fs::fcntl_getfl(fd).map_err(at("inspect the link"))?;
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK).map_err(at("set up the link"))?;
        }
        let dev_null = rustix::fs::open(
            c"/dev/null",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(at("open /dev/null"))?;
        let share =
            |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(at("share the ruleset"));
        let network = cx
            .names
            .take()
            .map(|names| NetworkUse::new(names.into_socket()));
        let for_workers = cx.landlock.take();
        let for_commands = match &cx.walls {
            Some(walls) => walls
                .for_commands(for_workers.as_ref())
                .map_err(|_| ServeError::System("build the rules for commands", Errno::INVAL))?,
            None => for_workers.as_ref().map(share).transpose()?,
        };
        let is_nested = cx.walls.as_ref().is_some_and(AccessRules::is_nested);
        if cx.facts.open_fds.is_empty() {
            cx.facts.open_fds = crate::facts::open_fds();
        }
        let mut wardens = Wardens::new(for_commands, cx.separation)
            .map_err(at("prepare for commands"))?
            .nested(is_nested);
        wardens.set_processors(cx.processors.as_ref());
        let programs = Arc::<Programs>::default();
        let default_cwd: Arc<[u8]> = cx.default_cwd.into();
        let defaults = CommandDefaults {
            env: cx.base_env,
            cwd: Arc::clone(&default_cwd),
            dev_null,
            programs: Arc::clone(&programs),
            limits: cx
                .open_files
                .map(|count| (Resource::Nofile, count.into()))
                .into_iter()
                .collect(),
            is_init: cx.is_init,
            monitor: cx.monitor,
        };
        let event_loop = Self {
            poll: Poll::new().map_err(at("make an epoll"))?,
            requests: Requests::new(Link::new(link_in, link_out)),
            jobs: Jobs::new(defaults, wardens, network),
            freeze: Freeze::default(),
            workers: Workers::new(for_workers).map_err(at("prepare for file operations"))?,
            children: process::child_signal_fd().map_err(at("watch for children"))?,
            supervisor: cx.supervisor,
            walls: cx.walls,
            facts: cx.facts,
            default_cwd,
            buffers: Arc::default(),
            scratch: Vec::new(),
            programs,
            top_layer: cx.is_init.then(TopLayer::begins),
            listening: PollInterests::default(),
            has_greeted: false,
            is_shutting_down: false,
        };
        event_loop.watch_all()?;
        Ok(event_loop)
    }

    fn watch_all(&self) -> Result<(), ServeError> {
        let at = |step| move |errno| ServeError::System(step, errno);
        let poll = &self.poll;
        poll.watch_input(self.requests.link.input(), Token::LinkIn)
            .map_err(at("watch the link"))?;
        poll.watch_input(&self.children, Token::Children)
            .map_err(at("watch for children"))?;
        poll.watch_input(self.jobs.ring(), Token::Ring)
            .map_err(at("watch for commands"))?;
        poll.watch_input(self.workers.wake(), Token::Workers)
            .map_err(at("watch for results"))?;
        if let Some(resolver) = self.jobs.resolver() {
            poll.watch_input(resolver.socket(), Token::Resolver)
                .map_err(at("watch for questions"))?;
        }
        if let Some(supervisor) = &self.supervisor {
            poll.watch_input(supervisor, Token::Supervisor)
                .map_err(at("watch the supervisor"))?;
        }
        Ok(())
    }

    fn work(&mut self) -> Result<(), LinkEnd> {
        let mut capabilities = vec![Capability::LogSpill];
        let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
        // EACCESS checks with the ids of file operations, as the real user id may differ.
        if rustix::fs::accessat(CWD, c"/dev/ptmx", access, AtFlags::EACCESS).is_ok() {
            capabilities.push(Capability::Pty);
        }
        if process::Census::take().is_ok() {
            capabilities.push(Capability::KillTree);
        }
        let hello = Hello::new(Role::Guest, &capabilities);
        self.requests
            .link
            .hello(&hello)
            .map_err(|_| LinkEnd::Failed(Errno::INVAL))?;
        let mut events = Vec::with_capacity(64);
        loop {
            // Before the wait, so that it does not delay the frames of the last turn.
            self.send()?;
            if self.is_shutting_down {
                return Ok(());
            }
            self.jobs.prepare_while_idle();
            let is_end_expected = self.jobs.is_end_expected();
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let wait = if is_end_expected || self.jobs.has_ready_streams() {
                Some(now)
            } else {
                self.requests.timers.wait()
            };
            events.clear();
            match self.poll.wait(&mut events, wait.as_ref()) {
                // The process whose end is expected may need this processor.
                Ok(0) if is_end_expected => rustix::thread::sched_yield(),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(LinkEnd::Failed(errno)),
            }
            let arrived = self.take_events(&events)?;
            self.jobs.read_ready_streams(&mut self.requests);
            if arrived.has_ended || arrived.has_dead {
                self.jobs.end_has_come();
                self.jobs.note_ends(&mut self.requests);
            }
            if arrived.has_dead {
                // The signal carries nothing that waiting for children does not return.
                while rustix::io::read(&self.children, &mut [0_u8; 128]).is_ok() {}
                self.jobs.reap_children(&mut self.requests);
            }
            self.fire_timers();
            if arrived.is_result && !self.requests.link.is_congested() {
                self.take_results();
            }
            if arrived.is_request {
                self.requests.link.fill()?;
            }
            self.take_requests()?;
            self.do_deferred().map_err(LinkEnd::Violation)?;
            for request in self.requests.take_ready() {
                self.advance_transfer(request);
            }
        }
    }

    /// Handles the events of streams, and returns which other kinds have occurred.
    fn take_events(&mut self, events: &[Event]) -> Result<TurnEvents, LinkEnd> {
        let mut arrived = TurnEvents::default();
        for event in events {
            match Token::of(event) {
                Some(Token::LinkIn) => arrived.is_request = true,
                Some(Token::Ring) => arrived.has_ended = true,
                Some(Token::Children) => arrived.has_dead = true,
                Some(Token::Workers) => arrived.is_result = true,
                Some(Token::Supervisor) => return Err(LinkEnd::Closed),
                Some(Token::Resolver) => self.jobs.answer_questions(),
                Some(Token::Output(job, stream)) => {
                    self.jobs.output_ready(&mut self.requests, job, stream);
                }
                Some(Token::Input(job)) => self.jobs.write_input(&mut self.requests, job),
                Some(Token::ExtraInput(job, index) | Token::ExtraOutput(job, index)) => {
                    self.jobs.extra_ready(&mut self.requests, job, index);
                }
                Some(Token::Tunnel(request)) => self.tunnel_ready(request),
                // Sending is attempted in every turn.
                Some(Token::LinkOut) | None => {}
            }
        }
        Ok(arrived)
    }

    /// Runs the timers that are due.
    fn fire_timers(&mut self) {
        // One census of /proc serves every job that is being killed.
        let census = OnceCell::new();
        while let Some(timer) = self.requests.timers.due() {
            let requests = &mut self.requests;
            match timer {
                Timer::Request(request) => self.jobs.wait_is_over(requests, request),
                Timer::Grace(id) => self.jobs.start_killing(requests, id),
                Timer::Deadline(id) => self.jobs.deadline_passed(requests, id),
                Timer::OomScore(id) => self.jobs.set_oom_score(id),
                Timer::Pair => self.jobs.prepare_pair(),
                Timer::Freeze => {
                    let effect = self.freeze.look_again(&mut self.jobs, requests);
                    self.after_freeze(effect);
                }
                Timer::Round(id) => self.jobs.kill_again(requests, id, &census),
            }
        }
    }

    /// Adds a freeze request.
    fn begin_freeze(&mut self, id: RequestId) {
        let effect = self.freeze.begin(&mut self.jobs, &mut self.requests, id);
        self.after_freeze(effect);
    }

    /// Ends a freeze request.
    fn end_freeze(&mut self, id: RequestId) {
        let effect = self.freeze.end(&mut self.jobs, &mut self.requests, id);
        self.after_freeze(effect);
    }

    fn after_freeze(&mut self, effect: FreezeEffect) {
        match effect {
            FreezeEffect::Nothing => {}
            FreezeEffect::Resume => self.resume(),
        }
    }

    /// Handles the deferred frames unless a freeze is in progress.
    fn do_deferred(&mut self) -> Result<(), WireError> {
        for (header, payload) in self.freeze.take_deferred() {
            self.handle(FrameRef {
                header,
                payload: &payload,
            })?;
        }
        Ok(())
    }

    /// Handles the frames that have arrived while there is room for answers.
    fn take_requests(&mut self) -> Result<(), LinkEnd> {
        // After reading, because the host may reuse an id as soon as it has received the answer.
        self.requests.forget_answered();
        // Handlers need all of `self`, and the frame borrows from the decoder.
        let mut decoder = std::mem::take(&mut self.requests.link.decoder);
        let mut result = Ok(());
        while result.is_ok() && !self.requests.link.is_full() && !self.is_shutting_down {
            result = match decoder.next_piece() {
                Ok(None) => break,
                Ok(Some(frame)) if self.has_greeted => self.handle(frame),
                Ok(Some(frame)) => self.greet(frame),
                Err(error) => Err(error),
            };
        }
        self.requests.link.decoder = decoder;
        result.map_err(LinkEnd::Violation)
    }

    fn greet(&mut self, frame: glovebox_proto::FrameRef<'_>) -> Result<(), WireError> {
        if frame.header.kind != glovebox_proto::FrameKind::Hello {
            return Err(WireError::BadHeader("the first frame is not a hello"));
        }
        Hello::accept(frame.payload, Role::Host)?;
        self.has_greeted = true;
        Ok(())
    }

    /// Sends queued frames, and adapts the epoll registrations to the congestion that remains.
    fn send(&mut self) -> Result<(), LinkEnd> {
        // Streams that found the link congested in the last turn have stopped and must be resumed,
        // even if this flush makes room.
        let was_congested = self.requests.link.is_congested();
        let Self {
            poll,
            requests,
            workers,
            listening,
            ..
        } = self;
        let link = &mut requests.link;
        let is_out = link.frame_writer().flush()?;
        if is_out == listening.is_output_watched {
            let output = link.frame_writer().fd();
            let result = if is_out {
                poll.forget(output)
            } else {
                poll.watch_output(output, Token::LinkOut)
            };
            result.map_err(LinkEnd::Failed)?;
            listening.is_output_watched = !is_out;
        }
        let is_congested = link.is_congested();
        if is_congested != listening.is_result_paused {
            poll.set_input(workers.wake(), Token::Workers, !is_congested)
                .map_err(LinkEnd::Failed)?;
            listening.is_result_paused = is_congested;
        }
        let is_full = link.is_full();
        if is_full != listening.is_request_paused {
            poll.set_input(link.input(), Token::LinkIn, !is_full)
                .map_err(LinkEnd::Failed)?;
            listening.is_request_paused = is_full;
        }
        if was_congested && !is_congested {
            self.resume();
        }
        Ok(())
    }

    /// Resumes everything that waited, after the link has room again or a freeze has ended.
    fn resume(&mut self) {
        self.requests.set_all_ready();
        self.jobs.resume(&mut self.requests);
    }

    /// Cancels all transfers; their half-written files are removed.
    fn drop_transfers(&mut self) {
        self.requests.cancel_trees();
        self.workers.close(LAST_STEPS);
        self.requests.open.clear();
    }

    fn send_last_frames(&mut self) {
        self.requests.link.frame_writer().close_to_workers();
        let until = Instant::now() + LAST_FRAMES;
        while let Ok(false) = self.requests.link.frame_writer().flush() {
            if Instant::now() > until {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
