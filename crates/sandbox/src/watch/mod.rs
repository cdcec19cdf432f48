//! Watch over limits that the kernel does not enforce. One thread per process samples all native
//! sandboxes in turn and ends one that exceeds a limit. If memory is exceeded, it ends the command
//! that uses most of it, and the sandbox only if that does not help (`relief`).
//!
//! Disk usage is the sum of the files in the layers and of unlinked files that processes hold open.
//! Memory usage is that of the processes and of the kernel on their behalf. Usage that cannot be
//! measured several times in a row counts as an exceeded limit. The faster usage approaches a
//! limit, the sooner the next sample is taken; if nothing runs and the kernel counts processor
//! time, the next sample is late (`rest`).

mod census;
mod held;
mod memory;
mod relief;
mod rest;
mod roster;
mod work;

pub(crate) use roster::add;

use crate::breach::LimitBreach;
use crate::process::ProcessRef;
use crate::process::forced_end;
use crate::spec::amount::{limit_in_words, size};
pub use work::ResourceUsage;
pub(crate) use work::work_below;

use census::{Process, processes_of};
use glovebox_jail::cgroup::{Cgroup, GroupFreezer};
use glovebox_jail::counters::{Counters, used_bytes};
use glovebox_jail::launch::Init;
use glovebox_jail::plan::{CheckpointLayer, HostResources};
use glovebox_jail::usage::{
    MAX_DEPTH, MAX_ENTRIES, TreeBounds, TreeUsage, measure_inside, measure_within,
};
use glovebox_proto::{Fault, Limit};
use glovebox_spec::{Isolation, Layers, LimitKind, Limits};
use held::KernelHeldBytes;
use rest::Rest;
use rustix::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval between two samples of a sandbox that is far from its limits.
const TICK: Duration = Duration::from_millis(200);
/// Shortest interval, used when a limit will soon be reached.
const SHORT_TICK: Duration = Duration::from_millis(20);
/// Ratio of the interval to the duration of a sample, at least: sampling takes at most a twentieth
/// of the time.
const DUTY: u32 = 20;

/// Failed measurements in a row after which the limit counts as exceeded.
const UNSEEN_LOOKS: u32 = 5;
/// Maximum number of commands to end one after the other before the sandbox is ended.
const MAX_RELIEFS: u32 = 3;
/// Maximum time for the process that measures from inside.
const INSIDE_DEADLINE: Duration = Duration::from_secs(20);

/// Resources beside the spec that the watch over a sandbox needs.
#[derive(Debug, Default)]
pub(crate) struct Instruments {
    /// Control group of the sandbox, if it has one.
    pub(crate) group: Option<Cgroup>,
    /// Counters of the memory that the kernel holds for the sandbox. `None` if that is not watched.
    pub(crate) counters: Option<Counters>,
    /// Layers in memory. `None` if they are on disk or not watched.
    pub(crate) layers: Option<Arc<OwnedFd>>,
    /// Guest program. `None` if the disk is not watched.
    pub(crate) guest: Option<OwnedFd>,
    /// True if the kernel enforces the disk limit.
    pub(crate) is_disk_held: bool,
    /// Maximum number of files in all layers. `None` if the disk is not watched.
    pub(crate) max_files: Option<u64>,
}

/// A sandbox under watch.
#[derive(Debug)]
pub(crate) struct WatchedSandbox {
    /// First process of the sandbox.
    pub(crate) init: Init,
    /// Reference to the same process for reading `/proc`. `None` if it has ended.
    pub(crate) reference: Option<ProcessRef>,
    limits: Limits,
    /// Directory of the layers on disk. `None` if they are in memory or the kernel enforces their
    /// limit.
    layers: Option<PathBuf>,
    /// Maximum number of files in all layers.
    max_files: u64,
    /// Layers that checkpoints froze; their size counts against the limit.
    frozen: Mutex<FixedLayers>,
    instruments: Mutex<Instruments>,
    breach: Mutex<Option<LimitBreach>>,
    /// Number of commands that were ended because memory was exceeded.
    relieved: AtomicU64,
    /// Number of samples with as many processes and threads as the limit allows.
    full_looks: AtomicU64,
    progress: Mutex<Progress>,
}

/// Results of earlier samples.
#[derive(Debug, Default)]
struct Progress {
    /// Number of incomplete samples in a row.
    unseen: u32,
    /// Number of commands that were ended in a row while memory stayed above the limit.
    reliefs: u32,
    /// Time of the last complete sample, and the room left below each limit.
    last: Option<(Instant, Headroom)>,
    /// Period in which nothing has changed.
    rest: Rest,
}

