//! Limits that the kernel does not hold are watched: one thread per process looks at all native
//! sandboxes in turn and ends one that is over. Too much memory ends the command that holds most of it, and the
//! sandbox only where that does not help (`relief`).
//!
//! What is counted: on disk, what the layers list and what processes hold without a name; in memory,
//! processes and what the kernel keeps for them. Whatever cannot be seen for several looks is taken for a limit
//! that was passed. The faster a limit is approached the sooner the next look comes; where nothing runs and the kernel
//! counts processor time, it comes late (`rest`).

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

/// Time between two looks at the same sandbox that is far from its limits.
const TICK: Duration = Duration::from_millis(200);
/// The same where a limit will soon be reached.
const SHORT_TICK: Duration = Duration::from_millis(20);
/// A look may take one part in this many of the time until the next.
const DUTY: u32 = 20;

/// A look at something that cannot be seen is repeated this often before it counts.
const UNSEEN_LOOKS: u32 = 5;
/// Commands that are ended one after the other before the sandbox is.
const MAX_RELIEFS: u32 = 3;
/// How long the process that looks from inside may take.
const INSIDE_DEADLINE: Duration = Duration::from_secs(20);

/// What the watch needs of a sandbox beside its spec.
#[derive(Debug, Default)]
pub(crate) struct Instruments {
    /// Its control group, if it has one.
    pub(crate) group: Option<Cgroup>,
    /// What counts the memory that the kernel keeps for it, where that is watched.
    pub(crate) counters: Option<Counters>,
    /// Its layers in memory, where that is watched.
    pub(crate) layers: Option<Arc<OwnedFd>>,
    /// The guest program, where the disk is watched.
    pub(crate) guest: Option<OwnedFd>,
    /// Whether the kernel holds the limit on disk.
    pub(crate) is_disk_held: bool,
    /// Most files of all layers, where the disk is watched.
    pub(crate) max_files: Option<u64>,
}

/// One sandbox under watch.
#[derive(Debug)]
pub(crate) struct WatchedSandbox {
    /// Its first process.
    pub(crate) init: Init,
    /// The same for looking at it in /proc.
    pub(crate) reference: Option<ProcessRef>,
    limits: Limits,
    /// Where its layers are on disk; `None` when they are in memory, or the kernel holds their limit.
    layers: Option<PathBuf>,
    /// Most files of all layers.
    max_files: u64,
    /// What checkpoints froze counts as well.
    frozen: Mutex<FixedLayers>,
    instruments: Mutex<Instruments>,
    breach: Mutex<Option<LimitBreach>>,
    /// Commands that were ended for want of memory.
    relieved: AtomicU64,
    /// Looks that found as many processes and threads as the limit allows.
    full_looks: AtomicU64,
    progress: Mutex<Progress>,
}

/// What earlier looks found.
#[derive(Debug, Default)]
struct Progress {
    /// Looks in a row that did not see everything.
    unseen: u32,
    /// Commands that were ended one after the other without getting below the memory limit.
    reliefs: u32,
    /// When the last one was, and how much room was left below each limit.
    last: Option<(Instant, Headroom)>,
    /// Since when nothing has changed.
    rest: Rest,
}

/// What is left below the limits that are watched.
#[derive(Debug, Clone, Copy, Default)]
struct Headroom {
    cpu_us: Option<u64>,
    disk_bytes: Option<u64>,
    memory_bytes: Option<u64>,
}

/// What one look found.
enum Finding {
    /// All is well.
    Below(Headroom),
    /// A limit was passed.
    Exceeded(LimitBreach),
    /// The memory limit was passed.
    OverMemory(LimitBreach),
    /// It cannot be told; why not, as a phrase that follows "because".
    Unseen(String),
}

/// When to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextLook {
    /// After this time, or later if looking is expensive.
    After(Duration),
    /// At once: something was ended, and that took most of the time.
    AtOnce,
}

