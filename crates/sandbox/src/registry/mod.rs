//! Registry of all sandboxes of one state directory, shared by all processes that use it.
//!
//! There is no daemon and no index. The directory is the registry, and a sandbox lives while its
//! lock is held (see `state::sandbox_dir`). A sandbox is created by one rename, which succeeds or
//! finds the name taken. Opening the registry removes the remains of dead owners.

mod caches;
mod checkpoints;
pub(crate) mod connect;
mod describe;
mod entry;
mod network;
mod service;
mod upkeep;

use crate::backend::{self, CreateCx};
use crate::cache::{CacheLease, KeptCaches};
use crate::checkpoint::workspace;
use crate::control::handover::{self, ReadySupervisor, Supervisor};
use crate::control::socket;
use crate::file_systems::name_state;
use crate::handle::wall_clock::WallClockTimer;
use crate::handle::{OwnedSandbox, Sandbox, SandboxCore, SandboxInfo};
use crate::lifecycle::parking::ParkingNews;
use crate::lifecycle::sweep;
use crate::lifecycle::termination;
use crate::report::REPORT_FILE;
use crate::state::cleanup::CleanupWorker;
use crate::state::layout::Layout;
use crate::state::sandbox_dir::{SandboxDir, SandboxDirState, is_kept, read_spec, read_status};
use crate::state::slot::Slot;
use crate::state::status::{SandboxState, Status};
use crate::state::trash;
use crate::{
    GuestImage, KillOutcome, Name, Orphan, SandboxSpec, SeedMaker, WorkspaceLayers, checkpoint,
    control, fault,
};
pub use caches::ProjectCache;
pub use checkpoints::{Checkpoints, Fork};
use describe::describe;
pub use entry::{RegistryEntry, StartOutcome};
use glovebox_proto::{Code, Fault};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};
pub use upkeep::{DiskUsage, is_larger_than};

/// Location and bounds of a registry.
#[derive(Debug, Clone)]
pub struct RegistryConfig {
    /// State directory, absolute. Created if missing. Only the user may have access to it.
    pub state_dir: PathBuf,
    /// Maximum number of live sandboxes, over all processes that use this state directory.
    pub max_sandboxes: u32,
    /// Function that creates git directories, for specs that name repositories. `None` if the
    /// program has none.
    pub seed_maker: Option<SeedMaker>,
}

/// All sandboxes of one state directory. Share it by reference or `Arc` between threads.
#[derive(Debug)]
pub struct Registry {
    layout: Layout,
    max_sandboxes: u32,
    seed_maker: Option<SeedMaker>,
    image: OnceLock<GuestImage>,
    /// Supervisors that this process has started. They outlive it, but while it lives it must reap
    /// them.
    supervisors: Mutex<Vec<Child>>,
    swept: Mutex<Housekeeping>,
    cleanup: Arc<CleanupWorker>,
}

/// Results of the last sweep.
#[derive(Debug)]
struct Housekeeping {
    at: Instant,
    kept_slots: Vec<u32>,
    /// Reports on parked changes since the last [`Registry::take_parking_news`].
    parking_news: Vec<ParkingNews>,
}