/// Room left below the limits that are watched. `None` for one that is not watched.
#[derive(Debug, Clone, Copy, Default)]
struct Headroom {
    cpu_us: Option<u64>,
    disk_bytes: Option<u64>,
    memory_bytes: Option<u64>,
}

/// Result of one sample.
enum Finding {
    /// No limit is exceeded.
    Below(Headroom),
    /// A limit other than memory is exceeded.
    Exceeded(LimitBreach),
    /// The memory limit is exceeded.
    OverMemory(LimitBreach),
    /// Usage could not be measured; the reason is a phrase that follows "because".
    Unseen(String),
}

/// Time of the next sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextLook {
    /// After this duration, or later if sampling is expensive.
    After(Duration),
    /// At once: a command was just ended, which took most of the interval.
    AtOnce,
}

/// Layers that never change, with their size once it has been measured.
#[derive(Debug, Default)]
struct FixedLayers {
    paths: Vec<PathBuf>,
    taken: Option<TreeBounds>,
}

impl FixedLayers {
    fn new(frozen: Vec<CheckpointLayer>) -> Self {
        let paths = frozen
            .into_iter()
            .flat_map(|layer| layer.root.into_iter().chain(layer.workspace))
            .collect();
        Self { paths, taken: None }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchedSandbox {
    /// Creates the watched state of a sandbox that was just started.
    pub(crate) fn new(
        init: Init,
        spec: &Isolation,
        place: &HostResources,
        instruments: Instruments,
    ) -> Self {
        Self {
            frozen: Mutex::new(FixedLayers::new(place.frozen.clone())),
            reference: u32::try_from(init.pid).ok().and_then(ProcessRef::of),
            init,
            limits: spec.limits.clone(),
            layers: (spec.layers == Layers::Disk && !instruments.is_disk_held)
                .then(|| place.layers.clone()),
            max_files: instruments.max_files.unwrap_or(MAX_ENTRIES),
            instruments: Mutex::new(instruments),
            breach: Mutex::new(None),
            relieved: AtomicU64::new(0),
            full_looks: AtomicU64::new(0),
            progress: Mutex::default(),
        }
    }

    /// Replaces the frozen layers after an exchange of layers.
    pub(crate) fn set_frozen(&self, frozen: Vec<CheckpointLayer>) {
        *lock(&self.frozen) = FixedLayers::new(frozen);
        lock(&self.progress).rest = Rest::default();
    }

    /// Returns the layers that checkpoints froze.
    pub(crate) fn frozen_layers(&self) -> Vec<PathBuf> {
        lock(&self.frozen).paths.clone()
    }

    /// Returns the number of processes that the kernel or the watch ended because memory was
    /// exceeded.
    pub(crate) fn oom_kills(&self) -> u64 {
        let by_kernel = lock(&self.instruments)
            .group
            .as_ref()
            .map_or(0, Cgroup::oom_kills);
        by_kernel.saturating_add(self.relieved.load(Ordering::Relaxed))
    }

    /// Returns the number of refused new processes that the kernel counted, plus the samples that
    /// found the limit reached.
    pub(crate) fn forks_refused(&self) -> u64 {
        let counted = lock(&self.instruments)
            .group
            .as_ref()
            .map_or(0, Cgroup::forks_refused);
        counted.saturating_add(self.full_looks.load(Ordering::Relaxed))
    }

    /// Returns the exceeded limit for which the watch ended the sandbox. `None` if it did not.
    pub(crate) fn breach(&self) -> Option<LimitBreach> {
        lock(&self.breach).clone()
    }

    /// Ends all processes; returns when none is left.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        forced_end::end_all(self.init.pidfd(), self.reference, &|| {
            forced_end::kill_group(lock(&self.instruments).group.as_ref());
        })
    }

    /// Returns the freezer of the control group. `None` unless the group is of version 2, where
    /// frozen processes can be killed.
    pub(crate) fn group_freezer(&self) -> Option<GroupFreezer> {
        lock(&self.instruments)
            .group
            .as_ref()?
            .freezer_of_version_2()
    }

    /// Takes the control group out, for the caller to remove it.
    pub(crate) fn take_cgroup(&self) -> Option<Cgroup> {
        lock(&self.instruments).group.take()
    }

    /// Closes descriptors that keep memory of the sandbox alive. Called when it is about to end.
    pub(crate) fn release_memory(&self) {
        let mut instruments = lock(&self.instruments);
        drop((instruments.counters.take(), instruments.layers.take()));
    }

    fn is_memory_watched(&self) -> bool {
        self.limits.memory_bytes.is_some()
            && !lock(&self.instruments).group.as_ref().is_some_and(|group| {
                group.applied().memory == glovebox_jail::cgroup::LimitState::Enforced
            })
    }

    fn needs_watching(&self) -> bool {
        (self.limits.disk_bytes.is_some() && self.layers.is_some())
            || self.limits.cpu_time_ms.is_some()
            || self.is_memory_watched()
    }

    /// Returns the size of the frozen layers, measured once. `Err` is the result of the sample if
    /// it cannot be measured.
    fn frozen_usage(&self) -> Result<TreeBounds, Finding> {
        let paths = {
            let frozen = lock(&self.frozen);
            match frozen.taken {
                Some(taken) => return Ok(taken),
                None => frozen.paths.clone(),
            }
        };
        let mut taken = TreeBounds {
            bytes: 0,
            entries: 0,
        };
        for path in &paths {
            let usage = self.tree_usage(path, TreeBounds::of_bytes(u64::MAX))?;
            taken.bytes = taken.bytes.saturating_add(usage.bytes);
            taken.entries = taken.entries.saturating_add(usage.entries);
        }
        let mut frozen = lock(&self.frozen);
        // The measurement ran without the lock. If layers were exchanged meanwhile, the result is
        // of the old ones and is not stored.
        if frozen.paths == paths {
            frozen.taken = Some(taken);
        }
        Ok(taken)
    }

    /// Returns the size of a tree that commands wrote. `Err` is the result of the sample if the
    /// tree exceeds `bounds` or cannot be measured.
    fn tree_usage(&self, path: &Path, bounds: TreeBounds) -> Result<TreeBounds, Finding> {
        let usage = match measure_within(path, bounds) {
            TreeUsage::Unseen(errno) => self.tree_usage_inside(path, bounds, errno),
            usage => usage,
        };
        match usage {
            TreeUsage::Whole { bytes, entries } => Ok(TreeBounds { bytes, entries }),
            TreeUsage::Over => Err(self.disk_exceeded()),
            TreeUsage::TooManyEntries => Err(self.files_exceeded()),
            TreeUsage::TooDeep => Err(Finding::Exceeded(LimitBreach::fixed(format!(
                "it nested directories more than {MAX_DEPTH} deep"
            )))),
            TreeUsage::Unseen(errno) => Err(Finding::Unseen(format!(
                "a directory it made cannot be listed ({})",
                std::io::Error::from_raw_os_error(errno)
            ))),
        }
    }

    /// Measures a tree from inside the sandbox. A command can deny its directories to the user who
    /// owns the sandbox, but not to a process with all capabilities in the sandbox's user
    /// namespace.
    fn tree_usage_inside(&self, path: &Path, bounds: TreeBounds, errno: i32) -> TreeUsage {
        let guest = lock(&self.instruments)
            .guest
            .as_ref()
            .and_then(|guest| guest.try_clone().ok());
        let Some(guest) = guest else {
            return TreeUsage::Unseen(errno);
        };
        let program = PathBuf::from(format!("/proc/self/fd/{}", guest.as_raw_fd()));
        measure_inside(&program, &self.init, path, bounds, INSIDE_DEADLINE)
            .unwrap_or(TreeUsage::Unseen(errno))
    }

    fn disk_exceeded(&self) -> Finding {
        let max = self.limits.disk_bytes.unwrap_or_default();
        let reason = format!("it wrote more than its disk limit of {}", size(max));
        Finding::Exceeded(LimitBreach::of(Limit::Disk, reason))
    }

    fn files_exceeded(&self) -> Finding {
        let files = self.max_files;
        let reason = match self.limits.disk_bytes {
            Some(max) => format!(
                "it made more than {files} files, which is all that its disk limit of {} allows",
                size(max)
            ),
            None => format!("it made more than {files} files"),
        };
        Finding::Exceeded(LimitBreach::of(Limit::Disk, reason))
    }

    /// Returns the room below the limit of CPU time. `counted_us` is the time that the kernel
    /// counted; `None` to add up the times of the processes.
    fn cpu_room(
        &self,
        counted_us: Option<u64>,
        processes: &[Process],
    ) -> Result<Option<u64>, Finding> {
        let Some(max_ms) = self.limits.cpu_time_ms else {
            return Ok(None);
        };
        let used_us = counted_us.unwrap_or_else(|| work::cpu_us(processes));
        let room_us = max_ms.saturating_mul(1000).checked_sub(used_us);
        room_us.map(Some).ok_or_else(|| {
            let max = limit_in_words(LimitKind::CpuTime, max_ms);
            let reason = format!("it used more than its CPU time limit of {max}");
            Finding::Exceeded(LimitBreach::of(Limit::CpuTime, reason))
        })
    }

    /// Returns the room below the disk limit.
    fn disk_room(&self, held: &KernelHeldBytes) -> Result<Option<u64>, Finding> {
        let (Some(max), Some(layers)) = (self.limits.disk_bytes, &self.layers) else {
            return Ok(None);
        };
        let frozen = self.frozen_usage()?;
        let room = max
            .checked_sub(frozen.bytes)
            .and_then(|room| room.checked_sub(held.disk_bytes))
            .ok_or_else(|| self.disk_exceeded())?;
        let entries = self
            .max_files
            .checked_sub(frozen.entries)
            .ok_or_else(|| self.files_exceeded())?;
        let bounds = TreeBounds {
            bytes: room,
            entries,
        };
        let usage = self.tree_usage(layers, bounds)?;
        // Files are converted to bytes by their share of the limit, because the pace of both
        // decides when the next sample is due.
        let bytes_left = room.saturating_sub(usage.bytes);
        let of_files = max / self.max_files.max(1);
        let files_left = entries
            .saturating_sub(usage.entries)
            .saturating_mul(of_files);
        Ok(Some(bytes_left.min(files_left)))
    }

    /// Returns the room below the memory limit.
    fn memory_room(
        &self,
        processes: &[Process],
        held: &KernelHeldBytes,
    ) -> Result<Option<u64>, Finding> {
        let Some(max) = self
            .limits
            .memory_bytes
            .filter(|_| self.is_memory_watched())
        else {
            return Ok(None);
        };
        if held.descriptors > memory::MAX_DESCRIPTORS {
            let reason = format!(
                "its processes had more than {} files open together, which counts against its memory limit",
                memory::MAX_DESCRIPTORS
            );
            return Err(Finding::Exceeded(LimitBreach::of(Limit::Memory, reason)));
        }
        let counted = self.counted_bytes().map_err(|errno| {
            Finding::Unseen(format!("its kernel memory cannot be counted ({errno})"))
        })?;
        let kernel_bytes = memory::kernel_bytes(held, counted);
        let quick = memory::resident_bytes(processes).saturating_add(kernel_bytes);
        if quick <= max {
            return Ok(Some(max - quick));
        }
        let exact = memory::proportional_bytes(processes, &held.memory_files)
            .map_or(quick, |bytes| bytes.saturating_add(kernel_bytes));
        max.checked_sub(exact).map(Some).ok_or_else(|| {
            let reason = format!("it used more than its memory limit of {}", size(max));
            Finding::OverMemory(LimitBreach::of(Limit::Memory, reason))
        })
    }

    /// Returns the bytes that file systems in memory and System V IPC of the sandbox hold.
    fn counted_bytes(&self) -> Result<u64, rustix::io::Errno> {
        let instruments = lock(&self.instruments);
        let counters = match &instruments.counters {
            Some(counters) => counters.held_bytes()?,
            // The counters were released because the sandbox is about to end.
            None => 0,
        };
        let layers = match &instruments.layers {
            Some(layers) => used_bytes(layers.as_fd())?,
            None => 0,
        };
        Ok(counters.saturating_add(layers))
    }

    /// Ends the command that uses most memory. Returns false if there is none.
    fn end_largest_command(&self) -> bool {
        let Some(command) = relief::largest_command(self.init.pid) else {
            return false;
        };
        // Counted before the end, so that a client that learns of the end finds the reason.
        self.relieved.fetch_add(1, Ordering::Relaxed);
        command.end();
        true
    }

    /// Takes one sample. `cpu_us` is the CPU time that the kernel has counted for the sandbox.
    fn look(&self, cpu_us: Option<u64>) -> Finding {
        let Some(processes) = processes_of(self.init.pid) else {
            return Finding::Unseen("it has too many processes".to_owned());
        };
        let tasks: usize = processes.iter().map(|process| process.threads.len()).sum();
        if self
            .limits
            .pids
            .is_some_and(|max| tasks as u64 >= u64::from(max))
        {
            self.full_looks.fetch_add(1, Ordering::Relaxed);
        }
        let shm = lock(&self.instruments)
            .counters
            .as_ref()
            .and_then(|counters| counters.device().ok());
        let held = held::held_by(&processes, shm.as_slice());
        let rooms = self.disk_room(&held).and_then(|disk_bytes| {
            let memory_bytes = self.memory_room(&processes, &held)?;
            Ok(Headroom {
                cpu_us: self.cpu_room(cpu_us, &processes)?,
                disk_bytes,
                memory_bytes,
            })
        });
        match (rooms, held.unseen) {
            (Err(finding), _) => finding,
            (Ok(_), Some(pid)) => Finding::Unseen(format!(
                "the files that its process {pid} has open cannot be seen"
            )),
            (Ok(room), None) => Finding::Below(room),
        }
    }

    /// Takes one sample if one is due. Returns the time of the next, or the limit for which the
    /// sandbox must be ended.
    fn exceeded(&self) -> Result<NextLook, LimitBreach> {
        let begun = Instant::now();
        // Read before the sample: processor time used during the sample then makes another one due.
        let cpu_us = lock(&self.instruments)
            .group
            .as_ref()
            .and_then(Cgroup::cpu_us);
        {
            let mut progress = lock(&self.progress);
            if progress.rest.lasts(begun, cpu_us) {
                if let Some((at, _)) = &mut progress.last {
                    *at = begun;
                }
                return Ok(NextLook::After(TICK));
            }
        }
        let finding = self.look(cpu_us);
        let mut progress = lock(&self.progress);
        match finding {
            Finding::Exceeded(breach) => Err(breach),
            Finding::OverMemory(breach) => {
                if progress.reliefs >= MAX_RELIEFS || !self.end_largest_command() {
                    return Err(breach);
                }
                progress.reliefs += 1;
                Ok(NextLook::AtOnce)
            }
            Finding::Unseen(why) => {
                progress.unseen += 1;
                if progress.unseen < UNSEEN_LOOKS {
                    return Ok(NextLook::After(TICK));
                }
                let limit = match (self.limits.disk_bytes, &self.layers) {
                    (Some(_), Some(_)) => Limit::Disk,
                    _ => Limit::Memory,
                };
                Err(LimitBreach::unseen(limit, &why))
            }
            Finding::Below(room) => {
                let now = Instant::now();
                let pause = progress.last.map_or(TICK, |(at, before)| {
                    let passed = now.duration_since(at);
                    [
                        (before.cpu_us, room.cpu_us),
                        (before.disk_bytes, room.disk_bytes),
                        (before.memory_bytes, room.memory_bytes),
                    ]
                    .map(|(before, now)| pause(before, now, passed))
                    .into_iter()
                    .min()
                    .unwrap_or(TICK)
                });
                *progress = Progress {
                    unseen: 0,
                    reliefs: 0,
                    last: Some((now, room)),
                    rest: Rest::since(begun, cpu_us),
                };
                Ok(NextLook::After(pause))
            }
        }
    }
}

/// Returns the time to the next sample: half the time in which the room would be used up at the
/// present pace, between [`SHORT_TICK`] and [`TICK`].
fn pause(before: Option<u64>, now: Option<u64>, passed: Duration) -> Duration {
    let (Some(before), Some(now)) = (before, now) else {
        return TICK;
    };
    let used = before.saturating_sub(now);
    if used == 0 {
        return TICK;
    }
    let lasts = passed.mul_f64(now as f64 / used as f64 / 2.0);
    lasts.clamp(SHORT_TICK, TICK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_look_comes_before_the_limit() {
        let passed = Duration::from_millis(200);
        assert_eq!(pause(None, Some(5), passed), TICK);
        assert_eq!(pause(Some(100), Some(100), passed), TICK);
        assert_eq!(pause(Some(50), Some(100), passed), TICK);
        // A tenth of the room is used in 200 ms, so it lasts for 2 s.
        assert_eq!(pause(Some(110), Some(100), passed), TICK);
        assert_eq!(
            pause(Some(200), Some(100), passed),
            Duration::from_millis(100)
        );
        assert_eq!(pause(Some(1000), Some(10), passed), SHORT_TICK);
    }
}
