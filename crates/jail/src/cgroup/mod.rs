//! Resource limits of one sandbox by control groups of version 2, of version 1, or a mixture.
//! Support is found out by trying.
//!
//! From the mounts and membership in `/proc/self` and the requested limits, it makes a directory
//! per hierarchy below a `glovebox` directory of our own group, and tells for each limit whether
//! the kernel enforces it. It runs on the host only; see [`GroupView`] for the part that a sandbox
//! sees.
//!
//! Invariants: a limit is reported [`LimitState::Enforced`] only after its value was written.
//! Groups are made below the group we were started in, so every bound on us bounds our sandboxes.
//! Only our own processes are moved. Paths are always relative to a directory descriptor that
//! [`Controllers`] holds. `memory.oom.group` stays off, because it would kill the guest with the
//! command.

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

/// Directory below our own group that contains the groups of all sandboxes.
pub(crate) const PARENT: &str = "glovebox";

/// Paths that detection reads; tests use a tree of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectCx {
    /// The directory with `mountinfo` and `cgroup` of the calling process.
    pub proc_self: PathBuf,
    /// Directory that the mount points of `mountinfo` are relative to.
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

/// Controllers of the kernel that sandboxes use: for limits, for stopping, or because programs look
/// for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Controller {
    /// Bytes of memory.
    Memory,
    /// Number of processes and threads.
    Pids,
    /// Share of processor time.
    Cpu,
    /// Freezing and killing all processes at once.
    Freezer,
    /// Counter of used processor time (version 1). Java ignores every limit where this controller,
    /// [`Self::CpuSet`], [`Self::Cpu`] or [`Self::Memory`] is not mounted.
    CpuAccount,
    /// Set of processors (version 1). It is that of the parent group, so it limits nothing.
    CpuSet,
}

impl Controller {
    /// Controllers that limit or stop processes, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Pids, Self::Cpu, Self::Freezer];

    /// Controllers of version 1 that limit nothing; their groups are only shown to programs.
    const SHOWN: [Self; 2] = [Self::CpuAccount, Self::CpuSet];

    /// Returns the kernel's name of the controller.
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

/// Limits of a sandbox; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Memory in bytes, page cache and tmpfs included. Swap in addition is refused where the kernel
    /// can.
    pub memory_bytes: Option<u64>,
    /// Processor time as a number of processors: 1.5 is one and a half. The minimum is 0.01.
    pub cpus: Option<f64>,
    /// Maximum number of processes and threads together.
    pub pids: Option<u64>,
    /// True if all processes must be freezable at once, even if that takes a directory in a hierarchy
    /// that serves nothing else. If the freezer's hierarchy also serves a limit, they always are.
    pub can_freeze: bool,
}

impl Limits {
    /// Returns the limits of a sandbox's group. When the sandbox's first process ends, all others
    /// end too. So freezing and killing alone is no reason for a group.
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
        // Java reads a limit of version 1 only if all four of these controllers are mounted.
        let is_read_by_java = self.memory_bytes.is_some() || self.cpus.is_some();
        hierarchy.serves.iter().any(|controller| match controller {
            // Memory is needed even without a limit, for its counters.
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

/// State of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitState {
    /// No limit was requested.
    #[default]
    Unlimited,
    /// The kernel enforces it.
    Enforced,
    /// A weaker mechanism than the kernel enforces it. Holds the description.
    Approximate(String),
    /// It is not enforced. Holds the reason.
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

/// Error of a control-group operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is invalid. Names are path components of the kernel's tree.
    #[error("`{0}` cannot name a control group; use 1 to 64 letters, digits, `-` and `_`")]
    Name(String),
    /// The group exists, perhaps of a sandbox whose owner died; a sweep removes those.
    #[error("the control group {0} exists already")]
    Exists(String),
    /// The number of processors is not positive and finite.
    #[error("{0} is not a number of processors; use a positive number such as 1.5")]
    Cpus(f64),
    /// The kernel refused a step.
    #[error("{step} in the control group {path}: {source}")]
    Refused {
        /// Description of the step.
        step: &'static str,
        /// The directory, for messages.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// Processes were still there when the timeout ended.
    #[error("the control group {name} did not {what} within {waited_ms} ms")]
    Timeout {
        /// The name of the group.
        name: String,
        /// Condition that was awaited, as a phrase that follows "did not".
        what: &'static str,
        /// Length of the timeout, in milliseconds.
        waited_ms: u64,
    },
}

/// Hierarchies that this process may use. Detect once, keep, and clone freely.
///
/// When the last clone is dropped, `glovebox` directories that are empty are removed.
#[derive(Clone, Debug)]
pub struct Controllers {
    shared: Arc<SharedHierarchies>,
}

#[derive(Debug)]
struct SharedHierarchies {
    hierarchies: Vec<Hierarchy>,
    /// Reasons why controllers are served by no hierarchy.
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
    /// Finds the hierarchies in which this process may make groups. Never fails: each missing
    /// controller has a reason.
    pub fn detect(cx: &DetectCx) -> Self {
        let found = detect::detect(cx);
        Self {
            shared: Arc::new(SharedHierarchies {
                hierarchies: found.hierarchies,
                absent: found.absent,
            }),
        }
    }

    /// Returns the reason why `controller` cannot be used. `None` if it can.
    pub fn why_absent(&self, controller: Controller) -> Option<&str> {
        if self.serving(controller).is_some() {
            return None;
        }
        let reason = self.shared.absent.iter().find(|(c, _)| *c == controller);
        Some(reason.map_or("no hierarchy serves it", |(_, why)| why))
    }

    /// Returns the directory in which `controller` is served, and the version of its hierarchy, for
    /// reports. `None` if it is not served.
    pub fn place(&self, controller: Controller) -> Option<(PathBuf, u8)> {
        let hierarchy = &self.shared.hierarchies[self.serving(controller)?];
        Some((hierarchy.path.clone(), hierarchy.version.number()))
    }

    /// Returns true if a group with these limits has a directory in a hierarchy with the freezer of
    /// version 2, the only one that sandboxes are stopped with.
    pub fn can_stop(&self, limits: &Limits) -> bool {
        self.serving(Controller::Freezer)
            .map(|index| &self.shared.hierarchies[index])
            .is_some_and(|found| found.version == Version::V2 && limits.need(found))
    }

    /// Returns the names of our groups that begin with `prefix`, including those that other
    /// processes made.
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

    /// Opens the group `name` that another process made, so that it can be killed and removed.
    ///
    /// `None` if no hierarchy has it. The states of its limits are unknown.
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

    /// Returns true if version 2 enforces a limit. Groups then have a directory in which a process
    /// can be created ([`Cgroup::unified_dir`]).
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

/// Checks a name: letters, digits, `-` and `_`. Such a name is no path and none of the kernel's own
/// files, which have dots.
fn check_name(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=64).contains(&name.len()) && name.chars().all(plain) {
        Ok(())
    } else {
        Err(Error::Name(name.to_owned()))
    }
}
