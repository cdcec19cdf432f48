//! Stage 0: turns an ordinary process into the first process of a sandbox.
//!
//! The host starts the guest binary as *stage 0* with one end of a socket pair as descriptor 0.
//! Stage 0 continues in two processes. The child lives in new namespaces, does all mounting and
//! becomes the guest. The parent does the few steps that need the host's authority (id maps and,
//! under root, id-mapped mounts), reports, and exits. Creating the namespaces takes as long as
//! preparing a plan ([`crate::plan::Plan`]), so the two run at the same time: the host sends the
//! plan when it is ready, first the parent's part and then the whole plan for the child, which
//! reads it after a message from the parent.
//!
//! ```text
//! host --Group+fd----> stage 0                          with control groups of version 2 only
//! host <--Born+pidfd-- parent --clone(NEW*)--> child    waits
//! host --Outside-----> parent --maps, Go-----> child
//! host --Plan+fd-----------------------------> child
//!                      parent --mounts-------> child    mounts
//! host --Admission+fds-----------------------> child    sees its control groups,
//!                                                       joins those of version 1,
//!                                                       pivots, seals, checks itself
//!                      exits                   child --Ready--> host, then speaks the wire
//! ```
//!
//! The child is a child of the host process (`CLONE_PARENT`), so the host can wait for it. A failed
//! step ends the start, and its name is reported; no step is skipped silently.

pub(crate) mod child;
mod examination;
mod groups;
pub(crate) mod mountinfo;

pub use crate::mount_path::unescape as unescape_mount;
pub(crate) mod mounts;
pub mod observation;
pub mod own_network;
pub(crate) mod parent;
mod settings;
pub(crate) mod staging;

use crate::channel;
use crate::identity::Separation;
use crate::landlock;
use crate::plan::{BytePath, Identity, Plan, Source};
use crate::processors::Processors;
use crate::program;
use crate::sys::clone::{self, Side};
use crate::sys::once;
use crate::tracing::Tracing;
use observation::Observation;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Second argument of stage 0: the sandbox has its own network namespace.
pub const OWN_NETWORK: &str = "own-network";
/// Second argument of stage 0: the sandbox shares the host's network namespace.
pub const HOST_NETWORK: &str = "host-network";

/// Third argument of stage 0, if any: the host sends the sandbox's control group before any other
/// message.
pub const OWN_GROUP: &str = "own-group";

/// Message from the host to stage 0 started with [`OWN_GROUP`]. Carries the directory of the
/// version 2 group; without a descriptor there is no such group.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Group;

/// Message of stage 0 to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The child exists. Carries its pidfd, and its user and mount namespaces if they can be
    /// opened. They are sent now because an unprivileged process can no longer open them later.
    Born {
        /// Pid of the child as the host sees it.
        pid: i32,
        /// True if the child is in the control group that the host sent.
        is_in_group: bool,
    },
    /// A restriction could only be applied in part. Holds the text for the isolation report.
    Degraded(String),
    /// The writable layers are in memory. Carries their directory, because no path outside the
    /// sandbox leads to it.
    Layers,
    /// Carries a descriptor that shows all mounts below it ([`mountinfo::read_table`]).
    Mounts,
    /// Carries the sockets of the egress proxy: the one that receives DNS queries, then unbound
    /// stream sockets.
    Egress,
    /// Carries the descriptors that show how much memory the kernel uses for the sandbox
    /// ([`crate::counters`]).
    Counters,
    /// The sandbox is complete and has checked itself.
    Ready(Box<SelfTest>),
    /// A step failed, and the start ends.
    Broken(FailedStep),
}

/// Step of a start that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedStep {
    /// Description of the step, as a phrase that follows "cannot".
    pub step: String,
    /// Error number of the system call.
    pub errno: i32,
    /// Kind of the step.
    pub kind: StepKind,
}

/// Kind of a start's step. Steps whose failure has causes of its own have a kind of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepKind {
    /// Mounting an overlay, which depends on the file systems of its layers.
    Overlay,
    /// Creating the namespaces, which a filter around this process may refuse.
    Namespaces,
    /// Any other step.
    Other,
}

