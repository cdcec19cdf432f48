//! Sessions of the server: those that wait in the queue, those that run, and those that ended and
//! can be continued.

mod accounting;
mod addresses;
mod approvals;
mod bundle_health;
mod bundle_run;
mod bundle_url;
mod bundles;
mod changes;
mod connections;
mod environment;
mod files;
mod frontend;
mod health;
mod host_rights;
mod hub;
mod idle;
mod lifetime;
mod live;
mod mcp_user;
mod network;
mod places;
mod pool;
mod previews;
mod queue;
mod quota;
mod rate;
mod recover;
mod request;
mod reserve;
mod resources;
mod session_calls;
mod session_spans;
mod start_gate;
mod status;
mod terminals;
mod tools;
mod uploads;
mod worker;
mod workspaces;

pub(crate) use accounting::Accounting;
pub(crate) use approvals::{OpenApproval, Reply, Word};
pub(crate) use bundle_run::check_input;
pub(crate) use bundles::{BundleRefusal, MAX_CALLS_PER_USER, ReadyBundle};
pub(crate) use changes::{ApplyWish, ConflictChoices, ConflictSide};
pub(crate) use connections::{ConnectionPlace, MAX_CONNECTIONS, UserConnections};
pub(crate) use environment::EnvironmentSnapshot;
pub(crate) use files::{FileAnswer, FileEntry};
pub(crate) use frontend::to_json;
pub(crate) use health::ComponentHealth;
pub(crate) use host_rights::HostRights;
pub(crate) use hub::{Cursor, Next, Sent};
pub(crate) use live::LiveSession;
pub(crate) use mcp_user::McpUser;
pub(crate) use previews::{PreviewPlace, PreviewPlaces};
pub(crate) use quota::Quotas;
pub(crate) use request::{TaskLimits, TaskRequest, held_elsewhere};
pub(crate) use status::{Board, ServerStatus};
pub(crate) use terminals::OpenTerminal;
pub(crate) use tools::OpenSandboxes;
pub(crate) use uploads::UploadRefusal;

use crate::config::ServerConfig;
use crate::metrics::Metrics;
use crate::store::{AuditLog, Owners, TokenStore};
use addresses::Addresses;
use bundle_run::BundleJob;
use bundles::Bundles;
use environment::EnvironmentClock;
use glovebox_agent::{Ending, Log, SessionInfo};
use glovebox_proto::{Code, Fault};
use glovebox_session::host::now_unix_ms;
use glovebox_session::work::WarmPool;
use health::LastProbe;
use idle::IdleSandboxes;
use places::Places;
use queue::{Admission, Bounds, Queue, QueuePlace};
use rate::RateLimit;
use reserve::Reserve;
use resources::{NoPlace, StartPlace, StartWish, Starts, TakeError};
use serde_json::json;
use start_gate::StartGate;
use status::StatusBoard;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use worker::Job;

/// Stack size of a session's thread, in bytes. Trees of untrusted depth are walked without
/// recursion.
const STACK_BYTES: usize = 4 << 20;

/// Interval between checks whether waiting sessions have room for their sandboxes.
const ROOM_LOOK: Duration = Duration::from_secs(1);

/// Lock that lets one thread at a time start waiting sessions.
#[derive(Debug, Default)]
struct Turns {
    /// True while a thread starts waiting sessions.
    is_taken: AtomicBool,
    /// True if something has changed since that thread looked at the queue.
    is_wanted: AtomicBool,
    /// Queue positions that clients were last notified of.
    told: Mutex<Vec<QueuePlace>>,
}

/// Guard of `Turns::is_taken`. Dropping it clears the flag, also after a panic.
#[derive(Debug)]
struct TakenTurn<'a>(&'a AtomicBool);

impl Drop for TakenTurn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Work of one session.
#[derive(Debug)]
enum QueuedWork {
    /// An agent with tools in a sandbox or on this machine.
    Agent(Box<Job>),
    /// A bundle's agent with the tools of the bundle.
    Bundle(Box<BundleJob>),
}

impl QueuedWork {
    const fn live(&self) -> &Arc<LiveSession> {
        match self {
            Self::Agent(job) => &job.live,
            Self::Bundle(job) => &job.live,
        }
    }
}

