//! Resource limits of one sandbox: control groups of version 2, of version 1, or a mixture, by
//! doing rather than by guessing.
//!
//! In: what `/proc/self` says about mounts and membership, and the limits wanted. Out: a directory per
//! hierarchy below a `glovebox` directory of our own place in it, and for each limit whether the
//! kernel enforces it. Runs on the host side only; nothing of this is visible inside.
//!
//! Invariants: a limit is reported [`LimitState::Enforced`] only after its value was written; we stay
//! below the group we were started in, so whatever bounds us bounds our sandboxes; nothing is
//! moved that is not ours; paths are always relative to a directory descriptor that [`Controllers`]
//! holds. `memory.oom.group` stays off: it would kill the program on the inside with the command.

mod detect;
mod freezer;
mod group;
mod hierarchy;
mod keyed_count;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use freezer::GroupFreezer;
pub use group::Cgroup;
use group::Dir;
use hierarchy::{Hierarchy, Version};
pub use view::{GROUPS, GroupView};

/// The directory below our own group in which every sandbox has its own.
pub(crate) const PARENT: &str = "glovebox";

/// Where detection reads and where it looks for the mounts; tests point it at a tree of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectCx {
    /// The directory with `mountinfo` and `cgroup` of the calling process.
    pub proc_self: PathBuf,
    /// What the mount points of `mountinfo` are relative to.
    pub root: PathBuf,
}

impl Default for DetectCx {
    fn default() -> Self {
        Self {
            proc_self: PathBuf::from("/proc/self"),
            root: PathBuf::from("/"),
        }
    }
}

/// Controllers of the kernel that sandboxes use: for limits, for stopping, and because programs look for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Controller {
    /// Bytes of memory.
    Memory,
    /// Number of processes and threads.
    Pids,
    /// Share of processor time.
    Cpu,
    /// Stopping and killing all at once.
    Freezer,
    /// Counter of used processor time (version 1). Java ignores every limit where this controller,
    /// [`Self::CpuSet`], [`Self::Cpu`] or [`Self::Memory`] is not mounted.
    CpuAccount,
    /// Set of processors (version 1): those of the group above, so that it limits nothing.
    CpuSet,
}

impl Controller {
    /// Controllers that limit or stop processes, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Pids, Self::Cpu, Self::Freezer];

    /// Controllers of version 1 that limit nothing; their groups are only shown to programs.
    const SHOWN: [Self; 2] = [Self::CpuAccount, Self::CpuSet];

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Freezer => "freezer",
            Self::CpuAccount => "cpuacct",
            Self::CpuSet => "cpuset",
        }
    }
}

/// What a sandbox may use; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Bytes of memory, page cache and tmpfs included. Swap is not given on top where it can be refused.
    pub memory_bytes: Option<u64>,
    /// Processors, as a share of time: 1.5 is one and a half. The smallest share is 0.01.
    pub cpus: Option<f64>,
    /// Processes and threads together.
    pub pids: Option<u64>,
    /// Make sure that all processes can be stopped at once, also where that takes a hierarchy of its
    /// own (version 1). Where it takes none it is always so.
    pub can_freeze: bool,
}

impl Limits {
    /// Those of the group of a sandbox. The end of its first process is everybody's end, so a group
    /// is of use to stop and end them all, and none is made for that alone.
    pub const fn of_sandbox(
        memory_bytes: Option<u64>,
        cpus: Option<f64>,
        pids: Option<u64>,
    ) -> Self {
        Self {
            memory_bytes,
            cpus,
            pids,
            can_freeze: false,
        }
    }

    /// Returns true if a group with these limits has a directory in `hierarchy`.
    fn need(&self, hierarchy: &Hierarchy) -> bool {
        // Java reads a limit of version 1 only where all four of these controllers are mounted.
        let is_read_by_java = self.memory_bytes.is_some() || self.cpus.is_some();
        hierarchy.serves.iter().any(|controller| match controller {
            // Memory is wanted even without a limit, for its counters.
            Controller::Memory => true,
            Controller::Pids => self.pids.is_some(),
            Controller::Cpu => {
                self.cpus.is_some() || (hierarchy.version == Version::V1 && is_read_by_java)
            }
            Controller::Freezer => self.can_freeze,
            Controller::CpuAccount | Controller::CpuSet => is_read_by_java,
        })
    }
}

/// How far a limit holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitState {
    /// Nobody asked for a limit.
    #[default]
    Unlimited,
    /// The kernel holds it.
    Enforced,
    /// Something weaker than the kernel holds it; the reason says what.
    Approximate(String),
    /// Nothing holds it; the reason says why.
    Absent(String),
}

/// The state of each limit of one [`Cgroup`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitStates {
    /// State of [`Limits::memory_bytes`].
    pub memory: LimitState,
    /// State of [`Limits::cpus`].
    pub cpu: LimitState,
    /// State of [`Limits::pids`].
    pub pids: LimitState,
}