impl FailedStep {
    pub(crate) fn new(step: impl Into<String>, errno: Errno) -> Self {
        Self {
            step: step.into(),
            errno: errno.raw_os_error(),
            kind: StepKind::Other,
        }
    }

    /// Marks the step as the mounting of an overlay.
    #[must_use]
    pub(crate) fn of_overlay(self) -> Self {
        Self {
            kind: StepKind::Overlay,
            ..self
        }
    }
}

/// Conversion of an errno into a [`FailedStep`].
pub(crate) trait Context<T> {
    /// Names the step that failed. `step` is a phrase that follows "cannot".
    fn cannot(self, step: &str) -> Result<T, FailedStep>;
}

impl<T> Context<T> for Result<T, Errno> {
    fn cannot(self, step: &str) -> Result<T, FailedStep> {
        self.map_err(|errno| FailedStep::new(step, errno))
    }
}

/// Result of the child's self-test, which runs after the last restriction has been applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTest {
    /// Pid of the guest in the new pid namespace.
    pub pid: i32,
    /// User id inside that the guest makes files with. It is that of commands.
    pub uid: u32,
    /// Real, effective, saved and file-system user id of the guest.
    pub user_ids: [u32; 4],
    /// Effective group id inside.
    pub gid: u32,
    /// Effective capabilities.
    pub cap_effective: u64,
    /// Permitted capabilities.
    pub cap_permitted: u64,
    /// Bounding set.
    pub cap_bounding: u64,
    /// True if exec can no longer gain privileges.
    pub no_new_privs: bool,
    /// Seccomp mode; 2 is a filter.
    pub seccomp_mode: u32,
    /// ABI of the Landlock ruleset for commands; 0 for none.
    pub landlock_abi: u32,
    /// True if a mount was refused.
    pub mount_denied: bool,
    /// True if a VSOCK socket was refused.
    pub vsock_denied: bool,
    /// True if a user namespace was refused.
    pub userns_denied: bool,
    /// Ability of commands to trace their own children.
    pub tracing: Tracing,
    /// Maximum number of user namespaces inside. `None` if it cannot be read.
    pub max_user_namespaces: Option<u64>,
    /// Descriptors that are open besides 0, 1 and 2.
    pub open_fds: Vec<i32>,
    /// Working directory.
    pub cwd: String,
    /// Names of [`crate::bounds::BOUNDS`] that could not be set.
    pub unset_bounds: Vec<String>,
    /// Mounts and set-up results that the sandbox's owner compares with the plan.
    pub observed: Observation,
    /// Microseconds from the receipt of the plan to the end of each phase.
    pub timings_us: Vec<(String, u64)>,
}

/// Server of DNS queries in a sandbox with its own network.
#[derive(Debug)]
pub enum NameServer {
    /// The guest, on this socket. The guest has yet to start serving it.
    Guest(OwnedFd),
    /// The sandbox's owner, outside.
    Owner,
}

impl NameServer {
    /// Returns the socket that the guest serves. `None` if the owner is the server.
    #[must_use]
    pub fn into_socket(self) -> Option<OwnedFd> {
        match self {
            Self::Guest(socket) => Some(socket),
            Self::Owner => None,
        }
    }
}

/// Descriptors and settings that the guest takes over when the sandbox is complete.
#[derive(Debug)]
pub struct GuestHandover {
    /// Socket to the host. From now on it carries the wire protocol.
    pub link: OwnedFd,
    /// Becomes readable when the host process that owns this sandbox has exited.
    pub supervisor: Option<OwnedFd>,
    /// Landlock ruleset to apply to every command.
    pub landlock: Option<OwnedFd>,
    /// Server of DNS queries. `None` unless the sandbox has its own network.
    pub names: Option<NameServer>,
    /// Mechanism that keeps commands from signalling or tracing the guest.
    pub separation: Separation,
    /// Input for building the ruleset again after the mounts were exchanged.
    pub walls: AccessRules,
    /// Base environment of every command.
    pub env: Vec<(String, String)>,
    /// Working directory of every command, as bytes.
    pub cwd: Vec<u8>,
    /// Processors that commands start on. `None` for all processors of the machine.
    pub processors: Option<Processors>,
    /// Maximum number of open files of each command. `None` for the limit of this process.
    pub open_files: Option<u32>,
    /// Result of the self-test. The host has received it too.
    pub self_test: SelfTest,
    /// File mode creation mask of the host process.
    pub umask: Mode,
}

