//! What the first process of a sandbox sees when everything is in place: the facts behind the lines of the
//! isolation report.
//!
//! In: the host's `/proc`, opened before the roots were exchanged, because the sandbox may have another one or
//! none. Out: an [`Observation`], which the owner compares with the plan. Nothing here judges, and what cannot
//! be read is an error: a sandbox that cannot look at itself does not start.

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

/// Namespaces of every process, as `/proc/PID/ns` names them.
pub const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "ipc", "uts", "cgroup", "net"];

/// How long a thread may take that has done its work, and how often it is looked for.
const THREAD_END: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// A directory that is made nowhere: making it must fail where a mount is read-only.
const TRIAL_NAME: &str = ".glovebox-write-trial";

/// What was seen and tried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Real, effective and saved user id.
    pub uids: [u32; 3],
    /// Real, effective and saved group id.
    pub gids: [u32; 3],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Inheritable capabilities; without any there are no ambient ones.
    pub cap_inheritable: u64,
    /// Programs executed by root gain nothing, and this cannot be changed (`SECBIT_NOROOT`).
    pub is_root_powerless: bool,
    /// Other processes of the same user may trace this one.
    pub is_dumpable: bool,
    /// Standard input, output and error are `/dev/null`.
    pub are_streams_null: bool,
    /// Host name.
    pub hostname: String,
    /// Identity of each of [`NAMESPACES`].
    pub namespaces: Vec<NamespaceId>,
    /// Names of the network interfaces.
    pub interfaces: Vec<String>,
    /// Addresses beyond this machine to which there is a route.
    pub routes: Vec<String>,
    /// Everything mounted, in the order of mounting. Read by the owner, from what the sandbox opened.
    #[serde(skip)]
    pub mounts: Vec<MountEntry>,
    /// Read-only places where something was to be made, with the errno of each attempt; 0 for success.
    pub write_trials: Vec<(String, i32)>,
    /// Resource limits: resource, soft and hard value.
    pub limits: Vec<LimitEntry>,
    /// System calls that the filter did not answer as its table says.
    pub unfiltered: Vec<String>,
    /// What a process under the Landlock ruleset met; `None` without a ruleset.
    pub landlock: Option<LandlockTrial>,
}

/// A namespace, told apart from all others of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceId {
    /// One of [`NAMESPACES`].
    pub name: String,
    /// Inode of its file: no other namespace of the machine has it.
    pub inode: u64,
}

/// A resource limit as it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitEntry {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// Soft limit; `None` for none.
    pub soft: Option<u64>,
    /// Hard limit; `None` for none.
    pub hard: Option<u64>,
}

/// What a process met that put the ruleset on as commands do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockTrial {
    /// A directory that permissions open to everybody, and no rule covers, was listed before and refused after.
    pub is_refused: bool,
    /// What a rule covers was not refused.
    pub is_granted: bool,
    /// An abstract Unix socket from outside the ruleset was refused.
    pub is_abstract_socket_refused: bool,
    /// The process could give itself descriptors of its own.
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

/// `/proc` of the host, and this process in it.
#[derive(Debug)]
pub(super) struct HostProc(OwnedFd);

impl HostProc {
    /// Precondition: the host's `/proc` is still where it was.
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

    /// What tells everything that is mounted for this process.
    pub(super) fn mounts(&self) -> Result<OwnedFd, FailedStep> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, "self/mountinfo", flags, Mode::empty())
            .cannot("list the mounts")
    }

    /// Waits until this process has one thread. Another one of its set-up keeps the capabilities that this one
    /// has given up, and whoever waited for its end has heard of it a moment before the kernel is done.
    pub(super) fn await_single_thread(&self) -> Result<(), FailedStep> {
        let step = "see the end of the set-up's thread";
        let begun = Instant::now();
        loop {
            // `.`, `..` and one directory per thread.
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

    /// How many user namespaces may still be made; `None` where the kernel does not say.
    pub(super) fn max_user_namespaces(&self) -> Option<u64> {
        let text = self.read("sys/user/max_user_namespaces").ok()?;
        String::from_utf8_lossy(&text).trim().parse().ok()
    }

    /// Setting `kernel.yama.ptrace_scope`; `None` where the kernel has no such setting.
    pub(super) fn ptrace_scope(&self) -> Option<u64> {
        let text = self.read("sys/kernel/yama/ptrace_scope").ok()?;
        String::from_utf8_lossy(&text).trim().parse().ok()
    }

    /// Descriptors open in this process above 2, without those of `ours` and those that looking takes.
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

/// Begins to try `ruleset`, by which commands will be confined, beside other work.
pub(super) fn begin_landlock_trial(
    ruleset: BorrowedFd<'_>,
    proc: &HostProc,
) -> Result<Trial, FailedStep> {
    // The root of the host's /proc can be listed by everybody, and is part of no tree that a rule can name.
    Trial::begin(ruleset, proc.0.as_fd()).cannot("try the Landlock rules")
}

/// Looks, and tries what must fail. Neither the mounts nor what the trial of the Landlock rules found are among it.
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

/// Namespaces of the calling process, by a `/proc` that shows it.
fn namespaces(proc: impl AsFd) -> Result<Vec<NamespaceId>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(proc, "self/ns", flags, Mode::empty())?;
    NAMESPACES
        .into_iter()
        .map(|name| {
            // Reading a link costs a fraction of opening what it leads to.
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

/// The number in a link such as `net:[4026531840]` (namespaces(7)).
fn inode_of(link: &[u8]) -> Option<u64> {
    let (_, rest) = std::str::from_utf8(link).ok()?.split_once('[')?;
    rest.strip_suffix(']')?.parse().ok()
}

/// The namespaces of the calling process, on the host.
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

/// Names in a table like `/proc/net/dev`.
fn interfaces(table: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(table)
        .lines()
        .skip(2)
        .filter_map(|row| Some(row.split_once(':')?.0.trim().to_owned()))
        .collect()
}

/// Addresses beyond this machine that could be sent to. Connecting a datagram socket looks for a route and
/// sends nothing; the addresses are set aside for documentation (RFC 5737, RFC 3849).
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

/// Directories that the plan makes read-only and that are the sandbox's own or the system's: a name is looked
/// up in each, which on other people's file systems may take long or mount something.
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

/// The errno with which a directory was refused; 0 when it was made. A read-only mount refuses it before
/// permissions are looked at.
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
