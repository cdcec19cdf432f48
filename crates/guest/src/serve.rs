//! The guest's loop: one thread, one epoll, everything it owns in one place.
//!
//! In: frames from the host, output of jobs, deaths of children, results of worker threads, timers.
//! Out: frames. Nothing in here blocks except the wait at the top; what may block is done by
//! worker threads, and what would have to be buffered without bound is not read in the first place:
//! while the link is congested no result and no followed output is taken, and long before unread
//! answers add up to much, no request either.

use crate::files::TopLayer;
use crate::frame_writer::LinkEnd;
use crate::hold::Hold;
use crate::job::Job;
use crate::link::Link;
use crate::network_use::NetworkUse;
use crate::programs::Programs;
use crate::requests::PendingRequest;
use crate::timers::Timers;
use crate::transfers::{Buffers, Outcome};
use crate::workers::Workers;
use glovebox_jail::process::{self, Separation, Wardens};
use glovebox_jail::processors::Processors;
use glovebox_jail::stage0::{Names, Walls};
use glovebox_proto::{Capability, Facts, Hello, JobId, RequestId, Role, WireError};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::time::Timespec;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where logs spill to when they outgrow memory.
const SPILL_DIR: &[u8] = b"/tmp";
/// How long to wait for the last frame to leave, and for processes to die, at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LAST_KILLS: Duration = Duration::from_secs(5);
/// How long to wait at the end for a step of a transfer, so that it leaves nothing half-written.
const LAST_STEPS: Duration = Duration::from_secs(1);

/// Everything the guest is given.
#[derive(Debug)]
pub(crate) struct Cx {
    /// Pidfd of who must not be outlived; readable means it is dead.
    pub(crate) supervisor: Option<OwnedFd>,
    /// Landlock ruleset for commands and file operations.
    pub(crate) landlock: Option<OwnedFd>,
    /// What keeps commands from steering this process.
    pub(crate) separation: Separation,
    /// What the ruleset is built from.
    pub(crate) walls: Option<Walls>,
    /// Who answers questions for names, in a sandbox with a network of its own.
    pub(crate) names: Option<Names>,
    /// Environment that commands start from.
    pub(crate) base_env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Absolute directory that relative paths and commands start from.
    pub(crate) default_cwd: Vec<u8>,
    /// The processors that commands start on; `None` for all.
    pub(crate) processors: Option<Processors>,
    /// Whether this is the init of a pid namespace, whose exit ends everything in it.
    pub(crate) is_init: bool,
    /// What was learnt before serving (refused calls, Landlock ABI, open descriptors).
    pub(crate) facts: Facts,
}

/// Why serving ended other than by the host's wish.
#[derive(Debug)]
pub(crate) enum ServeError {
    /// The host broke the protocol.
    Protocol(WireError),
    /// A system call the guest cannot do without failed.
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

/// What an epoll event is about. The numbers are the upper half of the event's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    LinkIn,
    LinkOut,
    Children,
    Ring,
    Workers,
    Supervisor,
    Resolver,
    Output(JobId, usize),
    Input(JobId),
    Tunnel(RequestId),
}

impl Token {
    fn word(self) -> EventData {
        let (kind, id) = match self {
            Self::LinkIn => (0, 0),
            Self::LinkOut => (1, 0),
            Self::Children => (2, 0),
            Self::Ring => (3, 0),
            Self::Workers => (4, 0),
            Self::Supervisor => (5, 0),
            Self::Input(job) => (6, job.0),
            Self::Output(job, stream) => (7 + stream as u64, job.0),
            Self::Resolver => (9, 0),
            Self::Tunnel(request) => (10, request.0),
        };
        EventData::new_u64(kind << 32 | u64::from(id))
    }

    fn from_word(word: EventData) -> Option<Self> {
        let word = word.u64();
        let job = JobId(word as u32);
        Some(match word >> 32 {
            0 => Self::LinkIn,
            1 => Self::LinkOut,
            2 => Self::Children,
            3 => Self::Ring,
            4 => Self::Workers,
            5 => Self::Supervisor,
            6 => Self::Input(job),
            stream @ 7..=8 => Self::Output(job, (stream - 7) as usize),
            9 => Self::Resolver,
            10 => Self::Tunnel(RequestId(word as u32)),
            _ => return None,
        })
    }
}

