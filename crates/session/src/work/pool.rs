//! Pool of sandboxes started in advance over empty workspaces. Each is given to one operation and
//! never returned.
//!
//! ```text
//! filler thread -> WarmSandbox (record on disk) -> WarmPool::take
//!                  -> WorkSession::open_warm (record removed) -> used
//!                  \-> dead, old, or the pool closes: killed, with its record and its workspace
//! ```
//!
//! Nothing but the checks of its start has run in a sandbox of the pool. Each is recorded on disk
//! before it starts, in a directory that the pool has locked: opening a pool kills the sandboxes
//! that a dead owner has left. A sandbox is handed out only if it still runs, and used only if the
//! settings of the operation resolve to exactly the specification that it was started with.

use super::{NewName, NewSandbox, WorkContext, WorkSession, WorkTarget};
use crate::Error;
use crate::frontend::{Frontend, Notice};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Name, Registry, SandboxSpec, SandboxState, Supervisor};
use glovebox_settings::{Settings, Surroundings};
use glovebox_workspace::Watch;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lock file in a pool's directory, held by its owner.
const LOCK: &str = "lock";
/// Time without demand after which a refill begins, so that it does not slow down operations that
/// wait for a sandbox.
const SETTLE: Duration = Duration::from_millis(300);
/// Interval between checks whether sandboxes still run.
const LOOK: Duration = Duration::from_secs(2);
/// Pause after a failed refill: initial and maximum.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// Pause after a sandbox of the pool had to make room for another one.
const ROOM_RETRY: Duration = Duration::from_secs(30);
/// Age after which an unused sandbox is replaced, because it shows the machine as at its start.
const MAX_AGE: Duration = Duration::from_mins(30);

/// Settings of a pool's sandboxes.
#[derive(Debug, Clone)]
pub struct PoolSource {
    /// Facts about this machine and the user's environment.
    pub host: Surroundings,
    /// Registry of sandboxes.
    pub registry: Arc<Registry>,
    /// Program that supervises sandboxes.
    pub supervisor: Supervisor,
    /// Settings of the operations to come.
    pub settings: Settings,
    /// Prefix of the sandboxes' names.
    pub prefix: &'static str,
    /// Time for which a sandbox outlives a killed owner, in milliseconds.
    pub lease_ms: u64,
}

/// Size and directories of a pool.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Number of sandboxes to keep ready.
    pub size: usize,
    /// Directory for the records of this and other pools.
    pub dir: PathBuf,
    /// Directory for empty workspaces.
    pub workspaces: PathBuf,
}

/// Status of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStatus {
    /// Number of sandboxes to keep ready.
    pub size: usize,
    /// Number of sandboxes that are ready.
    pub ready: usize,
    /// Number of sandboxes that ended while waiting, since the pool was opened.
    pub lost: u64,
    /// Error of the last attempt to start a sandbox; `None` if it succeeded.
    pub problem: Option<String>,
}

/// Sandbox that waits for an operation. Dropping it unused kills it.
#[derive(Debug)]
pub struct WarmSandbox {
    name: Name,
    workspace: PathBuf,
    spec: SandboxSpec,
    started: Instant,
    record: PathBuf,
    registry: Arc<Registry>,
    /// Counter of the pool's lost sandboxes.
    lost: Arc<AtomicU64>,
    /// True if dropping this also removes the workspace.
    has_workspace: bool,
    /// True if the sandbox was handed over to an operation.
    is_given: bool,
}

impl WarmSandbox {
    /// Returns the name.
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the empty workspace directory. It is kept when the sandbox is dropped, because it
    /// belongs to the caller of [`WarmPool::take`].
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    fn is_running(&self) -> bool {
        let entry = self.registry.entry(&self.name).ok().flatten();
        entry.is_some_and(|entry| entry.state == SandboxState::Ready)
    }

