//! Observations of a sandbox's first process after set-up: the facts behind the lines of the
//! isolation report.
//!
//! The host's `/proc` is opened before the roots are exchanged, because the sandbox may have a
//! different one or none. The sandbox's owner compares the resulting [`Observation`] with the plan;
//! nothing is judged here. Every read that fails is an error: a sandbox that cannot examine itself
//! does not start.

pub use super::mountinfo::MountEntry;

use super::{Context as _, FailedStep};
use crate::plan::{Plan, Step};
use crate::sys::landlock_trial::{Answers, Trial};
use crate::sys::{filter_trial, ids};
use glovebox_spec::WORKSPACE;
use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Ipv4Addr, Ipv6Addr, SocketAddr, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Resource};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Namespaces of a process, by their names in `/proc/PID/ns`.
pub const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "ipc", "uts", "cgroup", "net"];

/// Maximum time for which the end of a thread is awaited after its work is done, and the interval
/// between two checks.
const THREAD_END: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// Name of a directory for write trials. Creating it must fail where a mount is read-only.
const TRIAL_NAME: &str = ".glovebox-write-trial";

/// Results of reading and trying.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Real, effective and saved user id.
    pub uids: [u32; 3],
    /// Real, effective and saved group id.
    pub gids: [u32; 3],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Inheritable capabilities. Without any there are no ambient ones.
    pub cap_inheritable: u64,
    /// True if programs executed by root gain no capability and this cannot be changed
    /// (`SECBIT_NOROOT`).
    pub is_root_powerless: bool,
    /// True if other processes of the same user may trace this one.
    pub is_dumpable: bool,
    /// True if standard input, output and error are `/dev/null`.
    pub are_streams_null: bool,
    /// Host name.
    pub hostname: String,
    /// Identity of each of [`NAMESPACES`].
    pub namespaces: Vec<NamespaceId>,
    /// Names of the network interfaces.
    pub interfaces: Vec<String>,
    /// Documentation addresses to which there is a route; any entry means that other machines can
    /// be reached.
    pub routes: Vec<String>,
    /// All mounts, in the order of mounting. The owner reads them from the descriptor that the
    /// sandbox opened.
    #[serde(skip)]
    pub mounts: Vec<MountEntry>,
    /// Read-only directories in which a directory was to be made, with the errno of each attempt; 0
    /// for success.
    pub write_trials: Vec<(String, i32)>,
    /// Resource limits: resource, soft and hard value.
    pub limits: Vec<LimitEntry>,
    /// System calls that the filter did not answer as its table says.
    pub unfiltered: Vec<String>,
    /// Results of a process under the Landlock ruleset. `None` without a ruleset.
    pub landlock: Option<LandlockTrial>,
}

/// Identity of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceId {
    /// One of [`NAMESPACES`].
    pub name: String,
    /// Inode of its file. No other namespace of the machine has the same.
    pub inode: u64,
}

/// Current value of a resource limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitEntry {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// Soft limit; `None` for no limit.
    pub soft: Option<u64>,
    /// Hard limit; `None` for no limit.
    pub hard: Option<u64>,
}

/// Results of a process that applied the ruleset as commands do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockTrial {
    /// True if a directory that everybody may list and no rule covers was listed before and refused
    /// afterwards.
    pub is_refused: bool,
    /// True if a directory that a rule covers was listed.
    pub is_granted: bool,
    /// True if a connection to an abstract Unix socket from outside the domain was refused.
    pub is_abstract_socket_refused: bool,
    /// True if the process could unshare its descriptor table.
    pub has_own_descriptors: bool,
}

impl LandlockTrial {
    pub(super) fn new(answers: Answers) -> Self {
        let refused = Errno::ACCESS.raw_os_error();
        Self {
            is_refused: answers.free_open == 0
                && answers.restrict == 0
                && answers.denied_open == refused,
            is_granted: answers.granted_open == 0,
            is_abstract_socket_refused: answers.abstract_socket == Errno::PERM.raw_os_error(),
            has_own_descriptors: answers.own_descriptors == 0,
        }
    }
}

/// The host's `/proc`, which shows this process.
#[derive(Debug)]
pub(super) struct HostProc(OwnedFd);