/// What to watch a descriptor for that is watched now and then.
fn interest(is_on: bool) -> EventFlags {
    if is_on {
        EventFlags::IN
    } else {
        EventFlags::empty()
    }
}

/// The guest.
pub(crate) struct Server {
    pub(crate) cx: Cx,
    epoll: OwnedFd,
    pub(crate) link: Link,
    pub(crate) wardens: Wardens,
    /// Warden and child for the next command are to be made when there is time.
    pub(crate) is_pair_due: bool,
    children: OwnedFd,
    pub(crate) workers: Workers<Outcome>,
    pub(crate) timers: Timers,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) by_warden: HashMap<Pid, JobId>,
    /// Jobs that are over, oldest first.
    pub(crate) finished: VecDeque<JobId>,
    /// What the logs of `finished` hold in memory and in files.
    pub(crate) finished_memory: usize,
    pub(crate) finished_spill: u64,
    pub(crate) next_job: u32,
    pub(crate) requests: HashMap<RequestId, PendingRequest>,
    /// What is held still, and what waits for that to end.
    pub(crate) hold: Hold,
    /// What commands tried over a network that there is not.
    pub(crate) network: Option<NetworkUse>,
    /// Streams with more to read than one turn allows.
    pub(crate) ready_streams: Vec<(JobId, usize)>,
    /// Until when the loop looks for the end of a command again and again instead of falling asleep.
    pub(crate) spin_until: Option<Instant>,
    /// Transfers that may have a step to do.
    pub(crate) ready_transfers: Vec<RequestId>,
    /// Buffers for transfers.
    pub(crate) buffers: Arc<Buffers>,
    /// Where output is read to before it is logged and sent.
    pub(crate) scratch: Vec<u8>,
    pub(crate) dev_null: OwnedFd,
    pub(crate) programs: Arc<Programs>,
    /// `None` where files are not a sandbox's own.
    pub(crate) top_layer: Option<TopLayer>,
    has_greeted: bool,
    /// The workers' descriptor is not watched.
    holds_results: bool,
    /// The link's input is not watched.
    is_deaf: bool,
    is_out_watched: bool,
    pub(crate) is_shutting_down: bool,
}

/// Serves until the host closes the link, asks for shutdown, or breaks the protocol. When this
/// returns, no process that a command started is left (or, as init, none will outlive the exit).
///
/// Preconditions: no other thread runs, and no other code of this process waits for children.
///
/// # Errors
/// [`ServeError`]; the caller has one line to say about it.
pub(crate) fn run(link_in: OwnedFd, link_out: OwnedFd, cx: Cx) -> Result<(), ServeError> {
    let is_init = cx.is_init;
    let mut server = Server::new(link_in, link_out, cx)?;
    let result = server.work();
    if result.is_ok() && server.is_shutting_down {
        server.send_last_words();
    }
    if !is_init {
        server.drop_transfers();
        server.end_everything(LAST_KILLS);
    }
    match result {
        Ok(()) | Err(LinkEnd::Closed) => Ok(()),
        Err(LinkEnd::Failed(errno)) => Err(ServeError::System("use the link", errno)),
        Err(LinkEnd::Violation(error)) => Err(ServeError::Protocol(error)),
    }
}

