//! Sandboxes that were started ahead, over empty workspaces: each is given to one piece of work and never comes back.
//!
//! ```text
//! filler thread -> WarmSandbox (record on disk) -> WarmPool::take -> WorkSession::open_warm (record gone) -> used
//!                        \-> dead, old, or the pool closes: killed, with its record and its workspace
//! ```
//!
//! Nothing has run in one of them but the checks of its start. Which sandboxes are a pool's is written down before they
//! start, in a directory that the pool holds a lock on: who opens a pool kills what a dead owner has left. A sandbox is
//! given out only if it still runs, and used only if the settings of the work lead to the very spec that it was started
//! with.

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

/// The file in a pool's directory that its owner holds a lock on.
const LOCK: &str = "lock";
/// A refill begins when nobody has needed a sandbox for so long: those who wait for one come first.
const SETTLE: Duration = Duration::from_millis(300);
/// How often it is looked whether sandboxes still run.
const LOOK: Duration = Duration::from_secs(2);
/// How long a refill waits after one that failed, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// The same after a sandbox of the pool had to make room for another one.
const ROOM_RETRY: Duration = Duration::from_secs(30);
/// A sandbox that nobody took for so long is started anew: it shows the machine as it was when it started.
const MAX_AGE: Duration = Duration::from_mins(30);

/// What sandboxes of a pool are started with.
#[derive(Debug, Clone)]
pub struct PoolSource {
    /// What this machine and this user are like.
    pub host: Surroundings,
    /// Where sandboxes are.
    pub registry: Arc<Registry>,
    /// How a sandbox gets its supervisor.
    pub supervisor: Supervisor,
    /// What holds for the work that is to come.
    pub settings: Settings,
    /// What their names begin with.
    pub prefix: &'static str,
    /// How long one outlives an owner that dies without a word.
    pub lease_ms: u64,
}

/// How large a pool is, and where it keeps its files.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// How many sandboxes wait.
    pub size: usize,
    /// Directory of the records of this and other pools.
    pub dir: PathBuf,
    /// Directory in which their empty workspaces are made.
    pub workspaces: PathBuf,
}

/// How a pool stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStatus {
    /// How many should wait.
    pub size: usize,
    /// How many do.
    pub ready: usize,
    /// Sandboxes that ended while they waited, since the pool was opened.
    pub lost: u64,
    /// Why no sandbox could be started lately.
    pub problem: Option<String>,
}

/// A sandbox that waits for its work. Killed when it is dropped before.
#[derive(Debug)]
pub struct WarmSandbox {
    name: Name,
    workspace: PathBuf,
    spec: SandboxSpec,
    started: Instant,
    record: PathBuf,
    registry: Arc<Registry>,
    /// Those of its pool that were lost.
    lost: Arc<AtomicU64>,
    /// Whether the workspace goes with it.
    has_workspace: bool,
    /// Whether it is somebody else's now.
    is_given: bool,
}

impl WarmSandbox {
    /// Its name.
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// The empty directory that it works over. It stays when the sandbox is dropped: whoever took that one has it.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    fn is_running(&self) -> bool {
        let entry = self.registry.entry(&self.name).ok().flatten();
        entry.is_some_and(|entry| entry.state == SandboxState::Ready)
    }

    /// It has ended while it waited. One that is being killed still seems to run: it may be that nobody notices before its
    /// work begins.
    fn note_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for WarmSandbox {
    fn drop(&mut self) {
        if self.is_given {
            return;
        }
        // What is left of it is found by its record when the next pool is opened.
        if self.registry.kill(&self.name).is_ok() {
            let _ = fs::remove_file(&self.record);
        }
        if self.has_workspace {
            let _ = fs::remove_dir(&self.workspace);
        }
    }
}

/// Sandboxes that wait, and the thread that starts them.
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
    /// How many ended while they waited.
    lost: Arc<AtomicU64>,
    state: Mutex<PoolState>,
    changed: Condvar,
    /// Tells others that the owner lives.
    _lock: File,
}

#[derive(Debug, Default)]
struct PoolState {
    ready: VecDeque<WarmSandbox>,
    /// None is started before.
    has_begun: bool,
    is_closing: bool,
    problem: Option<String>,
    /// Until when no sandbox is started.
    rest_until: Option<Instant>,
}

