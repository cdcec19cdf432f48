//! Probes of what this machine can do for a sandbox, made by trying it, and advice on what to
//! change.
//!
//! The caller provides a way to run the guest program as a throw-away child, and the paths to
//! examine. The results are findings for `glovebox doctor` and for texts of errors. [`inside`]
//! tries one primitive in the child, [`machine`] reads the settings that explain a refusal, and
//! [`verdict`] turns both into a finding. `verdict` is pure, so that tests can judge machines that
//! are not available.
//!
//! Invariants: a probe leaves nothing behind, and no remedy weakens the whole machine if a narrower
//! one exists.

mod inside;
mod machine;
#[cfg(test)]
mod tests;
mod verdict;

use std::fmt;
use std::io;
use std::path::Path;

use glovebox_spec::finding::{Finding, FindingState};

use crate::cgroup::{Controller, Controllers, Limits};

pub use inside::child_main;
pub use machine::{Machine, Surroundings};
pub use verdict::judge;

/// A primitive that a child tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// A user namespace with one mapped id.
    UserNamespace,
    /// A mount namespace without propagation.
    MountNamespace,
    /// fsopen(2), open_tree(2), mount_setattr(2), move_mount(2).
    NewMountApi,
    /// A network namespace with its loopback interface up.
    NetworkNamespace,
    /// A pid namespace with a `/proc` of its own.
    PidNamespace,
    /// An overlay with its writable layer in the state directory.
    Overlay,
    /// An id-mapped mount of the state directory (root only).
    IdmappedMount,
    /// The system call filter.
    Seccomp,
    /// The Landlock ruleset.
    Landlock,
    /// Running a program from memory.
    MemfdExec,
    /// A new pseudo-terminal.
    Terminal,
}

impl Probe {
    /// All probes in the order of the report: each comes after those it depends on.
    pub const ALL: [Self; 11] = [
        Self::UserNamespace,
        Self::MountNamespace,
        Self::NewMountApi,
        Self::NetworkNamespace,
        Self::PidNamespace,
        Self::Overlay,
        Self::IdmappedMount,
        Self::Seccomp,
        Self::Landlock,
        Self::MemfdExec,
        Self::Terminal,
    ];

    /// Returns the stable name of the probe. It is the finding's id and the child's argument.
    pub fn id(self) -> &'static str {
        match self {
            Self::UserNamespace => "user-namespace",
            Self::MountNamespace => "mount-namespace",
            Self::NewMountApi => "mount-api",
            Self::NetworkNamespace => "network-namespace",
            Self::PidNamespace => "pid-namespace",
            Self::Overlay => "overlay",
            Self::IdmappedMount => "idmapped-mount",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::MemfdExec => "memfd-exec",
            Self::Terminal => "terminal",
        }
    }

    fn takes_state_dir(self) -> bool {
        matches!(self, Self::Overlay | Self::IdmappedMount)
    }
}

/// Argument of a child, followed by `:DIR`, that tries whether a directory can be a read-only layer
/// of a sandbox.
pub const LOWER_LAYER: &str = "lower-layer";

/// Reason why a directory cannot be a read-only layer of a sandbox of this caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerObstacle {
    /// Its file system does not support id-mapped mounts, which sandboxes of root need.
    Owners,
    /// The kernel mounts no overlay over its file system.
    Overlay,
}

impl LayerObstacle {
    /// Judges the outcome of [`LOWER_LAYER`]. `None` if it succeeded, or failed for a reason that
    /// is not the directory's: the start of the sandbox reports those.
    pub fn judge(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Failed { step, .. } if step == "idmap" => Some(Self::Owners),
            Outcome::Failed { step, .. } if step == "overlay" => Some(Self::Overlay),
            _ => None,
        }
    }
}

/// Result of a probe's child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The primitive works. Holds a detail for the report; empty if there is none.
    Worked(String),
    /// A step was refused with an errno.
    Failed {
        /// Name of the step; the names are those in [`inside`].
        step: String,
        /// Errno of the step.
        errno: i32,
    },
    /// The child could not be run or its output was not understood. Holds the reason.
    NotRun(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worked(detail) => write!(f, "ok {detail}"),
            Self::Failed { step, errno } => write!(f, "failed {step} {errno}"),
            Self::NotRun(why) => write!(f, "not-run {why}"),
        }
    }
}