    /// Counts a sandbox that ended while waiting. One that is being killed still seems to run, so
    /// the loss may show only when its work begins.
    fn note_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for WarmSandbox {
    fn drop(&mut self) {
        if self.is_given {
            return;
        }
        // What cannot be killed now is found by its record when the next pool is opened.
        if self.registry.kill(&self.name).is_ok() {
            let _ = fs::remove_file(&self.record);
        }
        if self.has_workspace {
            let _ = fs::remove_dir(&self.workspace);
        }
    }
}

/// Pool of waiting sandboxes, with the thread that starts them.
#[derive(Debug)]
pub struct WarmPool {
    shared: Arc<PoolCore>,
    filler: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct PoolCore {
    source: PoolSource,
    size: usize,
    dir: PathBuf,
    workspaces: PathBuf,
    /// Number of sandboxes that ended while waiting.
    lost: Arc<AtomicU64>,
    state: Mutex<PoolState>,
    changed: Condvar,
    /// Lock that shows that the owner is alive.
    _lock: File,
}

#[derive(Debug, Default)]
struct PoolState {
    ready: VecDeque<WarmSandbox>,
    /// True once sandboxes may be started.
    has_begun: bool,
    is_closing: bool,
    problem: Option<String>,
    /// Time until which no sandbox is started.
    rest_until: Option<Instant>,
}

impl PoolCore {
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    /// Starts no sandbox for this time, or longer if that was set before.
    fn rest(&mut self, time: Duration) {
        let until = Instant::now() + time;
        self.rest_until = Some(self.rest_until.map_or(until, |other| other.max(until)));
    }
}

impl WarmPool {
    /// Opens a pool and kills the sandboxes that dead owners have left. The pool stays empty until
    /// [`Self::begin`].
    ///
    /// # Errors
    /// `io` if the records cannot be written or no thread can be started.
    pub fn open(source: PoolSource, config: PoolConfig) -> Result<Self, Fault> {
        let PoolConfig {
            size,
            dir,
            workspaces,
        } = config;
        let cannot = |error: &io::Error| {
            let message = format!("cannot keep sandboxes ahead in {}: {error}", dir.display());
            Fault::failed(Code::Io, message)
        };
        remove_left(&dir, &source.registry).map_err(|error| cannot(&error))?;
        let own = dir.join(Name::random("pool").as_str());
        make_dir(&own).map_err(|error| cannot(&error))?;
        let lock = File::create(own.join(LOCK)).map_err(|error| cannot(&error))?;
        lock.lock().map_err(|error| cannot(&error))?;
        let shared = Arc::new(PoolCore {
            source,
            size,
            dir: own,
            workspaces,
            lost: Arc::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            _lock: lock,
        });
        let filler = std::thread::Builder::new()
            .name("warm sandboxes".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.fill()
            })
            .map_err(|error| cannot(&error))?;
        Ok(Self {
            shared,
            filler: Some(filler),
        })
    }

    /// Starts to fill the pool. Before this call nothing is created in the directory of workspaces,
    /// so that the owner can remove abandoned ones there.
    pub fn begin(&self) {
        self.shared.state().has_begun = true;
        self.shared.changed.notify_all();
    }

    /// Takes a running sandbox for one operation; `None` if none is ready.
    pub fn take(&self) -> Option<WarmSandbox> {
        self.note_demand();
        loop {
            let mut warm = self.shared.state().ready.pop_front()?;
            self.shared.changed.notify_all();
            if warm.is_running() {
                warm.has_workspace = false;
                return Some(warm);
            }
            warm.note_lost();
        }
    }

    /// Delays refills because an operation is starting a sandbox and needs the machine.
    pub fn note_demand(&self) {
        self.shared.state().rest(SETTLE);
    }

    /// Kills one waiting sandbox to make room for another. Returns false if there is none.
    pub fn make_room(&self) -> bool {
        let given_up = {
            let mut state = self.shared.state();
            state.rest(ROOM_RETRY);
            state.ready.pop_back()
        };
        given_up.is_some()
    }