/// Layers that never change, and what they take once that was looked at.
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
    /// Takes what was started under its wing.
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

    /// Other layers are below the writable ones now.
    pub(crate) fn set_frozen(&self, frozen: Vec<CheckpointLayer>) {
        *lock(&self.frozen) = FixedLayers::new(frozen);
        lock(&self.progress).rest = Rest::default();
    }

    /// Layers that checkpoints froze.
    pub(crate) fn frozen_layers(&self) -> Vec<PathBuf> {
        lock(&self.frozen).paths.clone()
    }

    /// Times one of its processes was ended for want of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        let by_kernel = lock(&self.instruments)
            .group
            .as_ref()
            .map_or(0, Cgroup::oom_kills);
        by_kernel.saturating_add(self.relieved.load(Ordering::Relaxed))
    }

    /// Times it was refused another process because of the limit on them.
    pub(crate) fn forks_refused(&self) -> u64 {
        let counted = lock(&self.instruments)
            .group
            .as_ref()
            .map_or(0, Cgroup::forks_refused);
        counted.saturating_add(self.full_looks.load(Ordering::Relaxed))
    }

    /// Why it was ended, if the watch ended it.
    pub(crate) fn breach(&self) -> Option<LimitBreach> {
        lock(&self.breach).clone()
    }

    /// Ends all of it; returns when nothing is left.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        forced_end::end_all(self.init.pidfd(), self.reference, &|| {
            forced_end::kill_group(lock(&self.instruments).group.as_ref());
        })
    }

    /// The kernel's freezer for its control group, if there is one that lets frozen processes be killed.
    pub(crate) fn group_freezer(&self) -> Option<GroupFreezer> {
        lock(&self.instruments)
            .group
            .as_ref()?
            .freezer_of_version_2()
    }

    /// Gives up the control group, to be removed.
    pub(crate) fn take_cgroup(&self) -> Option<Cgroup> {
        lock(&self.instruments).group.take()
    }

    /// Closes what keeps memory of the sandbox alive; it is about to end.
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

    /// What the layers take that never change. `Err` tells why that cannot be told.
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
        // Walked without the lock: what was exchanged meanwhile is counted next time.
        if frozen.paths == paths {
            frozen.taken = Some(taken);
        }
        Ok(taken)
    }

    /// What a tree that commands wrote takes, within these bounds. `Err` is what there is to say otherwise.
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

    /// Commands can close directories to the user who owns the sandbox, but not to a process in its user
    /// namespace with all capabilities there.
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

    /// Room below the limit of CPU time, of which `counted_us` was used, or as much as the processes tell.
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

    /// Room below the disk limit.
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
        // How fast both go tells when to look again: a file is worth as many bytes as the limit gives it.
        let bytes_left = room.saturating_sub(usage.bytes);
        let of_files = max / self.max_files.max(1);
        let files_left = entries
            .saturating_sub(usage.entries)
            .saturating_mul(of_files);
        Ok(Some(bytes_left.min(files_left)))
    }

    /// Room below the memory limit.
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

    /// What the file systems in memory and the System V IPC of the sandbox hold.
    fn counted_bytes(&self) -> Result<u64, rustix::io::Errno> {
        let instruments = lock(&self.instruments);
        let counters = match &instruments.counters {
            Some(counters) => counters.held_bytes()?,
            // It is about to end.
            None => 0,
        };
        let layers = match &instruments.layers {
            Some(layers) => used_bytes(layers.as_fd())?,
            None => 0,
        };
        Ok(counters.saturating_add(layers))
    }

    /// Ends the command that holds most memory. False when there is none.
    fn end_largest_command(&self) -> bool {
        let Some(command) = relief::largest_command(self.init.pid) else {
            return false;
        };
        // Counted first: whoever hears of the command's end finds the reason.
        self.relieved.fetch_add(1, Ordering::Relaxed);
        command.end();
        true
    }

    /// One look at everything. `cpu_us` is the CPU time that the kernel has counted for all of it.
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

    /// One look. Says what was exceeded, or when the next one is due at the latest.
    fn exceeded(&self) -> Result<NextLook, LimitBreach> {
        let begun = Instant::now();
        // Before the look: what runs meanwhile makes for another one.
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

/// When to look again: before what is left is used up, should it go on like that.
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
        // A tenth of what is left in 200 ms: it lasts for 2 s.
        assert_eq!(pause(Some(110), Some(100), passed), TICK);
        assert_eq!(
            pause(Some(200), Some(100), passed),
            Duration::from_millis(100)
        );
        assert_eq!(pause(Some(1000), Some(10), passed), SHORT_TICK);
    }
}