impl Outcome {
    /// Parses the line that [`fmt::Display`] wrote in the child.
    pub fn parse(line: &str) -> Self {
        let line = line.trim();
        match line.split_once(' ') {
            None if line == "ok" => return Self::Worked(String::new()),
            Some(("ok", detail)) => return Self::Worked(detail.to_owned()),
            _ => {}
        }
        let failed = line.strip_prefix("failed ").and_then(|rest| {
            let (step, errno) = rest.split_once(' ')?;
            Some(Self::Failed {
                step: step.to_owned(),
                errno: errno.parse().ok()?,
            })
        });
        failed.unwrap_or_else(|| {
            let why = line.strip_prefix("not-run ").unwrap_or(line);
            Self::NotRun(if why.is_empty() {
                "it said nothing".to_owned()
            } else {
                why.to_owned()
            })
        })
    }
}

/// Input of the probes.
pub struct ProbeCx<'a> {
    /// Runs `glovebox-guest probe ARGUMENT` and returns its one line of output.
    pub run_child: &'a dyn Fn(&str) -> io::Result<String>,
    /// Directory of the writable layers. It must exist.
    pub state_dir: &'a Path,
    /// Path of this program, for remedies that name it.
    pub program: &'a Path,
    /// Directory below which settings are read: `/`, except in tests.
    pub root: &'a Path,
    /// Detected control groups.
    pub controllers: &'a Controllers,
}

impl fmt::Debug for ProbeCx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeCx")
            .field("state_dir", &self.state_dir)
            .finish_non_exhaustive()
    }
}

/// Returns true if this process runs in a native sandbox, recognised by the sources of its mounts.
/// `root` is `/`.
pub fn is_inside_sandbox(root: &Path) -> bool {
    let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    // proc_pid_mountinfo(5): the mount point is the fifth field, the source the second after the
    // dash.
    mounts.lines().any(|line| {
        let point = line.split(' ').nth(4);
        let source = line
            .split_once(" - ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        matches!(point, Some("/" | "/proc")) && source == Some("glovebox")
    })
}

/// Limits that a sandbox usually has. Their values do not matter here.
const USUAL_LIMITS: Limits = Limits::of_sandbox(Some(1 << 30), Some(1.0), Some(1000));

/// Runs all probes and judges them. Takes some tens of milliseconds, because each probe starts a
/// process.
pub fn run_all(cx: &ProbeCx<'_>) -> Vec<Finding> {
    let machine = Machine::read(cx.root, cx.state_dir, cx.program);
    let mut findings = vec![verdict::kernel(&machine)];
    findings.extend(
        Probe::ALL
            .iter()
            .filter_map(|probe| try_one(cx, *probe, &machine)),
    );
    let has_landlock = findings
        .iter()
        .any(|found| found.id == Probe::Landlock.id() && found.state == FindingState::Ok);
    findings.push(verdict::tracing(&machine, has_landlock));
    findings.push(verdict::id_ranges(&machine));
    findings.extend(Controller::ALL.iter().map(|controller| {
        let place = cx.controllers.place(*controller);
        let why_absent = cx.controllers.why_absent(*controller);
        let mut found = verdict::controller(*controller, place, why_absent);
        if *controller == Controller::Freezer && !cx.controllers.can_stop(&USUAL_LIMITS) {
            verdict::weaken_freezer(&mut found);
        }
        if machine.surroundings.is_container() {
            // Only the container's owner can give out control groups.
            found.remedy = None;
        }
        found
    }));
    findings
}

/// Runs one probe. `None` if it does not apply to this caller.
fn try_one(cx: &ProbeCx<'_>, probe: Probe, machine: &Machine) -> Option<Finding> {
    if probe == Probe::IdmappedMount && machine.uid != 0 {
        return None;
    }
    let mut argument = probe.id().to_owned();
    if probe.takes_state_dir() {
        argument = format!("{argument}:{}", cx.state_dir.display());
    }
    let outcome = match (cx.run_child)(&argument) {
        Ok(line) => Outcome::parse(&line),
        Err(error) => Outcome::NotRun(error.to_string()),
    };
    Some(judge(probe, &outcome, machine))
}
