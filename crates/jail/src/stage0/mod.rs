//! From an ordinary process to the first process of a sandbox.
//!
//! The host starts the guest binary as *stage 0* with one end of a socket pair as descriptor 0. It
//! continues in two processes: a child in new namespaces, which does all mounting and becomes the
//! guest; and the parent, which does the little that needs the host's authority (id maps and,
//! under root, id-mapped mounts), reports, and exits. Making namespaces takes as long as
//! preparing a plan ([`crate::plan::Plan`]), so stage 0 does not wait for one: the host sends it when it is ready, first
//! the parent's part, then all of it for the child, who reads it when the parent says so.
//!
//! ```text
//! host --Group+fd----> stage 0                          with control groups of version 2 only
//! host <--Born+pidfd-- parent --clone(NEW*)--> child    waits
//! host --Outside-----> parent --maps, Go-----> child
//! host --Plan+fd-----------------------------> child
//!                      parent --mounts-------> child    mounts
//! host --Admission+fds-----------------------> child    sees its control groups, joins those of version 1
//!                                                       pivots, seals, checks itself
//!                      exits                   child --Ready--> host, then speaks the wire
//! ```
//!
//! The child shares the host process as its parent (`CLONE_PARENT`), so the host can wait for it.
//! Any step that fails ends the start with the step's name; nothing is skipped in silence.

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

/// Second argument of stage 0: the sandbox has a network namespace of its own.
pub const OWN_NETWORK: &str = "own-network";
/// Second argument of stage 0: it shares the host's.
pub const HOST_NETWORK: &str = "host-network";

/// Third argument of stage 0, if any: the host sends the sandbox's control group before anything else.
pub const OWN_GROUP: &str = "own-group";

/// From the host to stage 0 started with [`OWN_GROUP`]: the directory of the version 2 group comes along,
/// unless there is none.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Group;

/// What stage 0 and the child report to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The child exists. Its pidfd comes along, and its user and mount namespaces when they can be
    /// opened: only now, for later nobody without privilege may look at the child.
    Born {
        /// Its pid as the host sees it.
        pid: i32,
        /// It is in the group the host has sent.
        is_in_group: bool,
    },
    /// A wall could be built only in part; goes into the isolation report.
    Degraded(String),
    /// Its writable layers are in memory; their directory comes along, for nobody outside has a path to it.
    Layers,
    /// What shows everything that is mounted in it ([`mountinfo::read_table`]); comes along.
    Mounts,
    /// The sockets of the way out come along: where questions for names arrive, then unbound stream sockets.
    Egress,
    /// What tells how much memory the kernel keeps for the sandbox ([`crate::counters`]); comes along.
    Counters,
    /// The sandbox is complete and has checked itself.
    Ready(Box<SelfTest>),
    /// A step failed; the start is over.
    Broken(FailedStep),
}

/// The step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedStep {
    /// What was being done, as a phrase that follows "cannot".
    pub step: String,
    /// The system's answer.
    pub errno: i32,
    /// What kind of step it was.
    pub kind: StepKind,
}

/// Steps of a start whose failure has causes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepKind {
    /// Mounting an overlay, which depends on the file systems of its layers.
    Overlay,
    /// Making the namespaces, which a filter around this process may refuse.
    Namespaces,
    /// Any other.
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

    /// The same, of an overlay.
    #[must_use]
    pub(crate) fn of_overlay(self) -> Self {
        Self {
            kind: StepKind::Overlay,
            ..self
        }
    }
}

/// Attaches one meaning to an errno: what could not be done.
pub(crate) trait Context<T> {
    /// `step` is a phrase that follows "cannot".
    fn cannot(self, step: &str) -> Result<T, FailedStep>;
}

impl<T> Context<T> for Result<T, Errno> {
    fn cannot(self, step: &str) -> Result<T, FailedStep> {
        self.map_err(|errno| FailedStep::new(step, errno))
    }
}

/// What the child finds when it checks itself, after the last door has closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTest {
    /// Own pid in the new pid namespace.
    pub pid: i32,
    /// User id inside that files are made with, which is that of commands.
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
    /// Whether exec can gain privileges no more.
    pub no_new_privs: bool,
    /// Seccomp mode; 2 is a filter.
    pub seccomp_mode: u32,
    /// ABI of the Landlock ruleset for commands; 0 for none.
    pub landlock_abi: u32,
    /// A mount was refused.
    pub mount_denied: bool,
    /// A VSOCK socket was refused.
    pub vsock_denied: bool,
    /// A user namespace was refused.
    pub userns_denied: bool,
    /// Whether commands can trace what they started.
    pub tracing: Tracing,
    /// How many user namespaces may still be made inside.
    pub max_user_namespaces: Option<u64>,
    /// Descriptors that are open besides 0, 1 and 2.
    pub open_fds: Vec<i32>,
    /// Working directory.
    pub cwd: String,
    /// Names of [`crate::bounds::BOUNDS`] that could not be set here.
    pub unset_bounds: Vec<String>,
    /// What it sees and met, for the owner to compare with the plan.
    pub observed: Observation,
    /// Microseconds from the receipt of the plan to the end of each phase.
    pub timings_us: Vec<(String, u64)>,
}

/// Who answers the questions for names of a sandbox with a network of its own.
#[derive(Debug)]
pub enum NameServer {
    /// The guest, on this socket; nothing answers there yet.
    Guest(OwnedFd),
    /// The owner, outside.
    Owner,
}