/// Paths that commands may access. A Landlock ruleset refers to the directories that existed when
/// it was built, so a new one is needed after an exchange of the mounts.
#[derive(Debug, Clone)]
pub struct AccessRules {
    writable: Vec<PathBuf>,
    own_network: bool,
    is_nested: bool,
}

impl AccessRules {
    fn of(plan: &Plan) -> Self {
        let paths = plan.seal.writable.iter().map(BytePath::as_path);
        let writable = paths.map(|path| {
            if path == Path::new("/dev") {
                PathBuf::from("/dev/shm")
            } else {
                path.to_owned()
            }
        });
        Self {
            writable: writable.collect(),
            own_network: plan.net.is_own(),
            is_nested: plan.seal.nested.is_some(),
        }
    }

    /// Returns true if commands may make namespaces.
    #[must_use]
    pub const fn is_nested(&self) -> bool {
        self.is_nested
    }

    /// Returns the ruleset for commands, given `whole`, the ruleset for the guest's file
    /// operations. Both are the same unless commands may make namespaces: the kernel refuses every
    /// mount to a process under Landlock rules about files, so commands then get the rules about
    /// scopes only, or `None` if the sandbox has its own network and needs no such rule.
    ///
    /// # Errors
    /// As [`landlock::Ruleset::build`]; no descriptors.
    pub fn for_commands(
        &self,
        whole: Option<&OwnedFd>,
    ) -> Result<Option<OwnedFd>, landlock::Error> {
        match whole {
            None => Ok(None),
            Some(whole) if !self.is_nested => rustix::io::fcntl_dupfd_cloexec(whole, 3)
                .map(Some)
                .map_err(|errno| landlock::Error::unreadable("/".into(), errno)),
            Some(_) if self.own_network => Ok(None),
            Some(_) => landlock::Ruleset::build_scope(),
        }
    }

    /// Builds the ruleset for the directories that are mounted now.
    ///
    /// # Errors
    /// As [`landlock::Ruleset::build`].
    pub fn build(&self) -> Result<landlock::BuiltRuleset, landlock::Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open("/", flags, Mode::empty())
            .map_err(|errno| landlock::Error::unreadable("/".into(), errno))?;
        self.build_in(root.as_fd())
    }

    /// Builds the ruleset for the directory that will become the root.
    pub(crate) fn build_in(
        &self,
        root: BorrowedFd<'_>,
    ) -> Result<landlock::BuiltRuleset, landlock::Error> {
        landlock::Ruleset::build_in(
            root,
            &landlock::Policy {
                read_exec: vec!["/".into()],
                // Directories that this root lacks are skipped.
                read_write_if_there: self.writable.clone(),
                devices: vec!["/dev".into()],
                // Abstract sockets belong to the network namespace; a shared one needs this rule.
                scope_abstract_sockets: !self.own_network,
                ..landlock::Policy::default()
            },
        )
    }
}

/// Part of a plan that stage 0's parent needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ParentPlan {
    /// [`crate::plan::Plan::identity`].
    pub(crate) identity: Identity,
    /// [`crate::plan::Plan::sources`].
    pub(crate) sources: Vec<Source>,
}

/// Namespaces that hold a sandbox's mounts.
#[derive(Debug)]
pub(crate) struct SandboxNamespaces {
    pub(crate) user: OwnedFd,
    pub(crate) mount: OwnedFd,
}