impl Server {
    fn new(link_in: OwnedFd, link_out: OwnedFd, mut cx: Cx) -> Result<Self, ServeError> {
        let at = |step| move |errno| ServeError::System(step, errno);
        process::keep_heap_small();
        process::reset_and_block_signals().map_err(at("block signals"))?;
        process::set_non_dumpable().map_err(at("close this process to others"))?;
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
        let is_nested = cx.walls.as_ref().is_some_and(Walls::is_nested);
        if cx.facts.open_fds.is_empty() {
            cx.facts.open_fds = crate::facts::open_fds();
        }
        let mut wardens = Wardens::new(for_commands, cx.separation)
            .map_err(at("prepare for commands"))?
            .nested(is_nested);
        wardens.set_processors(cx.processors.as_ref());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(at("make an epoll"))?;
        let server = Self {
            epoll,
            link: Link::new(link_in, link_out),
            wardens,
            is_pair_due: cx.is_init,
            children: process::child_signal_fd().map_err(at("watch for children"))?,
            workers: Workers::new(for_workers).map_err(at("prepare for file operations"))?,
            timers: Timers::default(),
            jobs: BTreeMap::new(),
            by_warden: HashMap::new(),
            finished: VecDeque::new(),
            finished_memory: 0,
            finished_spill: 0,
            next_job: 1,
            requests: HashMap::new(),
            hold: Hold::default(),
            network,
            ready_streams: Vec::new(),
            spin_until: None,
            ready_transfers: Vec::new(),
            buffers: Arc::default(),
            scratch: Vec::new(),
            dev_null,
            programs: Arc::default(),
            top_layer: cx.is_init.then(TopLayer::begins),
            has_greeted: false,
            holds_results: false,
            is_deaf: false,
            is_out_watched: false,
            is_shutting_down: false,
            cx,
        };
        let watch = |fd, token: Token| epoll::add(&server.epoll, fd, token.word(), EventFlags::IN);
        watch(server.link.input().as_fd(), Token::LinkIn).map_err(at("watch the link"))?;
        watch(server.children.as_fd(), Token::Children).map_err(at("watch for children"))?;
        watch(server.wardens.ring(), Token::Ring).map_err(at("watch for commands"))?;
        watch(server.workers.wake(), Token::Workers).map_err(at("watch for results"))?;
        if let Some(resolver) = server.network.as_ref().and_then(NetworkUse::resolver) {
            watch(resolver.socket(), Token::Resolver).map_err(at("watch for questions"))?;
        }
        if let Some(supervisor) = &server.cx.supervisor {
            watch(supervisor.as_fd(), Token::Supervisor).map_err(at("watch the supervisor"))?;
        }
        Ok(server)
    }

    /// Registers a stream of a job or a tunnel; it reports once per change.
    pub(crate) fn watch(&self, fd: &OwnedFd, token: Token) -> Result<(), Errno> {
        let interest = match token {
            Token::Input(_) => EventFlags::OUT,
            Token::Tunnel(_) => EventFlags::IN | EventFlags::OUT,
            _ => EventFlags::IN,
        };
        epoll::add(&self.epoll, fd, token.word(), interest | EventFlags::ET)
    }