/// A control group operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Names are path components of the kernel's tree.
    #[error("`{0}` cannot name a control group; use 1 to 64 letters, digits, `-` and `_`")]
    Name(String),
    /// The name is taken, perhaps by a sandbox whose owner died; sweeping removes those.
    #[error("the control group {0} exists already")]
    Exists(String),
    /// A share of processors that is not a positive number.
    #[error("{0} is not a number of processors; use a positive number such as 1.5")]
    Cpus(f64),
    /// The kernel refused a step.
    #[error("{step} in the control group {path}: {source}")]
    Refused {
        /// What was attempted.
        step: &'static str,
        /// The directory, for people.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Processes were still there when the time was over.
    #[error("the control group {name} did not {what} within {waited_ms} ms")]
    Timeout {
        /// The name of the group.
        name: String,
        /// What was waited for.
        what: &'static str,
        /// How long, in milliseconds.
        waited_ms: u64,
    },
}

/// What this machine and our place in it offer. Detect once, keep, and clone freely.
///
/// When the last clone is dropped, `glovebox` directories that are empty by then are removed.
#[derive(Clone, Debug)]
pub struct Controllers {
    shared: Arc<SharedHierarchies>,
}

#[derive(Debug)]
struct SharedHierarchies {
    hierarchies: Vec<Hierarchy>,
    /// Why a controller is served by no hierarchy.
    absent: Vec<(Controller, String)>,
}

impl Drop for SharedHierarchies {
    fn drop(&mut self) {
        for hierarchy in &self.hierarchies {
            hierarchy.tidy();
        }
    }
}

impl Controllers {
    /// Finds the hierarchies in which we may make groups. Never fails: what is missing has a reason.
    pub fn detect(cx: &DetectCx) -> Self {
        let found = detect::detect(cx);
        Self {
            shared: Arc::new(SharedHierarchies {
                hierarchies: found.hierarchies,
                absent: found.absent,
            }),
        }
    }

    /// Why `controller` cannot be used, or `None` when it can.
    pub fn why_absent(&self, controller: Controller) -> Option<&str> {
        if self.serving(controller).is_some() {
            return None;
        }
        let reason = self.shared.absent.iter().find(|(c, _)| *c == controller);
        Some(reason.map_or("no hierarchy serves it", |(_, why)| why))
    }

    /// Where `controller` is served and by which version, for reports.
    pub fn place(&self, controller: Controller) -> Option<(PathBuf, u8)> {
        let hierarchy = &self.shared.hierarchies[self.serving(controller)?];
        Some((hierarchy.path.clone(), hierarchy.version.number()))
    }

    /// Returns true if a group with these limits has a directory where the freezer of version 2 is,
    /// which is the only one that sandboxes are stopped with.
    pub fn can_stop(&self, limits: &Limits) -> bool {
        self.serving(Controller::Freezer)
            .map(|index| &self.shared.hierarchies[index])
            .is_some_and(|found| found.version == Version::V2 && limits.need(found))
    }

    /// The names of groups of ours that begin with `prefix`, whoever made them.
    pub fn list_ours(&self, prefix: &str) -> Vec<String> {
        let names: BTreeSet<String> = self
            .shared
            .hierarchies
            .iter()
            .flat_map(Hierarchy::children)
            .filter(|name| name.starts_with(prefix) && check_name(name).is_ok())
            .collect();
        names.into_iter().collect()
    }

    /// Takes over the group `name` that somebody else made, so that it can be killed and removed.
    ///
    /// `None` when no hierarchy has it (any more). The states of its limits are not known.
    pub fn adopt(&self, name: &str) -> Option<Cgroup> {
        check_name(name).ok()?;
        let hierarchies = self.shared.hierarchies.iter().enumerate();
        let dirs: Vec<Dir> = hierarchies
            .filter_map(|(index, hierarchy)| {
                let fd = hierarchy.open_child(name).ok()?;
                Some(Dir { index, fd })
            })
            .collect();
        (!dirs.is_empty()).then(|| Cgroup::of(self, name, dirs))
    }

    /// Whether version 2 holds a limit, so that groups have a directory a process can be born in
    /// ([`Cgroup::unified_dir`]).
    pub fn limits_unified(&self) -> bool {
        detect::LIMITED.into_iter().any(|controller| {
            let serving = self.serving(controller);
            serving.is_some_and(|at| self.shared.hierarchies[at].version == Version::V2)
        })
    }

    fn serving(&self, controller: Controller) -> Option<usize> {
        self.shared
            .hierarchies
            .iter()
            .position(|h| h.serves.contains(&controller))
    }
}

/// Letters, digits, `-` and `_`: never a path, never one of the kernel's own files (they have dots).
fn check_name(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=64).contains(&name.len()) && name.chars().all(plain) {
        Ok(())
    } else {
        Err(Error::Name(name.to_owned()))
    }
}