/// State that all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub config: ServerConfig,
    pub tokens: TokenStore,
    pub owners: Owners,
    pub accounting: Arc<Accounting>,
    pub metrics: Arc<Metrics>,
    pub sandboxes: OpenSandboxes,
    pub bundles: Arc<Bundles>,
    terminals: Arc<Places>,
    transfers: Arc<Places>,
    uploads_turn: Mutex<()>,
    pub preview_places: PreviewPlaces,
    pub status: StatusBoard,
    environment_clock: EnvironmentClock,
    pub rate: RateLimit,
    pub connections: UserConnections,
    reserve: Reserve,
    idle: IdleSandboxes,
    starts: Arc<Starts>,
    start_gate: StartGate,
    /// None if sandboxes run on this machine or have one address each.
    addresses: Option<Addresses>,
    pool: Option<WarmPool>,
    /// Cancelled when the server ends; every background task waits for it.
    pub end: CancellationToken,
    /// True once the server was asked to end: running sessions continue, no new work is accepted.
    is_draining: AtomicBool,
    log: Mutex<Log>,
    live: Mutex<HashMap<String, Arc<LiveSession>>>,
    queue: Queue<QueuedWork>,
    turns: Turns,
    last_probe: LastProbe,
    /// Held by a request with an idempotency key, so that the same request does not run twice at
    /// once.
    idempotent: Mutex<()>,
}

impl App {
    /// Opens the state on disk and marks sessions that an earlier server left unfinished.
    ///
    /// # Errors
    /// Fails if the state or the configuration cannot be read.
    pub(crate) fn open(config: ServerConfig) -> Result<Arc<Self>, Fault> {
        let dir = config.state_dir.join("server");
        let owners = Owners::open(&dir)?;
        let audit = AuditLog::open(&dir)?;
        let registry = Arc::clone(&config.registry);
        let accounting = Accounting::new(audit, registry, config.dropped_spans.as_ref());
        let accounting = Arc::new(accounting);
        let addresses = Addresses::open(&config).map_err(glovebox_session::Error::into_fault)?;
        if let Some(addresses) = &addresses {
            addresses.keep_bindings(&owners)?;
        }
        let app = Arc::new(Self {
            tokens: TokenStore::open(&config.state_dir)?,
            metrics: Arc::clone(&accounting.metrics),
            accounting,
            sandboxes: OpenSandboxes::default(),
            bundles: Arc::new(Bundles::open(&dir.join("bundles"), &config)?),
            terminals: terminals::terminal_places(),
            transfers: uploads::transfer_places(),
            uploads_turn: Mutex::default(),
            preview_places: PreviewPlaces::default(),
            status: StatusBoard::new(config.placement),
            environment_clock: EnvironmentClock::default(),
            rate: RateLimit::new(config.max_requests_per_second),
            reserve: Reserve::open(&dir),
            connections: UserConnections::default(),
            idle: IdleSandboxes::default(),
            starts: Arc::default(),
            start_gate: StartGate::for_backend(config.settings.backend.value),
            addresses,
            turns: Turns::default(),
            pool: pool::open(&config)?,
            end: CancellationToken::new(),
            is_draining: AtomicBool::default(),
            log: Mutex::new(Log::open(&sessions_dir(&config), now_unix_ms)?),
            live: Mutex::default(),
            queue: Queue::new(Bounds {
                running: config.max_running,
                running_per_user: config.max_running_per_user,
                queued: config.max_queued,
                queued_per_user: config.max_queued_per_user,
            }),
            last_probe: LastProbe::default(),
            idempotent: Mutex::default(),
            owners,
            config,
        });
        app.remove_rows_of_nothing()?;
        app.mark_interrupted()?;
        app.find_idle()
            .map_err(glovebox_session::Error::into_fault)?;
        app.sweep_workspaces();
        app.sweep_uploads()?;
        // The pool comes last: its directories belong to no session yet, so `sweep_workspaces`
        // would remove them.
        app.begin_pool();
        Ok(app)
    }

    /// Locks the shared log. Callers hold it for short operations only.
    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a separate handle on the log, for callers that use it for long.
    pub(crate) fn open_log(&self) -> Result<Log, Fault> {
        Log::open(&sessions_dir(&self.config), now_unix_ms)
    }

    /// Locks the map of queued and running sessions.
    fn live_sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<LiveSession>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a queued or running session. None if the session is neither.
    pub(crate) fn live(&self, id: &str) -> Option<Arc<LiveSession>> {
        self.live_sessions().get(id).map(Arc::clone)
    }