/// Interval of checks on a state that another process is about to change.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Time to wait for a lock whose holder may be removing the sandbox.
const REMOVAL_WAIT: Duration = Duration::from_millis(200);
/// Minimum time between two sweeps, so that sandboxes made in quick succession do not each cost
/// one.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Locks a mutex even if it is poisoned: no critical section of this file leaves its data half
/// changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Opens the registry and removes the remains of dead owners.
    ///
    /// # Errors
    /// `permission-denied` if another user could have prepared the state directory; `io` faults
    /// naming the path.
    pub fn open(config: RegistryConfig) -> Result<Self, Fault> {
        let RegistryConfig {
            state_dir,
            max_sandboxes,
            seed_maker,
        } = config;
        let layout = Layout::open(&state_dir).map_err(|fault| name_state(fault, &state_dir))?;
        let registry = Self {
            cleanup: Arc::new(CleanupWorker::new(layout.clone())),
            layout,
            max_sandboxes,
            seed_maker,
            image: OnceLock::new(),
            supervisors: Mutex::default(),
            swept: Mutex::new(Housekeeping {
                at: Instant::now(),
                kept_slots: Vec::new(),
                parking_news: Vec::new(),
            }),
        };
        registry.sweep()?;
        Ok(registry)
    }

    /// Creates a sandbox that this process owns. It ends when the handle is dropped or the process
    /// dies. If `name` is `None`, a random name is chosen.
    ///
    /// # Errors
    /// `already-exists`, `too-many-sandboxes`, `limit-unavailable`, and the errors of starting a
    /// guest.
    pub fn create(&self, spec: &SandboxSpec, name: Option<Name>) -> Result<Sandbox, Fault> {
        backend::check(spec)?;
        self.create_checked(spec, name)
            .map_err(|fault| name_state(fault, self.layout.state()))
    }

    fn create_checked(&self, spec: &SandboxSpec, name: Option<Name>) -> Result<Sandbox, Fault> {
        self.housekeep();
        let begin = Instant::now();
        let deadline = begin + Duration::from_millis(spec.start_ms);
        let name = name.unwrap_or_else(|| Name::random("box"));
        let mut status = Status::starting(false);
        let image = self.image()?;
        // The process takes long to start, so it runs while the directory, the caches and the seed
        // are prepared.
        let begun = backend::begin(spec, image, self.layout.state())?;
        let sandbox_dir = self.claim_new(&name, spec)?;
        let slot = match self.lease_slot() {
            Ok(slot) => slot,
            Err(fault) => {
                // The name becomes free again. The first fault is the one to report.
                let _ = sandbox_dir.discard(&self.layout);
                return Err(fault);
            }
        };
        status.slot = Some(slot.number);
        let caches = match CacheLease::take(&self.layout, spec, &sandbox_dir.path) {
            Ok(caches) => caches,
            Err(fault) => {
                let _ = sandbox_dir.discard(&self.layout);
                slot.release();
                return Err(fault);
            }
        };
        let made =
            checkpoint::seed::make(&self.layout, &sandbox_dir.path, &spec.jail, self.seed_maker);
        let seed = match made {
            Ok(seed) => seed,
            Err(fault) => {
                let _ = sandbox_dir.discard(&self.layout);
                slot.release();
                return Err(fault);
            }
        };
        let cx = CreateCx {
            spec,
            name: &name,
            dir: &sandbox_dir.path,
            state_dir: self.layout.state(),
            slot: slot.number,
            frozen: Vec::new(),
            seed,
            caches: caches.as_ref().map(CacheLease::frozen).unwrap_or_default(),
            cache_keeping: CacheLease::keeping(caches.as_ref()),
            image,
            egress: None,
            is_resumed: false,
            deadline,
        };
        let core = match backend::bring_up(&cx, begun) {
            Ok((link, owner)) => {
                // If this fails nothing is kept when the sandbox ends, which is reported then.
                let _ = sandbox_dir.note_remote_files(spec);
                status.process = owner.process();
                Arc::new(SandboxCore::owned(link, owner, begin.elapsed()))
            }
            Err(fault) => {
                checkpoint::seed::discard(&self.layout, &sandbox_dir.path, &self.cleanup);
                let _ = sandbox_dir.discard(&self.layout);
                slot.release();
                return Err(fault);
            }
        };
        status.state = SandboxState::Ready;
        let info = SandboxInfo {
            name,
            backend: spec.backend,
            created_unix_ms: status.created_unix_ms,
        };
        let dir = sandbox_dir.path.clone();
        let written = sandbox_dir.write_status(&status);
        let wall_clock = spec
            .jail
            .limits
            .wall_ms
            .map(|ms| WallClockTimer::start(Arc::downgrade(&core), ms))
            .transpose();
        let mut owned = OwnedSandbox {
            sandbox_dir,
            slot,
            caches: caches.map(|lease| KeptCaches::new(lease, spec)),
            cleanup: Arc::clone(&self.cleanup),
            wall_clock: None,
        };
        let problem = match wall_clock {
            Ok(timer) => {
                owned.wall_clock = timer;
                written.err()
            }
            Err(fault) => Some(fault),
        };
        // From here on, dropping the handle removes everything.
        let sandbox = Sandbox::new(core, info, dir, self.layout.clone(), Some(owned));
        problem.map_or(Ok(sandbox), Err)
    }

    /// Creates or finds the supervised sandbox of this name, atomically, and returns when it is
    /// ready. An existing sandbox keeps its spec.
    ///
    /// # Errors
    /// `already-exists` if the name belongs to another process's own sandbox; `sandbox-not-found`
    /// if the sandbox is killed meanwhile; `timed-out` if it is not ready within `spec.start_ms`;
    /// and the errors of starting a guest.
    pub fn start(
        &self,
        spec: &SandboxSpec,
        name: &Name,
        supervisor: &Supervisor,
    ) -> Result<(RegistryEntry, StartOutcome), Fault> {
        backend::check(spec)?;
        self.start_checked(spec, name, supervisor)
            .map_err(|fault| name_state(fault, self.layout.state()))
    }

    fn start_checked(
        &self,
        spec: &SandboxSpec,
        name: &Name,
        supervisor: &Supervisor,
    ) -> Result<(RegistryEntry, StartOutcome), Fault> {
        self.housekeep();
        let deadline = Instant::now() + Duration::from_millis(spec.start_ms);
        loop {
            let mut status = Status::starting(true);
            let claimed = match SandboxDir::make(&self.layout, name, spec, Some(&status))? {
                Some(sandbox_dir) => Some((sandbox_dir, StartOutcome::Created)),
                None => match SandboxDir::find(&self.layout, name)? {
                    SandboxDirState::Absent => continue,
                    SandboxDirState::Free(sandbox_dir) if is_kept(&sandbox_dir) => {
                        Some((sandbox_dir, StartOutcome::Resumed))
                    }
                    SandboxDirState::Free(sandbox_dir) => {
                        sweep::remove_dead(&self.layout, sandbox_dir)?;
                        continue;
                    }
                    SandboxDirState::Held => None,
                },
            };
            let Some((sandbox_dir, started)) = claimed else {
                if self.await_ready(name, deadline)? {
                    return Ok((self.known(name)?, StartOutcome::Existing));
                }
                continue;
            };
            let ready = self
                .furnish(&sandbox_dir, started, spec, &mut status)
                .and_then(|slot| {
                    handover::supervisor(
                        &self.layout,
                        supervisor,
                        &sandbox_dir,
                        slot,
                        spec,
                        deadline,
                    )
                });
            match ready {
                Ok(ReadySupervisor { child }) => {
                    lock(&self.supervisors).push(child);
                    return Ok((self.known(name)?, started));
                }
                // Another process killed the sandbox and removed its directory meanwhile.
                Err(fault) if fault.code == Code::NotFound && !sandbox_dir.is_in_place() => {
                    return Err(Fault::lost(
                        Code::SandboxNotFound,
                        format!("the sandbox `{name}` was killed while it was starting"),
                    )
                    .retryable());
                }
                Err(fault) => {
                    self.give_up(sandbox_dir, started, status);
                    return Err(fault);
                }
            }
        }
    }

    /// Connects to a supervised sandbox. Waits for one that is starting.
    ///
    /// # Errors
    /// `sandbox-not-found`, `sandbox-not-running`, or the loss of the link.
    pub fn connect(&self, name: &Name) -> Result<Sandbox, Fault> {
        let deadline = Instant::now() + Duration::from_millis(crate::DEFAULT_START_MS);
        connect::connect(&self.layout, name, deadline)
    }

    /// Returns all entries, sorted by name.
    pub fn list(&self) -> Result<Vec<RegistryEntry>, Fault> {
        let rooms = self.layout.sandboxes();
        let entries =
            std::fs::read_dir(&rooms).map_err(|error| fault::io("list", &rooms, error))?;
        let mut found = Vec::new();
        for entry in entries.flatten() {
            if let Some(name) = entry
                .file_name()
                .to_str()
                .and_then(|name| Name::parse(name).ok())
                && let Some(entry) = self.entry(&name)?
            {
                found.push(entry);
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Returns the entry of a name. `None` if there is no such sandbox.
    pub fn entry(&self, name: &Name) -> Result<Option<RegistryEntry>, Fault> {
        let dir = self.layout.sandbox(name.as_str());
        // The lock is tested before the files are read, so the files are never older than the
        // answer of the lock.
        let (found, is_live) = match SandboxDir::find(&self.layout, name)? {
            SandboxDirState::Absent => return Ok(None),
            SandboxDirState::Held => (None, true),
            SandboxDirState::Free(sandbox_dir) => (Some(sandbox_dir), false),
        };
        let entry = describe(name, &dir, is_live);
        drop(found);
        Ok(Some(entry))
    }

    /// Returns the time of the last start of a supervised sandbox, new or resumed. `None` if it is
    /// unknown.
    pub fn last_started(&self, name: &Name) -> Option<SystemTime> {
        // The report is written once for each start.
        let report = self.layout.sandbox(name.as_str()).join(REPORT_FILE);
        report.metadata().and_then(|meta| meta.modified()).ok()
    }

    /// Returns the spec of a sandbox, whether it runs or not.
    ///
    /// # Errors
    /// `sandbox-not-found`, and the errors of reading its files.
    pub fn spec(&self, name: &Name) -> Result<SandboxSpec, Fault> {
        let dir = self.layout.sandbox(name.as_str());
        read_spec(&dir).map_err(|found| match found.code {
            Code::NotFound => fault::not_found(name),
            _ => found,
        })
    }

    /// Returns the location of the workspace's layers, whether the sandbox runs or not.
    ///
    /// # Errors
    /// `sandbox-not-found`; `unsupported` if the workspace has no layers that are visible from
    /// outside.
    pub fn workspace_layers(&self, name: &Name) -> Result<WorkspaceLayers, Fault> {
        let dir = self.layout.sandbox(name.as_str());
        let in_memory = || control::layers(&dir);
        workspace::layers(&self.layout, &dir, in_memory).map_err(|found| match found.code {
            Code::NotFound => fault::not_found(name),
            _ => found,
        })
    }

    /// Ends a sandbox and removes its files, also one of another process, and returns when it is
    /// gone. Succeeds if there is no such sandbox.
    pub fn kill(&self, name: &Name) -> Result<KillOutcome, Fault> {
        let killed = termination::kill(&self.layout, name);
        self.reap();
        // The next sweep removes files that cannot be removed now.
        let _ = checkpoint::store::collect_garbage(&self.layout);
        killed
    }

    /// Lists the remains of dead owners, without changing them.
    pub fn orphans(&self) -> Result<Vec<Orphan>, Fault> {
        Ok(sweep::orphans(&self.layout)?.orphans)
    }

    /// Removes the remains of dead owners and lists them.
    pub fn sweep(&self) -> Result<Vec<Orphan>, Fault> {
        let sweep::SweepReport {
            orphans,
            kept_slots,
            parking_news,
        } = sweep::sweep(&self.layout)?;
        let mut swept = lock(&self.swept);
        swept.at = Instant::now();
        swept.kept_slots = kept_slots;
        swept.parking_news.extend(parking_news);
        Ok(orphans)
    }

    /// Returns the changes that sweeps have parked or dropped since the previous call.
    pub fn take_parking_news(&self) -> Vec<ParkingNews> {
        std::mem::take(&mut lock(&self.swept).parking_news)
    }

    /// Waits until the files of sandboxes that ended in this process are removed. A sandbox is gone
    /// for all processes as soon as it has ended; removing its files may take longer.
    pub fn settle(&self) {
        self.cleanup.settle();
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the state directory.
    pub fn state_dir(&self) -> &Path {
        self.layout.state()
    }

    fn housekeep(&self) {
        self.reap();
        let is_due = lock(&self.swept).at.elapsed() >= SWEEP_INTERVAL;
        if is_due {
            // An error must not block new sandboxes. The next sweep and `doctor` find the same
            // remains.
            let _ = self.sweep();
        }
    }

    fn lease_slot(&self) -> Result<Slot, Fault> {
        let kept = lock(&self.swept).kept_slots.clone();
        Slot::lease(&self.layout, self.max_sandboxes, &kept)
    }

    /// Reserves the ids of the sandbox in `dir`, which may be resumed with them.
    pub(crate) fn keep_slot(&self, dir: &Path) {
        let slot = read_status(dir).ok().and_then(|status| status.slot);
        lock(&self.swept).kept_slots.extend(slot);
    }

    fn reap(&self) {
        let mut supervisors = lock(&self.supervisors);
        supervisors.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    fn image(&self) -> Result<&GuestImage, Fault> {
        if let Some(image) = self.image.get() {
            return Ok(image);
        }
        let image = GuestImage::shared(&self.layout.base())?;
        Ok(self.image.get_or_init(|| image))
    }

    /// Creates the directory of a sandbox that must be new.
    fn claim_new(&self, name: &Name, spec: &SandboxSpec) -> Result<SandboxDir, Fault> {
        let patience = Instant::now() + REMOVAL_WAIT;
        loop {
            if let Some(sandbox_dir) = SandboxDir::make(&self.layout, name, spec, None)? {
                return Ok(sandbox_dir);
            }
            match SandboxDir::find(&self.layout, name)? {
                SandboxDirState::Absent => {}
                SandboxDirState::Free(sandbox_dir) if is_kept(&sandbox_dir) => {
                    return Err(taken(name, "is kept"));
                }
                SandboxDirState::Free(sandbox_dir) => {
                    sweep::remove_dead(&self.layout, sandbox_dir)?;
                }
                // Its owner may be removing it.
                SandboxDirState::Held if Instant::now() < patience => {
                    std::thread::sleep(LOOK_AGAIN);
                }
                SandboxDirState::Held => return Err(taken(name, "is running")),
            }
        }
    }

    /// Waits until a sandbox of another process is ready. Returns false if it vanished instead.
    fn await_ready(&self, name: &Name, deadline: Instant) -> Result<bool, Fault> {
        let dir = self.layout.sandbox(name.as_str());
        loop {
            match read_status(&dir) {
                Ok(status) if !status.is_supervised => {
                    return Err(taken(name, "is another command's own"));
                }
                // The lock may be held by a process that only tests it, while the status is that of
                // a dead owner. The socket decides.
                Ok(status) if status.state == SandboxState::Ready && socket::dial(&dir).is_ok() => {
                    return Ok(true);
                }
                Err(fault) if fault.code != Code::NotFound => return Err(fault),
                _ => {}
            }
            if !matches!(SandboxDir::find(&self.layout, name)?, SandboxDirState::Held) {
                return Ok(false);
            }
            if Instant::now() >= deadline {
                return Err(Fault::failed(
                    Code::TimedOut,
                    format!("the sandbox `{name}` did not get ready in time"),
                )
                .remedy(format!("`glovebox kill {name}` removes it")));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Writes the status and seed of a sandbox that is about to start in a directory whose lock
    /// this process holds, and leases its slot: a new one, or the previous one of a resumed
    /// sandbox.
    fn furnish(
        &self,
        sandbox_dir: &SandboxDir,
        started: StartOutcome,
        spec: &SandboxSpec,
        status: &mut Status,
    ) -> Result<Slot, Fault> {
        if started == StartOutcome::Resumed {
            status.slot = read_status(&sandbox_dir.path).ok().and_then(|was| was.slot);
            sandbox_dir.write_spec(spec)?;
            sandbox_dir.write_status(status)?;
        }
        let slot = match status.slot {
            Some(number) => Slot::lease_again(&self.layout, number),
            None => self.lease_slot(),
        }?;
        status.slot = Some(slot.number);
        sandbox_dir.write_status(status)?;
        let dir = &sandbox_dir.path;
        if started == StartOutcome::Created {
            checkpoint::seed::make(&self.layout, dir, &spec.jail, self.seed_maker)?;
        } else {
            // Finish an interrupted change first: its remains would be mistaken for the present
            // state of the sandbox.
            for place in checkpoint::change::finish(&self.layout, dir)? {
                trash::remove(&self.layout, &place)?;
            }
            checkpoint::seed::renew(&self.layout, dir, &spec.jail, self.seed_maker)?;
        }
        Ok(slot)
    }

    fn known(&self, name: &Name) -> Result<RegistryEntry, Fault> {
        self.entry(name)?.ok_or_else(|| fault::not_found(name))
    }

    /// Undoes a failed start: removes a new directory, and marks a resumed one as lost.
    fn give_up(&self, sandbox_dir: SandboxDir, started: StartOutcome, status: Status) {
        // The fault of the start is the one to report. The next sweep removes the remains.
        let _ = if started == StartOutcome::Resumed {
            sandbox_dir.write_status(&Status {
                state: SandboxState::Lost,
                ..status
            })
        } else {
            sandbox_dir.discard(&self.layout)
        };
    }
}

fn taken(name: &Name, how: &str) -> Fault {
    Fault::failed(
        Code::AlreadyExists,
        format!("a sandbox `{name}` exists already; it {how}"),
    )
    .remedy(format!(
        "choose another name, or `glovebox kill {name}` first"
    ))
}