impl NameServer {
    /// The guest's socket, if it is the guest.
    #[must_use]
    pub fn into_socket(self) -> Option<OwnedFd> {
        match self {
            Self::Guest(socket) => Some(socket),
            Self::Owner => None,
        }
    }
}

/// What the guest takes over when the sandbox is complete.
#[derive(Debug)]
pub struct GuestHandover {
    /// The socket to the host; from here on it speaks the wire protocol.
    pub link: OwnedFd,
    /// Becomes readable when the host process that owns this sandbox is gone.
    pub supervisor: Option<OwnedFd>,
    /// Ruleset to put on every command.
    pub landlock: Option<OwnedFd>,
    /// Who answers questions for names, in a sandbox with a network of its own.
    pub names: Option<NameServer>,
    /// What keeps commands from steering the guest.
    pub separation: Separation,
    /// What the ruleset is built from, for when the mounts are exchanged.
    pub walls: AccessRules,
    /// Base environment of every command.
    pub env: Vec<(String, String)>,
    /// Working directory of every command, as bytes.
    pub cwd: Vec<u8>,
    /// The processors that commands start on, where they are fewer than there are.
    pub processors: Option<Processors>,
    /// How many files each command may have open; `None` for as many as this process.
    pub open_files: Option<u32>,
    /// What the self-test found; the host has it too.
    pub self_test: SelfTest,
    /// File mode creation mask of the host process.
    pub umask: Mode,
}

/// What commands may reach, by path. A ruleset means the directories that were there when it was
/// built, so one is built anew after an exchange of the mounts.
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

    /// Whether commands may make namespaces of their own.
    #[must_use]
    pub const fn is_nested(&self) -> bool {
        self.is_nested
    }

    /// The rules for commands, where `whole` are those for file operations: the same, unless commands may make
    /// namespaces. The kernel refuses every mount to who is under rules about files, so of those only the rest
    /// is left, and nothing where there is no rest.
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

    /// Builds the ruleset for what is mounted now.
    ///
    /// # Errors
    /// As [`landlock::Ruleset::build`].
    pub fn build(&self) -> Result<landlock::BuiltRuleset, landlock::Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open("/", flags, Mode::empty())
            .map_err(|errno| landlock::Error::unreadable("/".into(), errno))?;
        self.build_in(root.as_fd())
    }

    /// As [`Self::build`], for what will be the root.
    pub(crate) fn build_in(
        &self,
        root: BorrowedFd<'_>,
    ) -> Result<landlock::BuiltRuleset, landlock::Error> {
        landlock::Ruleset::build_in(
            root,
            &landlock::Policy {
                read_exec: vec!["/".into()],
                // What this root does not have needs no rule.
                read_write_if_there: self.writable.clone(),
                devices: vec!["/dev".into()],
                // Where the network namespace is shared, so are abstract sockets.
                scope_abstract_sockets: !self.own_network,
                ..landlock::Policy::default()
            },
        )
    }
}

/// What the parent's half needs of a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ParentPlan {
    /// [`crate::plan::Plan::identity`].
    pub(crate) identity: Identity,
    /// [`crate::plan::Plan::sources`].
    pub(crate) sources: Vec<Source>,
}

/// The namespaces in which a sandbox's mounts are.
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

/// Runs stage 0 on the socket that is descriptor 0. Returns in the child only, complete and checked; the
/// parent's half ends in [`ProcessExit`]. `own_network` is what the plan will say as well; with `own_group` the
/// host sends a [`Group`] first.
///
/// Preconditions: the process has one thread, was started for this, and has opened nothing yet.
///
/// # Errors
/// [`ProcessExit`] in every process that must now exit, with its exit code. The host has been told.
pub fn enter(own_network: bool, own_group: bool) -> Result<GuestHandover, ProcessExit> {
    // Descriptors that whoever started the host process leaked to it end here.
    once::close_from(3).map_err(|_| ProcessExit(1))?;
    let control =
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(|_| ProcessExit(1))?;
    // What is built for all users of the sandbox does not depend on the mask of the host process.
    let umask = rustix::process::umask(Mode::from_raw_mode(0o022));
    let group = if own_group {
        // Nothing comes when the host has given up.
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

/// This process has done its part and must exit with this code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessExit(pub i32);

/// One of the two processes stage 0 continues in.
struct Stage0Fork {
    side: Side,
    /// Its end of what the two talk over.
    gate: OwnedFd,
    is_in_group: bool,
}

fn split(group: Option<OwnedFd>) -> Result<Stage0Fork, FailedStep> {
    let (ours, theirs) =
        program::socket_pair().map_err(|errno| FailedStep::new("make a socket pair", errno))?;
    // The control-group namespace comes later: its root is the group the process is in by then. So does
    // that of the network: the child has it made beside its other work.
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_PARENT;
    // Where it cannot be born in its group, the host moves it.
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

/// From the host to the child, when the control groups of the sandbox exist: the files to join them by come along.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Admission {
    /// Whether the host counts the memory that the kernel keeps for the sandbox ([`crate::counters`]),
    /// because nothing else holds it.
    pub(crate) counts_memory: bool,
}

/// From the parent to the child: the sources it opened on the child's behalf, in plan order, or
/// none when the child opens them itself.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ParentMessage {
    /// Whether descriptors for all sources follow in batches.
    pub(crate) has_sources: bool,
}

/// Descriptors sent per message between parent and child.
pub(crate) const BATCH: usize = 200;