    /// Where a log may spill to.
    pub(crate) const fn spill_dir() -> &'static [u8] {
        SPILL_DIR
    }

    fn work(&mut self) -> Result<(), LinkEnd> {
        let mut capabilities = vec![Capability::LogSpill];
        let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
        // By the ids of file operations: the real user id may be another.
        if rustix::fs::accessat(CWD, c"/dev/ptmx", access, AtFlags::EACCESS).is_ok() {
            capabilities.push(Capability::Pty);
        }
        if process::Census::take().is_ok() {
            capabilities.push(Capability::KillTree);
        }
        let hello = Hello::new(Role::Guest, &capabilities);
        self.link
            .hello(&hello)
            .map_err(|_| LinkEnd::Failed(Errno::INVAL))?;
        let mut events = Vec::with_capacity(64);
        loop {
            self.send()?;
            if self.is_shutting_down {
                return Ok(());
            }
            if self.by_warden.is_empty() {
                self.prepare_pair();
                if let Some(network) = &mut self.network {
                    network.read_idle();
                }
            }
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            self.spin_until = self.spin_until.filter(|until| Instant::now() < *until);
            let wait = if self.ready_streams.is_empty() && self.spin_until.is_none() {
                self.timers.wait()
            } else {
                Some(now)
            };
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref()) {
                // Whoever is looked for may want this very processor.
                Ok(0) if self.spin_until.is_some() => rustix::thread::sched_yield(),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(LinkEnd::Failed(errno)),
            }
            let mut is_request = false;
            let mut is_result = false;
            let mut has_dead = false;
            let mut has_ended = false;
            for event in &events {
                // The event is packed: its fields are copied out, not borrowed.
                let word = event.data;
                match Token::from_word(word) {
                    Some(Token::LinkIn) => is_request = true,
                    Some(Token::Ring) => has_ended = true,
                    Some(Token::Children) => has_dead = true,
                    Some(Token::Workers) => is_result = true,
                    Some(Token::Supervisor) => return Err(LinkEnd::Closed),
                    Some(Token::Resolver) => self.answer_questions(),
                    Some(Token::Output(job, stream)) => self.output_ready(job, stream),
                    Some(Token::Input(job)) => self.write_input(job),
                    Some(Token::Tunnel(request)) => self.tunnel_ready(request),
                    // Sending happens on every turn.
                    Some(Token::LinkOut) | None => {}
                }
            }
            for (job, stream) in std::mem::take(&mut self.ready_streams) {
                self.output_ready(job, stream);
            }
            if has_ended || has_dead {
                self.spin_until = None;
                self.note_ends();
            }
            if has_dead {
                // The signal's content says nothing that waiting does not.
                while rustix::io::read(&self.children, &mut [0_u8; 128]).is_ok() {}
                self.reap_children();
            }
            self.fire_timers();
            if is_result && !self.link.is_congested() {
                self.take_results();
            }
            if is_request {
                self.link.fill()?;
            }
            self.take_requests()?;
            self.do_deferred().map_err(LinkEnd::Violation)?;
            for request in std::mem::take(&mut self.ready_transfers) {
                self.advance_transfer(request);
            }
        }
    }

    fn answer_questions(&mut self) {
        if let Some(network) = &mut self.network {
            network.answer_questions();
        }
    }

    /// Handles the frames that have arrived, as long as there is room for answers.
    fn take_requests(&mut self) -> Result<(), LinkEnd> {
        // After reading: the host may use an id again as soon as it has the answer.
        self.forget_answered();
        // Handlers need all of `self` while the frame still borrows from the decoder.
        let mut decoder = std::mem::take(&mut self.link.decoder);
        let mut result = Ok(());
        while result.is_ok() && !self.link.is_full() && !self.is_shutting_down {
            result = match decoder.next_piece() {
                Ok(None) => break,
                Ok(Some(frame)) if self.has_greeted => self.handle(frame),
                Ok(Some(frame)) => self.greet(frame),
                Err(error) => Err(error),
            };
        }
        self.link.decoder = decoder;
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

    /// Sends what is queued, and adapts what is watched to how that went.
    fn send(&mut self) -> Result<(), LinkEnd> {
        // Whoever found the link congested during the last turn has stopped, even if this very
        // flush makes room.
        let was_congested = self.link.is_congested();
        let is_out = self.link.frame_writer().flush()?;
        if is_out == self.is_out_watched {
            let output = self.link.frame_writer().fd();
            let result = if is_out {
                epoll::delete(&self.epoll, output)
            } else {
                epoll::add(&self.epoll, output, Token::LinkOut.word(), EventFlags::OUT)
            };
            result.map_err(LinkEnd::Failed)?;
            self.is_out_watched = !is_out;
        }
        let is_congested = self.link.is_congested();
        if is_congested != self.holds_results {
            let wake = self.workers.wake();
            let interest = interest(!is_congested);
            epoll::modify(&self.epoll, wake, Token::Workers.word(), interest)
                .map_err(LinkEnd::Failed)?;
            self.holds_results = is_congested;
        }
        let is_full = self.link.is_full();
        if is_full != self.is_deaf {
            let input = self.link.input();
            epoll::modify(&self.epoll, input, Token::LinkIn.word(), interest(!is_full))
                .map_err(LinkEnd::Failed)?;
            self.is_deaf = is_full;
        }
        if was_congested && !is_congested {
            self.resume();
        }
        Ok(())
    }

    /// The link has room again, or nothing is held any more: continues everything that waited for it.
    pub(crate) fn resume(&mut self) {
        self.ready_transfers.extend(self.requests.keys());
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            self.poll_job(job);
        }
        // Frames that had arrived already report no event of their own; this makes the next turn
        // come at once.
        self.ready_streams.push((JobId(0), 0));
    }

    /// Gives all transfers up; what they have half-written is removed.
    fn drop_transfers(&mut self) {
        let open: Vec<_> = self.requests.keys().copied().collect();
        for id in open {
            if let Some(PendingRequest::Tree(tree)) = self.requests.get_mut(&id) {
                tree.cancel();
            }
        }
        self.workers.close(LAST_STEPS);
        self.requests.clear();
    }

    fn send_last_words(&mut self) {
        self.link.frame_writer().close_to_workers();
        let until = Instant::now() + LAST_WORDS;
        while let Ok(false) = self.link.frame_writer().flush() {
            if Instant::now() > until {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
