//! From an ordinary process to the first process of a sandbox.
//!
//! The host starts the guest binary as *stage 0* with one end of a socket pair as descriptor 0 and
//! sends it a [`Plan`]. Stage 0 continues in two processes: a child in new namespaces, which does
//! all mounting and becomes the guest; and the parent, which does the little that needs the
//! host's authority (id maps and, under root, id-mapped mounts), reports, and exits.
//!
//! ```text
//! host --Plan+fds--> stage 0 --clone(NEW*)--> child     waits
//! host <--Born+pidfd-- parent --maps, mounts--> child   mounts, pivots, seals, checks itself
//!                      exits                    child --Ready--> host, then speaks the wire
//! ```
//!
//! The child shares the host process as its parent (`CLONE_PARENT`), so the host can wait for it.
//! Any step that fails ends the start with the step's name; nothing is skipped in silence.

mod child;
mod parent;

use crate::channel;
use crate::plan::Plan;
use crate::sys::clone::{self, Side};
use crate::sys::once;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

/// What stage 0 and the child report to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The child exists; its pidfd comes along.
    Born {
        /// Its pid as the host sees it.
        pid: i32,
    },
    /// A wall could be built only in part; goes into the isolation report.
    Degraded(String),
    /// The sandbox is complete and has checked itself.
    Ready(SelfTest),
    /// A step failed; the start is over.
    Broken(Broken),
}

/// The step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// What was being done, as a phrase that follows "cannot".
    pub step: String,
    /// The system's answer.
    pub errno: i32,
}

impl Broken {
    fn new(step: impl Into<String>, errno: Errno) -> Self {
        Self {
            step: step.into(),
            errno: errno.raw_os_error(),
        }
    }
}

/// What the child finds when it checks itself, after the last door has closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTest {
    /// Own pid in the new pid namespace.
    pub pid: i32,
    /// Effective user id inside.
    pub uid: u32,
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
    /// How many user namespaces may still be made inside.
    pub max_user_namespaces: Option<u64>,
    /// Descriptors that are open besides 0, 1 and 2.
    pub open_fds: Vec<i32>,
    /// Working directory.
    pub cwd: String,
    /// Microseconds from the receipt of the plan to the end of each phase.
    pub timings_us: Vec<(String, u64)>,
}

/// What the guest takes over when the sandbox is complete.
#[derive(Debug)]
pub struct Inside {
    /// The socket to the host; from here on it speaks the wire protocol.
    pub link: OwnedFd,
    /// Becomes readable when the host process that owns this sandbox is gone.
    pub supervisor: Option<OwnedFd>,
    /// Ruleset to put on every command.
    pub landlock: Option<OwnedFd>,
    /// Base environment of every command.
    pub env: Vec<(String, String)>,
    /// Working directory of every command, as bytes.
    pub cwd: Vec<u8>,
    /// What the self-test found; the host has it too.
    pub self_test: SelfTest,
}

/// Runs stage 0 on the socket that is descriptor 0. Returns in the child only, complete and checked; the
/// parent's half ends in [`Ended`].
///
/// Preconditions: the process has one thread, was started for this, and has opened nothing yet.
///
/// # Errors
/// [`Ended`] in every process that must now exit, with its exit code. The host has been told.
pub fn enter() -> Result<Inside, Ended> {
    let started = std::time::Instant::now();
    // Descriptors that whoever started the host process leaked to it end here.
    once::close_from(3).map_err(|_| Ended(1))?;
    let control =
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(|_| Ended(1))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let Ok(Some((plan, fds))) = channel::receive::<Plan>(&control) else {
        return Err(Ended(1));
    };
    let mut fds = fds.into_iter();
    let supervisor = fds.next();
    for entrance in fds {
        if let Err(errno) = rustix::io::write(&entrance, b"0") {
            let broken = Broken::new("join the sandbox's control group", errno);
            let _ = channel::send(&control, &Report::Broken(broken), &[]);
            return Err(Ended(1));
        }
    }
    match split(&plan) {
        Ok((Side::Child, gate)) => child::build(control, gate, supervisor, plan, started),
        Ok((Side::Parent { pid, pidfd }, gate)) => {
            Err(parent::finish(&control, &gate, &plan, pid, &pidfd))
        }
        Err(broken) => {
            let _ = channel::send(&control, &Report::Broken(broken), &[]);
            Err(Ended(1))
        }
    }
}

/// This process has done its part and must exit with this code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended(pub i32);

fn split(plan: &Plan) -> Result<(Side, OwnedFd), Broken> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| Broken::new("make a socket pair", errno))?;
    let mut flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_PARENT;
    if plan.own_network {
        flags |= libc::CLONE_NEWNET;
    }
    match clone::clone_into(flags) {
        Ok(Side::Child) => Ok((Side::Child, theirs)),
        Ok(parent) => Ok((parent, ours)),
        Err(errno) => Err(Broken::new("create the sandbox's namespaces", errno)),
    }
}

/// From the parent to the child: the sources it opened on the child's behalf, in plan order, or
/// none when the child opens them itself.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Go {
    /// Whether descriptors for all sources follow in batches.
    pub(crate) has_sources: bool,
}

/// Descriptors sent per message between parent and child.
pub(crate) const BATCH: usize = 200;