impl HostProc {
    /// Opens the host's `/proc`. Precondition: the roots have not been exchanged.
    pub(super) fn open() -> Result<Self, FailedStep> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, "/proc", flags, Mode::empty())
            .map(Self)
            .cannot("open the host's /proc")
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, path, flags, Mode::empty())?;
        let mut content = Vec::with_capacity(8 << 10);
        loop {
            let room = rustix::buffer::spare_capacity(&mut content);
            if rustix::io::read(&file, room)? == 0 {
                return Ok(content);
            }
            content.reserve(8 << 10);
        }
    }

    /// Opens the table of this process's mounts.
    pub(super) fn mounts(&self) -> Result<OwnedFd, FailedStep> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, "self/mountinfo", flags, Mode::empty())
            .cannot("list the mounts")
    }

    /// Waits until this process has one thread. The set-up thread still holds capabilities that
    /// this one has given up, and joining it returns a moment before the kernel has removed it.
    pub(super) fn await_single_thread(&self) -> Result<(), FailedStep> {
        let step = "see the end of the set-up's thread";
        let begun = Instant::now();
        loop {
            // Links of `.`, `..` and one directory per thread.
            let task = rustix::fs::statat(&self.0, "self/task", AtFlags::empty()).cannot(step)?;
            if task.st_nlink == 3 {
                return Ok(());
            }
            if begun.elapsed() > THREAD_END {
                return Err(FailedStep::new(step, Errno::TIMEDOUT));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Returns the maximum number of user namespaces. `None` if it cannot be read.
    pub(super) fn max_user_namespaces(&self) -> Option<u64> {
        let text = self.read("sys/user/max_user_namespaces").ok()?;
        String::from_utf8_lossy(&text).trim().parse().ok()
    }

    /// Returns the setting `kernel.yama.ptrace_scope`. `None` if the kernel has no such setting.
    pub(super) fn ptrace_scope(&self) -> Option<u64> {
        let text = self.read("sys/kernel/yama/ptrace_scope").ok()?;
        String::from_utf8_lossy(&text).trim().parse().ok()
    }

    /// Returns the descriptors above 2 that are open in this process, without `ours` and those used
    /// for listing.
    pub(super) fn open_fds(&self, ours: &[i32]) -> Result<Vec<i32>, FailedStep> {
        let step = "list the open descriptors";
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.0, "self/fd", flags, Mode::empty()).cannot(step)?;
        let own = [dir.as_raw_fd(), self.0.as_raw_fd()];
        let mut buffer = Vec::with_capacity(4096);
        let mut entries = rustix::fs::RawDir::new(&dir, buffer.spare_capacity_mut());
        let mut fds = Vec::new();
        while let Some(entry) = entries.next() {
            let name = entry
                .cannot(step)?
                .file_name()
                .to_string_lossy()
                .into_owned();
            let is_other = |fd: &i32| *fd > 2 && !own.contains(fd) && !ours.contains(fd);
            fds.extend(name.parse().ok().filter(is_other));
        }
        Ok(fds)
    }
}

/// Starts a trial of `ruleset`, which will confine commands. It runs beside other work.
pub(super) fn begin_landlock_trial(
    ruleset: BorrowedFd<'_>,
    proc: &HostProc,
) -> Result<Trial, FailedStep> {
    // Everybody may list the root of the host's /proc, and no tree that a rule can name contains
    // it.
    Trial::begin(ruleset, proc.0.as_fd()).cannot("try the Landlock rules")
}

/// Reads this process's state and tries what must fail. The result contains neither the mounts nor
/// the trial of the Landlock rules.
pub(super) fn observe(plan: &Plan, proc: &HostProc) -> Result<Observation, FailedStep> {
    let (uids, gids) = ids::current().cannot("read the sandbox's ids")?;
    let groups = rustix::process::getgroups().cannot("read the sandbox's groups")?;
    let capabilities = rustix::thread::capabilities(None).cannot("read the capabilities")?;
    let dumpable = rustix::process::dumpable_behavior();
    Ok(Observation {
        uids,
        gids,
        groups: groups.into_iter().map(rustix::fs::Gid::as_raw).collect(),
        cap_inheritable: capabilities.inheritable.bits(),
        is_root_powerless: is_root_powerless().cannot("read the secure bits")?,
        is_dumpable: dumpable.cannot("read who may trace the guest")?
            != DumpableBehavior::NotDumpable,
        are_streams_null: are_streams_null().cannot("look at the standard streams")?,
        hostname: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        namespaces: namespaces(&proc.0).cannot("look at the namespaces")?,
        interfaces: interfaces(
            &proc
                .read("self/net/dev")
                .cannot("list the network interfaces")?,
        ),
        routes: routes(),
        mounts: Vec::new(),
        write_trials: read_only_places(plan)
            .into_iter()
            .map(|place| (place.display().to_string(), try_write(&place)))
            .collect(),
        limits: limits(),
        unfiltered: filter_trial::unfiltered(plan.seal.nested.is_some()),
        landlock: None,
    })
}

/// Returns the namespaces of the calling process, read from a `/proc` that shows it.
fn namespaces(proc: impl AsFd) -> Result<Vec<NamespaceId>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(proc, "self/ns", flags, Mode::empty())?;
    NAMESPACES
        .into_iter()
        .map(|name| {
            // Reading the link costs a fraction of opening its target.
            let mut link = [0_u8; 64];
            let length = rustix::fs::readlinkat_raw(&dir, name, &mut link)?;
            let link = link.get(..length).unwrap_or_default();
            Ok(NamespaceId {
                name: name.to_owned(),
                inode: inode_of(link).ok_or(Errno::INVAL)?,
            })
        })
        .collect()
}