impl PoolCore {
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    /// Starts none for so long, or for longer if that was said before.
    fn rest(&mut self, time: Duration) {
        let until = Instant::now() + time;
        self.rest_until = Some(self.rest_until.map_or(until, |other| other.max(until)));
    }
}

impl WarmPool {
    /// Kills what pools of dead owners have left. The pool is empty until [`Self::begin`].
    ///
    /// # Errors
    /// `io` when the records cannot be written, or there can be no thread.
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

    /// Begins to start sandboxes. Until then nothing is made in the directory of workspaces, so an owner can remove there
    /// what is nobody's any more.
    pub fn begin(&self) {
        self.shared.state().has_begun = true;
        self.shared.changed.notify_all();
    }

    /// A sandbox that runs, for one piece of work; `None` while there is none.
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

    /// Somebody starts a sandbox now, and should have the machine for that.
    pub fn note_demand(&self) {
        self.shared.state().rest(SETTLE);
    }

    /// Gives one sandbox up, because there can be no more beside it. False when there is none.
    pub fn make_room(&self) -> bool {
        let given_up = {
            let mut state = self.shared.state();
            state.rest(ROOM_RETRY);
            state.ready.pop_back()
        };
        given_up.is_some()
    }

    /// How it stands.
    pub fn status(&self) -> PoolStatus {
        let state = self.shared.state();
        PoolStatus {
            size: self.shared.size,
            ready: state.ready.len(),
            lost: self.shared.lost.load(Ordering::Relaxed),
            problem: state.problem.clone(),
        }
    }

    /// Kills all that wait, and starts no more.
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
            // One that panicked has nothing more to say.
            let _ = filler.join();
        }
        // Not empty while something of it could not be killed.
        let _ = fs::remove_file(self.shared.dir.join(LOCK));
        let _ = fs::remove_dir(&self.shared.dir);
    }
}

impl PoolCore {
    /// Keeps as many sandboxes ready as there should be, from the time the pool begins until it closes.
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
                    // Every wait is short, so that times that have passed are noticed.
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

    /// Takes out what has ended or is old.
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
            // There is no sandbox yet that it would go with.
            let _ = fs::remove_dir(&workspace);
        })?;
        let lease_ms = Some(source.lease_ms);
        resolved.spec.lease_ms = lease_ms.filter(|_| resolved.spec.has_layers_on_disk());
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
        // Written first: whatever happens from here on, the sandbox is found.
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
    /// Takes over a sandbox that was started ahead, for work over its workspace under `settings`; `None` when it has
    /// ended meanwhile, or the settings ask for another one. It is killed then.
    ///
    /// # Errors
    /// Settings that contradict each other.
    pub fn open_warm(
        caller: &WorkContext<'_>,
        settings: &Settings,
        mut warm: WarmSandbox,
    ) -> Result<Option<Self>, Error> {
        let (settings, mut resolved) = Self::resolve_new(caller, settings, &warm.workspace)?;
        let has_layers = resolved.spec.has_layers_on_disk();
        resolved.spec.lease_ms = warm.spec.lease_ms;
        if resolved.spec != warm.spec {
            return Ok(None);
        }
        let connected = caller.registry.connect(&warm.name);
        let Ok(sandbox) = connected.and_then(|sandbox| sandbox.ping().map(|_| sandbox)) else {
            warm.note_lost();
            return Ok(None);
        };
        // From here on it is this work's, whatever becomes of the process: what is used is no pool's.
        if fs::remove_file(&warm.record).is_err() {
            return Ok(None);
        }
        warm.is_given = true;
        super::notify_started(caller.frontend, &sandbox, &settings);
        Ok(Some(Self::on(
            caller,
            sandbox,
            super::Kind::Supervised { has_layers },
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
                // It was being made, or removed, when its owner died: it has no records.
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

/// Nobody hears what happens while a sandbox is started ahead.
#[derive(Debug)]
struct Silent;

impl Frontend for Silent {
    fn notify(&self, _: &Notice<'_>) {}

    fn watch_progress(&self) -> Box<Watch<'_>> {
        Box::new(|_| ControlFlow::Continue(()))
    }
}