impl SandboxNamespaces {
    fn of(pid: Pid) -> Option<Self> {
        let open = |name: &str| {
            let path = format!("/proc/{}/ns/{name}", pid.as_raw_nonzero());
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
        };
        Some(Self {
            user: open("user")?,
            mount: open("mnt")?,
        })
    }
}

/// Runs stage 0 on the socket that is descriptor 0. Returns `Ok` in the child only, after the
/// sandbox is complete and has checked itself; the parent always gets a [`ProcessExit`].
/// `own_network` must agree with the plan. With `own_group` the host sends a [`Group`] first.
///
/// Preconditions: the process has one thread, was started as stage 0, and has opened no descriptor.
///
/// # Errors
/// [`ProcessExit`] in each process that must now exit, with its exit code. The host has been
/// informed.
pub fn enter(own_network: bool, own_group: bool) -> Result<GuestHandover, ProcessExit> {
    // Close all descriptors that the host process inherited and passed on: later they would be open
    // inside the sandbox.
    once::close_from(3).map_err(|_| ProcessExit(1))?;
    let control =
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(|_| ProcessExit(1))?;
    // Files that stage 0 makes for all users of the sandbox must not depend on the host process's
    // mask.
    let umask = rustix::process::umask(Mode::from_raw_mode(0o022));
    let group = if own_group {
        // The connection ends without a message if the host has given up the start.
        match channel::receive::<Group>(&control) {
            Ok(Some((Group, fds))) => fds.into_iter().next(),
            Ok(None) | Err(_) => return Err(ProcessExit(1)),
        }
    } else {
        None
    };
    match split(group) {
        Ok(Stage0Fork {
            side: Side::Child,
            gate,
            ..
        }) => child::build(control, gate, own_network, umask),
        Ok(Stage0Fork {
            side: Side::Parent { pid, pidfd },
            gate,
            is_in_group,
        }) => {
            let born = Report::Born {
                pid: pid.as_raw_nonzero().get(),
                is_in_group,
            };
            Err(parent::finish(&control, &gate, pid, &pidfd, &born))
        }
        Err(broken) => {
            let _ = channel::send(&control, &Report::Broken(broken), &[]);
            Err(ProcessExit(1))
        }
    }
}

/// Instruction to exit with this code: the process has done its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessExit(pub i32);

/// State of one of the two processes that stage 0 continues in.
struct Stage0Fork {
    side: Side,
    /// This process's end of the socket pair between the two.
    gate: OwnedFd,
    is_in_group: bool,
}

fn split(group: Option<OwnedFd>) -> Result<Stage0Fork, FailedStep> {
    let (ours, theirs) =
        program::socket_pair().map_err(|errno| FailedStep::new("make a socket pair", errno))?;
    // The control-group namespace comes later, because its root is the group that the process is in
    // at that moment. The network namespace comes later too: the child has it made beside its other
    // work.
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_PARENT;
    // If the child cannot be created inside its group, the host moves it there.
    let in_group = group.and_then(|group| clone::clone_into_group(flags, group.as_fd()).ok());
    let is_in_group = in_group.is_some();
    let side = match in_group {
        Some(side) => side,
        None => clone::clone_into(flags).map_err(|errno| FailedStep {
            kind: StepKind::Namespaces,
            ..FailedStep::new("create the sandbox's namespaces", errno)
        })?,
    };
    let gate = match side {
        Side::Child => theirs,
        Side::Parent { .. } => ours,
    };
    Ok(Stage0Fork {
        side,
        gate,
        is_in_group,
    })
}

/// Message from the host to the child after the sandbox's control groups were made. Carries the
/// files for joining them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Admission {
    /// True if the host counts the memory that the kernel uses for the sandbox
    /// ([`crate::counters`]), because no cgroup limits it.
    pub(crate) counts_memory: bool,
}

/// Message from the parent to the child about the sources that the parent opened for it, in plan
/// order.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ParentMessage {
    /// True if descriptors for all sources follow in batches. If false, the child opens the
    /// sources.
    pub(crate) has_sources: bool,
}

/// Number of descriptors in each message between parent and child.
pub(crate) const BATCH: usize = 200;