/// Returns the number in a link such as `net:[4026531840]` (namespaces(7)).
fn inode_of(link: &[u8]) -> Option<u64> {
    let (_, rest) = std::str::from_utf8(link).ok()?.split_once('[')?;
    rest.strip_suffix(']')?.parse().ok()
}

/// Returns the namespaces of the calling process, on the host.
///
/// # Errors
/// `/proc` is not mounted.
pub fn own_namespaces() -> std::io::Result<Vec<NamespaceId>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
    Ok(namespaces(&proc)?)
}

fn is_root_powerless() -> Result<bool, Errno> {
    use rustix::thread::CapabilitiesSecureBits as Bits;
    let wanted = Bits::NO_ROOT | Bits::NO_ROOT_LOCKED;
    rustix::thread::capabilities_secure_bits().map(|bits| bits.contains(wanted))
}

fn are_streams_null() -> Result<bool, Errno> {
    let null = rustix::fs::makedev(1, 3);
    let is_null = |stream: BorrowedFd<'_>| {
        let stat = rustix::fs::fstat(stream)?;
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        Ok(kind == rustix::fs::FileType::CharacterDevice && stat.st_rdev == null)
    };
    Ok(is_null(rustix::stdio::stdin())?
        && is_null(rustix::stdio::stdout())?
        && is_null(rustix::stdio::stderr())?)
}

/// Returns the names in a table like `/proc/net/dev`.
fn interfaces(table: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(table)
        .lines()
        .skip(2)
        .filter_map(|row| Some(row.split_once(':')?.0.trim().to_owned()))
        .collect()
}

/// Returns the addresses beyond this machine to which there is a route. Connecting a datagram
/// socket looks up a route and sends nothing. The addresses are reserved for documentation (RFC
/// 5737, RFC 3849).
fn routes() -> Vec<String> {
    const PORT: u16 = 9;
    let addresses = [
        SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), PORT)),
        SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), PORT)),
    ];
    let has_route = |address: &SocketAddr| {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .and_then(|socket| rustix::net::connect(socket, address))
            .is_ok()
    };
    addresses
        .iter()
        .filter(|address| has_route(address))
        .map(|address| address.ip().to_string())
        .collect()
}

/// Returns the directories that the plan makes read-only and that belong to the sandbox or the
/// system. A name is looked up in each, and on other file systems a lookup may take long or trigger
/// an automount.
fn read_only_places(plan: &Plan) -> Vec<PathBuf> {
    let is_read_only = |index: usize| {
        let source = plan.sources.get(index);
        source.is_some_and(|source| source.is_read_only)
    };
    plan.steps
        .iter()
        .filter_map(|step| match step {
            Step::Bind { source, target } if target.as_path() == Path::new("/usr") => {
                is_read_only(*source).then(|| target.as_path().to_owned())
            }
            Step::Overlay {
                target,
                is_read_only: true,
                ..
            } if target.as_path() == Path::new(WORKSPACE) => Some(target.as_path().to_owned()),
            Step::Proc { read_only, .. } => read_only
                .iter()
                .find(|name| *name == "sys")
                .map(|name| Path::new("/proc").join(name)),
            Step::Dev { .. } => Some("/dev".into()),
            _ => None,
        })
        .collect()
}

/// Returns the errno of making a directory, or 0 if it was made. A read-only mount refuses before
/// permissions are checked.
fn try_write(place: &Path) -> i32 {
    let trial = place.join(TRIAL_NAME);
    match rustix::fs::mkdir(&trial, Mode::from_raw_mode(0o700)) {
        Ok(()) => {
            let _ = rustix::fs::rmdir(&trial);
            0
        }
        Err(errno) => errno.raw_os_error(),
    }
}

fn limits() -> Vec<LimitEntry> {
    [
        Resource::Core,
        Resource::Memlock,
        Resource::Nofile,
        Resource::Fsize,
        Resource::Nproc,
    ]
    .into_iter()
    .map(|resource| {
        let found = rustix::process::getrlimit(resource);
        LimitEntry {
            resource: resource as u32,
            soft: found.current,
            hard: found.maximum,
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_the_names_of_rows() {
        let table = b"Inter-|   Receive\n face |bytes\n    lo: 0 0\neth0: 1 2\n";
        assert_eq!(interfaces(table), ["lo", "eth0"]);
    }

    #[test]
    fn a_writable_place_is_found_out_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(try_write(dir.path()), 0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(try_write(&dir.path().join("absent")), libc::ENOENT);
    }

    #[test]
    fn own_namespaces_are_those_of_proc() {
        use std::os::unix::fs::MetadataExt as _;
        for found in own_namespaces().unwrap() {
            let wanted = std::fs::metadata(format!("/proc/self/ns/{}", found.name)).unwrap();
            assert_eq!(found.inode, wanted.ino());
        }
    }
}