    /// Locks out other requests with an idempotency key. Held until the result of the request is
    /// stored.
    pub(crate) fn idempotent_turn(&self) -> MutexGuard<'_, ()> {
        self.idempotent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of running and of waiting sessions.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.queue.counts()
    }

    /// Returns a session's position in the queue. None if it does not wait.
    pub(crate) fn queue_place(&self, id: &str) -> Option<QueuePlace> {
        let places = self.queue.places();
        places.into_iter().find(|place| place.id == id)
    }

    /// Adds a session's work to the queue and starts every session that may start.
    fn enqueue(self: &Arc<Self>, job: QueuedWork) {
        let live = Arc::clone(job.live());
        // Before the push: another thread may start the work at once, and `finish` must find the
        // entry that it removes.
        self.live_sessions()
            .insert(live.id.clone(), Arc::clone(&live));
        self.queue.push(live.id.clone(), live.user.clone(), job);
        live.span.in_scope(|| info!("session queued"));
        self.begin_waiting();
    }

    /// Starts every session that may start and notifies the others of their positions. Only one
    /// thread does so at a time; a call meanwhile makes that thread look again.
    fn begin_waiting(self: &Arc<Self>) {
        // Set before the turn is tried, and tested again after it is released: a call that comes
        // while the holder leaves is noticed by one of the two threads.
        self.turns.is_wanted.store(true, Ordering::SeqCst);
        while self.turns.is_wanted.load(Ordering::SeqCst)
            && !self.turns.is_taken.swap(true, Ordering::SeqCst)
        {
            let _turn = TakenTurn(&self.turns.is_taken);
            while self.turns.is_wanted.swap(false, Ordering::SeqCst) {
                while !self.end.is_cancelled()
                    && let Some((job, place)) = self.queue.take(|id, user| self.admit(id, user))
                {
                    self.begin(job, place);
                }
            }
        }
        self.tell_places();
    }

    /// Checks whether the next session has room for its sandbox, and reserves the room if so. None
    /// if no room has to be reserved.
    fn admit(&self, id: &str, user: &str) -> Admission<Option<StartPlace>> {
        let looked = self.queue.peek(id, |job| match job {
            QueuedWork::Agent(job) => Some((job.need, job.sandbox.clone())),
            QueuedWork::Bundle(_) => None,
        });
        let Some((need, name)) = looked.flatten() else {
            return Admission::Now(None);
        };
        if !self.config.quotas.is_limited() {
            return Admission::Now(None);
        }
        let wish = StartWish {
            user,
            need,
            name: name.as_ref(),
            // The queue already limits the number of running sessions.
            max_running: usize::MAX,
        };
        match self.take_place(&wish) {
            Ok(place) => Admission::Now(Some(place)),
            Err(TakeError::NoPlace(NoPlace::Short(shortage))) if !shortage.is_of_user => {
                Admission::AllWait(shortage.text())
            }
            Err(TakeError::NoPlace(NoPlace::Short(shortage))) => {
                Admission::UserWaits(shortage.text())
            }
            // A failure to count does not block the queue: the start of the sandbox fails for the
            // same reason and reports it.
            Err(TakeError::NoPlace(NoPlace::TooMany(_)) | TakeError::Fault(_)) => {
                Admission::Now(None)
            }
        }
    }

    /// Notifies waiting sessions of their positions if these have changed.
    fn tell_places(&self) {
        let mut told = self
            .turns
            .told
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let places = self.queue.places();
        for place in &places {
            if told.contains(place) {
                continue;
            }
            if let Some(live) = self.live(&place.id) {
                let (position, waits_for) = (place.position, &place.waits_for);
                let json =
                    json!({ "type": "queued", "position": position, "waits_for": waits_for });
                live.hub.publish_piece("queued", &json);
            }
        }
        *told = places;
    }

    /// Checks periodically whether waiting sessions have room, until the server ends: sandboxes
    /// also end without this server taking part.
    pub(crate) async fn watch_room(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(ROOM_LOOK) => {}
                () = self.end.cancelled() => return,
            }
            self.reserve.keep();
            if self.queue.counts().1 > 0 && self.config.quotas.is_limited() {
                let app = Arc::clone(&self);
                if tokio::task::spawn_blocking(move || app.begin_waiting())
                    .await
                    .is_err()
                {
                    warn!("those who wait could not be looked at");
                }
            }
        }
    }

    fn begin(self: &Arc<Self>, job: QueuedWork, place: Option<StartPlace>) {
        let (app, live) = (Arc::clone(self), Arc::clone(job.live()));
        let thread = std::thread::Builder::new()
            .name(format!("session {}", live.id))
            .stack_size(STACK_BYTES)
            .spawn({
                let live = Arc::clone(&live);
                move || {
                    let _entered = live.span.clone().entered();
                    info!("session begins");
                    match job {
                        QueuedWork::Agent(job) => worker::carry_out(&app, *job, place),
                        QueuedWork::Bundle(job) => bundle_run::carry_out(&app, *job),
                    }
                    app.finish(&live);
                }
            });
        if let Err(error) = thread {
            self.end_unbegun(
                &live,
                Ending::Failed,
                &format!("no thread can begin: {error}"),
            );
            self.finish(&live);
        }
    }

    /// Removes a session whose work has ended and starts waiting ones.
    fn finish(self: &Arc<Self>, live: &LiveSession) {
        self.live_sessions().remove(&live.id);
        live.end();
        self.queue.finish(&live.user);
        self.begin_waiting();
    }

    /// Asks a session to end; a waiting session ends at once. Returns false if it neither waits nor
    /// runs.
    pub(crate) fn cancel(self: &Arc<Self>, id: &str) -> bool {
        let Some(live) = self.live(id) else {
            return false;
        };
        // Before the queue is searched: if another thread starts the work meanwhile, it is
        // cancelled.
        live.cancel();
        if let Some(job) = self.queue.remove(id) {
            drop(job);
            self.end_unbegun(&live, Ending::Aborted, "it was cancelled before it began");
            self.live_sessions().remove(id);
            live.end();
            self.begin_waiting();
        }
        true
    }

    /// Logs and publishes the end of a session that never ran.
    fn end_unbegun(&self, live: &LiveSession, ending: Ending, message: &str) {
        let event = worker::ended(ending, message);
        live.span.in_scope(|| {
            info!(
                ending = worker::state_of(ending).as_str(),
                "session ended before it began"
            );
        });
        let log = self.log();
        let written = log.append(&live.id, &event);
        let _ = log.set_state(&live.id, worker::state_of(ending));
        drop(log);
        match written {
            Ok(Some(place)) => live.hub.publish_kept(place.seq, "ended", &to_json(&event)),
            _ => live.hub.publish_piece("ended", &to_json(&event)),
        }
    }

    /// Ends all waiting sessions because the server ends. Running sessions continue.
    pub(crate) fn end_waiting(&self) {
        for job in self.queue.drain() {
            let live = Arc::clone(job.live());
            drop(job);
            self.end_unbegun(&live, Ending::Aborted, "the server ended before it began");
            self.live_sessions().remove(&live.id);
            live.end();
        }
    }

    /// Refuses new work from now on.
    pub(crate) fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }

    /// Returns true once the server was asked to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// Refuses new work while the server ends.
    ///
    /// # Errors
    /// `unavailable` while the server ends. Another server, or this one after a restart, may accept
    /// the work.
    pub(crate) fn refuse_draining(&self) -> Result<(), Fault> {
        if !self.is_draining() {
            return Ok(());
        }
        let fault = Fault::failed(
            Code::Unavailable,
            "the server is ending and takes no new work",
        );
        Err(fault
            .remedy("try again when it has started again")
            .retryable())
    }

    /// Ends all running sessions because the server's time to end is over.
    pub(crate) fn cut_all(&self) {
        // Copied, so that the lock is not held while the stop handlers run.
        let live: Vec<_> = self.live_sessions().values().map(Arc::clone).collect();
        for live in live {
            live.cut();
        }
    }

    /// Returns the session with exactly this id, not one of which it is a prefix.
    pub(crate) fn find(&self, id: &str) -> Result<Option<SessionInfo>, Fault> {
        let found = self.log().find(id);
        match found {
            Ok(info) if info.id == id => Ok(Some(info)),
            Ok(_) => Ok(None),
            Err(fault) => match fault.code {
                glovebox_proto::Code::NotFound | glovebox_proto::Code::AmbiguousMatch => Ok(None),
                _ => Err(fault),
            },
        }
    }
}

fn sessions_dir(config: &ServerConfig) -> PathBuf {
    config.state_dir.join("sessions")
}
