//! What this machine can do for a sandbox, found out by doing it, and what to change where it cannot.
//!
//! In: a way to run the program on the inside as a throw-away child, and where to look. Out: findings
//! for `glovebox doctor` and for the text of an error. Three parts: [`inside`] tries one primitive in
//! the child, [`machine`] reads the settings that explain a refusal, [`verdict`] turns both
//! into a finding without touching anything, so that machines we do not have can be judged in tests.
//!
//! Invariant: nothing is left behind, and no remedy weakens the whole machine where a narrower one exists.

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

/// Something a child tries.
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
    /// All of them, in the order of the report: what others need comes first.
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

    /// The stable name: the finding's id, and what the child is asked for.
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

/// What the child is asked for, with `:DIR`, to try whether a directory can be a read-only layer of a sandbox.
pub const LOWER_LAYER: &str = "lower-layer";

/// Reason why a directory cannot be a read-only layer of a sandbox of this caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerObstacle {
    /// Its file system has no id-mapped mounts, which sandboxes of root need.
    Owners,
    /// The kernel puts no overlay over its file system.
    Overlay,
}

impl LayerObstacle {
    /// Judges the outcome of [`LOWER_LAYER`]. What was refused for another reason is no obstacle of the directory: the
    /// start of the sandbox tells of it.
    pub fn judge(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Failed { step, .. } if step == "idmap" => Some(Self::Owners),
            Outcome::Failed { step, .. } if step == "overlay" => Some(Self::Overlay),
            _ => None,
        }
    }
}

/// What the child saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It worked; the text is a fact worth telling, or empty.
    Worked(String),
    /// A step was refused with an errno.
    Failed {
        /// Which of its steps; the names are those in [`inside`].
        step: String,
        /// The kernel's answer.
        errno: i32,
    },
    /// The child itself could not be run or understood.
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
    /// Reads the line that [`fmt::Display`] wrote in the child.
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

/// What the probes need from their caller.
pub struct ProbeCx<'a> {
    /// Runs `glovebox-guest probe ARGUMENT` and returns its one line of output.
    pub run_child: &'a dyn Fn(&str) -> io::Result<String>,
    /// Where writable layers will live; must exist.
    pub state_dir: &'a Path,
    /// The file of this program, for remedies that name it.
    pub program: &'a Path,
    /// `/`, below which settings are read; tests look elsewhere.
    pub root: &'a Path,
    /// The control groups as detected.
    pub controllers: &'a Controllers,
}

impl fmt::Debug for ProbeCx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeCx")
            .field("state_dir", &self.state_dir)
            .finish_non_exhaustive()
    }
}

/// Whether this is the inside of a native sandbox, told by the names its mounts have. `root` is `/`.
pub fn is_inside_sandbox(root: &Path) -> bool {
    let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    // proc_pid_mountinfo(5): the mount point is the fifth field, the source the second after the dash.
    mounts.lines().any(|line| {
        let point = line.split(' ').nth(4);
        let source = line
            .split_once(" - ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        matches!(point, Some("/" | "/proc")) && source == Some("glovebox")
    })
}

/// Limits of which a sandbox usually has each; how large they are does not matter here.
const USUAL_LIMITS: Limits = Limits::of_sandbox(Some(1 << 30), Some(1.0), Some(1000));

/// Tries everything and judges it. Takes some tens of milliseconds: each try is a process.
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
            // Groups are given out by who runs the container.
            found.remedy = None;
        }
        found
    }));
    findings
}

/// Tries one thing; `None` where it has no meaning for this caller.
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