    /// Returns the status.
    pub fn status(&self) -> PoolStatus {
        let state = self.shared.state();
        PoolStatus {
            size: self.shared.size,
            ready: state.ready.len(),
            lost: self.shared.lost.load(Ordering::Relaxed),
            problem: state.problem.clone(),
        }
    }

    /// Kills all waiting sandboxes and starts no further ones.
    pub fn close(&self) {
        let left = {
            let mut state = self.shared.state();
            state.is_closing = true;
            std::mem::take(&mut state.ready)
        };
        self.shared.changed.notify_all();
        drop(left);
    }
}

impl Drop for WarmPool {
    fn drop(&mut self) {
        self.close();
        if let Some(filler) = self.filler.take() {
            // A panic of the thread has already been reported.
            let _ = filler.join();
        }
        // The directory is not empty if a sandbox could not be killed; its record stays.
        let _ = fs::remove_file(self.shared.dir.join(LOCK));
        let _ = fs::remove_dir(&self.shared.dir);
    }
}

impl PoolCore {
    /// Keeps the pool filled from [`WarmPool::begin`] until it closes.
    fn fill(&self) {
        let mut failures = 0_u32;
        let mut looked = Instant::now();
        loop {
            {
                let mut state = self.state();
                let is_due = |state: &PoolState| {
                    let rests = state.rest_until.is_some_and(|until| until > Instant::now());
                    state.has_begun && state.ready.len() < self.size && !rests
                };
                while !state.is_closing && !is_due(&state) && looked.elapsed() < LOOK {
                    // Waits are short, so that deadlines in the state are noticed.
                    let waited = self.changed.wait_timeout(state, SETTLE / 3);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                if state.is_closing {
                    return;
                }
                if !is_due(&state) {
                    drop(state);
                    self.remove_unfit();
                    looked = Instant::now();
                    continue;
                }
            }
            match self.start() {
                Ok(warm) => {
                    failures = 0;
                    let mut state = self.state();
                    state.problem = None;
                    if state.is_closing {
                        drop(state);
                        drop(warm);
                        return;
                    }
                    state.ready.push_back(warm);
                }
                Err(error) => {
                    let pause = RETRY.0.saturating_mul(1 << failures.min(8)).min(RETRY.1);
                    failures += 1;
                    let mut state = self.state();
                    state.problem = Some(error.message().to_owned());
                    state.rest(pause);
                }
            }
        }
    }

    /// Removes sandboxes that have ended or are too old.
    fn remove_unfit(&self) {
        let names: Vec<(Name, Instant)> = {
            let state = self.state();
            let all = state.ready.iter();
            all.map(|warm| (warm.name.clone(), warm.started)).collect()
        };
        for (name, started) in names {
            let entry = self.source.registry.entry(&name).ok().flatten();
            let is_running = entry.is_some_and(|entry| entry.state == SandboxState::Ready);
            if is_running && started.elapsed() < MAX_AGE {
                continue;
            }
            let mut state = self.state();
            let at = state.ready.iter().position(|warm| warm.name == name);
            let removed = at.and_then(|at| state.ready.remove(at));
            drop(state);
            if let Some(warm) = removed.as_ref().filter(|_| !is_running) {
                warm.note_lost();
            }
            drop(removed);
        }
    }

    fn start(&self) -> Result<WarmSandbox, Error> {
        let source = &self.source;
        let name = Name::random(source.prefix);
        let workspace = self.workspaces.join(Name::random("w").as_str());
        fs::create_dir_all(&workspace)
            .map_err(|error| Error::io(format!("make {}", workspace.display()), &error))?;
        let caller = WorkContext {
            host: &source.host,
            registry: &source.registry,
            supervisor: &source.supervisor,
            frontend: &Silent,
        };
        let resolved = WorkSession::resolve_new(&caller, &source.settings, &workspace);
        let (_, mut resolved) = resolved.inspect_err(|_| {
            // There is no sandbox yet whose removal would remove it.
            let _ = fs::remove_dir(&workspace);
        })?;
        let lease_ms = Some(source.lease_ms);
        resolved.spec.lease_ms = lease_ms.filter(|_| resolved.spec.keeps_files());
        let record = self.dir.join(name.as_str());
        let warm = WarmSandbox {
            spec: resolved.spec,
            started: Instant::now(),
            registry: Arc::clone(&source.registry),
            lost: Arc::clone(&self.lost),
            has_workspace: true,
            is_given: false,
            name,
            workspace,
            record,
        };
        // Written before the start, so that the sandbox is found if this process dies from here on.
        File::create(&warm.record)
            .map_err(|error| Error::io(format!("write {}", warm.record.display()), &error))?;
        let target = WorkTarget::New(NewSandbox {
            name: NewName::Given(&warm.name),
            lease_ms,
        });
        let work = WorkSession::open(&caller, &source.settings, &warm.workspace, target)?;
        work.sandbox().ping()?;
        Ok(warm)
    }
}

impl WorkSession {
    /// Takes over a sandbox that was started in advance, for work over its workspace under
    /// `settings`. `None`, and the sandbox is killed, if it has ended or the settings resolve to
    /// another specification.
    ///
    /// # Errors
    /// Settings contradict each other.
    pub fn open_warm(
        caller: &WorkContext<'_>,
        settings: &Settings,
        mut warm: WarmSandbox,
    ) -> Result<Option<Self>, Error> {
        let (settings, mut resolved) = Self::resolve_new(caller, settings, &warm.workspace)?;
        let keeps_files = resolved.spec.keeps_files();
        resolved.spec.lease_ms = warm.spec.lease_ms;
        if resolved.spec != warm.spec {
            return Ok(None);
        }
        let connected = caller.registry.connect(&warm.name);
        let Ok(sandbox) = connected.and_then(|sandbox| sandbox.ping().map(|_| sandbox)) else {
            warm.note_lost();
            return Ok(None);
        };
        // From here on the sandbox belongs to this operation: a used sandbox must not be killed as
        // part of the pool.
        if fs::remove_file(&warm.record).is_err() {
            return Ok(None);
        }
        warm.is_given = true;
        super::notify_started(caller.frontend, &sandbox, &settings);
        Ok(Some(Self::on(
            caller,
            sandbox,
            super::Kind::Supervised { keeps_files },
        )))
    }
}

/// Kills the sandboxes of pools whose owners have died, and removes their records.
fn remove_left(dir: &Path, registry: &Registry) -> io::Result<()> {
    make_dir(dir)?;
    for entry in fs::read_dir(dir)? {
        let left = entry?.path();
        let lock = match File::open(left.join(LOCK)) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Its owner died while creating or removing it, so it has no records.
                let _ = fs::remove_dir(&left);
                continue;
            }
            Err(error) => return Err(error),
        };
        if lock.try_lock().is_err() {
            continue;
        }
        let mut is_empty = true;
        for record in fs::read_dir(&left)? {
            let record = record?;
            let name = record.file_name();
            let Some(name) = name.to_str().and_then(|name| Name::parse(name).ok()) else {
                continue;
            };
            if name.as_str() == LOCK {
                continue;
            }
            match registry.kill(&name) {
                Ok(_) => fs::remove_file(record.path())?,
                Err(_) => is_empty = false,
            }
        }
        if is_empty {
            fs::remove_dir_all(&left)?;
        }
    }
    Ok(())
}

fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

/// Frontend for sandboxes started in advance, which ignores all notices.
#[derive(Debug)]
struct Silent;

impl Frontend for Silent {
    fn notify(&self, _: &Notice<'_>) {}

    fn watch_progress(&self) -> Box<Watch<'_>> {
        Box::new(|_| ControlFlow::Continue(()))
    }
}
