//! The child's half of a probe: tries one primitive in a process that then ends, and reports in one
//! line which step was refused and with which error.
//!
//! The process is freshly executed and has one thread, so it may unshare namespaces and fork.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountPropagationFlags, MoveMountFlags, mount_change, move_mount,
};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{WaitOptions, waitpid};
use rustix::thread::UnshareFlags;

use super::{LOWER_LAYER, Outcome, Probe};
use crate::facts::is_machine_root;
use crate::mount::{FsOption, copy_path, create};
use crate::skeleton::make_dir;
use crate::sys::clone::{Side, clone_into};
use crate::sys::filter_trial;
use crate::sys::mount_attr::{self, Attributes};
use crate::sys::once::loopback_up;
use crate::sys::unshare::{has_clone3, unshare};
use crate::{landlock, seccomp};

/// Argument of a child that only shows that it can be run.
const NOTHING: &str = "nothing";

/// A refused step.
struct RefusedStep {
    step: &'static str,
    errno: Errno,
}

type TrialResult = Result<String, RefusedStep>;

/// Conversion of an error into a [`RefusedStep`].
trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, RefusedStep>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, step: &'static str) -> Result<T, RefusedStep> {
        self.map_err(|errno| RefusedStep { step, errno })
    }
}

impl<T> Step<T> for std::io::Result<T> {
    fn step(self, step: &'static str) -> Result<T, RefusedStep> {
        self.map_err(|error| RefusedStep {
            step,
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })
    }
}

/// Tries what `what` names (a probe's id, for some with `:PATH`), writes one line to standard
/// output and returns the exit status: 0 on success, 1 on failure, 2 for an unknown name.
///
/// Must be called by a process with one thread that ends afterwards (`glovebox-guest probe WHAT`).
/// The program at `/proc/self/exe` must answer `probe nothing` with this function as well.
pub fn child_main(what: &str) -> i32 {
    let (name, path) = what
        .split_once(':')
        .map_or((what, None), |(name, path)| (name, Some(path)));
    let path = path.map(Path::new);
    let tried = match name {
        NOTHING => Some(Ok(String::new())),
        LOWER_LAYER => Some(lower_layer(path.unwrap_or(Path::new("/tmp")))),
        _ => {
            let probe = Probe::ALL.into_iter().find(|probe| probe.id() == name);
            probe.map(|probe| try_here(probe, path))
        }
    };
    let (outcome, status) = if let Some(tried) = tried {
        match tried {
            Ok(detail) => (Outcome::Worked(detail), 0),
            Err(RefusedStep { step, errno }) => (
                Outcome::Failed {
                    step: step.to_owned(),
                    errno: errno.raw_os_error(),
                },
                1,
            ),
        }
    } else {
        (Outcome::NotRun(format!("there is no probe {name}")), 2)
    };
    let line = format!("{outcome}\n");
    // The parent reads the line. If it is gone, the exit status is all that remains.
    let _ = rustix::io::write(rustix::stdio::stdout(), line.as_bytes());
    status
}

fn try_here(probe: Probe, path: Option<&Path>) -> TrialResult {
    match probe {
        Probe::UserNamespace => user_namespace(),
        Probe::MountNamespace => private_mounts().map(|()| String::new()),
        Probe::NewMountApi => new_mount_api(),
        Probe::NetworkNamespace => network_namespace(),
        Probe::PidNamespace => pid_namespace(),
        Probe::Overlay => overlay(path.unwrap_or(Path::new("/tmp"))),
        Probe::IdmappedMount => idmapped_mount(path.unwrap_or(Path::new("/tmp"))),
        Probe::Seccomp => filter(),
        Probe::Landlock => ruleset(),
        Probe::MemfdExec => memfd_exec(),
        Probe::Terminal => terminal(),
    }
}

/// Enters a user namespace in which the caller's own id is root, and then `more` namespaces.
fn enter(more: UnshareFlags) -> Result<(), RefusedStep> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    unshare(UnshareFlags::NEWUSER).step("user-namespace")?;
    fs::write("/proc/self/setgroups", "deny").step("setgroups")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).step("uid-map")?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).step("gid-map")?;
    if more.is_empty() {
        Ok(())
    } else {
        unshare(more).step("unshare")
    }
}

fn user_namespace() -> TrialResult {
    enter(UnshareFlags::empty())?;
    Ok(if has_clone3() {
        String::new()
    } else {
        "clone3 is filtered".to_owned()
    })
}

fn private_mounts() -> Result<(), RefusedStep> {
    enter(UnshareFlags::NEWNS)?;
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags).step("private-mounts")
}

fn new_mount_api() -> TrialResult {
    private_mounts()?;
    let tree = copy_path(Path::new("/"), true).step("open-tree")?;
    mount_attr::set(&tree, Attributes::default(), true).step("mount-setattr")?;
    let tmpfs = create("tmpfs", &[], MountAttrFlags::empty()).step("fsopen")?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&tmpfs, "", CWD, "/", flags).step("move-mount")?;
    Ok(String::new())
}

fn network_namespace() -> TrialResult {
    enter(UnshareFlags::NEWNET)?;
    loopback_up().step("loopback-up")?;
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).step("socket")?;
    let any_port = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0);
    rustix::net::bind(&socket, &any_port).step("bind")?;
    Ok(String::new())
}

fn pid_namespace() -> TrialResult {
    private_mounts()?;
    unshare(UnshareFlags::NEWPID).step("unshare")?;
    // Only a child is in the new namespace, and /proc must be mounted there.
    let failed = in_child(|| match create("proc", &[], MountAttrFlags::empty()) {
        Ok(_) => 0,
        Err(errno) => errno.raw_os_error(),
    })?;
    match failed {
        0 => Ok(String::new()),
        errno => Err(RefusedStep {
            step: "proc",
            errno: Errno::from_raw_os_error(errno),
        }),
    }
}

/// Runs `work` in a child. Returns its result, which must fit an exit status.
fn in_child(work: impl FnOnce() -> i32) -> Result<i32, RefusedStep> {
    match clone_into(0).step("fork")? {
        Side::Child => end(work()),
        Side::Parent { pid, .. } => {
            let status = waitpid(Some(pid), WaitOptions::empty()).step("wait")?;
            let code = status.and_then(|(_, status)| status.exit_status());
            code.ok_or(RefusedStep {
                step: "child",
                errno: Errno::INTR,
            })
        }
    }
}

/// Ends a forked child. It has inherited no buffers to flush: the line is written unbuffered.
#[expect(
    clippy::exit,
    reason = "a forked child must not return into its parent's code"
)]
fn end(status: i32) -> ! {
    std::process::exit(status)
}

/// A directory below the state directory that is removed when the probe ends.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(below: &Path) -> Result<Self, RefusedStep> {
        let path = below.join(format!(
            ".probe-{}",
            rustix::process::getpid().as_raw_nonzero()
        ));
        make_dir(&path, 0o755).step("state-dir")?;
        let scratch = Self(path);
        for name in ["lower", "upper", "work"] {
            make_dir(&scratch.0.join(name), 0o755).step("state-dir")?;
        }
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A crash leaves an empty tree whose name tells its origin.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn overlay(state_dir: &Path) -> TrialResult {
    let scratch = Scratch::new(state_dir)?;
    private_mounts()?;
    let [lower, upper, work] =
        ["lower", "upper", "work"].map(|name| scratch.0.join(name).display().to_string());
    fs::write(scratch.0.join("lower/file"), "below").step("state-dir")?;
    fs::create_dir(scratch.0.join("lower/dir")).step("state-dir")?;
    let options = [
        FsOption::Value("lowerdir", &lower),
        FsOption::Value("upperdir", &upper),
        FsOption::Value("workdir", &work),
        FsOption::Flag("userxattr"),
    ];
    let merged = create("overlay", &options, MountAttrFlags::empty()).step("overlay")?;
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&merged, "file", flags, Mode::empty()).step("copy-up")?;
    rustix::io::write(&file, b"above").step("copy-up")?;
    rustix::fs::unlinkat(&merged, "file", rustix::fs::AtFlags::empty()).step("whiteout")?;
    // This step fails on a file system without extended attributes.
    rustix::fs::unlinkat(&merged, "dir", rustix::fs::AtFlags::REMOVEDIR).step("whiteout")?;
    rustix::fs::mkdirat(&merged, "dir", Mode::RWXU).step("opaque")?;
    Ok(String::new())
}

/// First host id that the probe maps to. No user needs to own the ids.
const IDMAP_FIRST: u32 = 0x4000_0000;

fn idmapped_mount(state_dir: &Path) -> TrialResult {
    let scratch = Scratch::new(state_dir)?;
    translate_owners(&scratch.0, &range_namespace()?)?;
    Ok(String::new())
}

/// Returns a user namespace with a range of ids and no process in it.
fn range_namespace() -> Result<File, RefusedStep> {
    let (release, held) = std::io::pipe()
        .map(|(reader, writer)| (writer, reader))
        .step("pipe")?;
    let (pid, namespace) = match clone_into(libc::CLONE_NEWUSER).step("user-namespace")? {
        Side::Child => {
            drop(release);
            // Wait until the parent has opened the namespace or is gone.
            let _ = rustix::io::read(&held, &mut [0_u8]);
            end(0)
        }
        Side::Parent { pid, .. } => {
            let proc = format!("/proc/{}", pid.as_raw_nonzero());
            let map = format!("0 {IDMAP_FIRST} 65536");
            let namespace = fs::write(format!("{proc}/uid_map"), &map)
                .step("range-map")
                .and_then(|()| fs::write(format!("{proc}/gid_map"), &map).step("range-map"))
                .and_then(|()| File::open(format!("{proc}/ns/user")).step("namespace-file"));
            (pid, namespace)
        }
    };
    drop(release);
    let _ = waitpid(Some(pid), WaitOptions::empty());
    namespace
}

/// Makes a mount of `dir` whose owners are translated by the map of `namespace`.
fn translate_owners(dir: &Path, namespace: &File) -> Result<(), RefusedStep> {
    let tree = copy_path(dir, false).step("open-tree")?;
    let attributes = Attributes {
        idmap: Some(namespace.as_fd()),
        ..Attributes::default()
    };
    mount_attr::set(&tree, attributes, false).step("idmap")
}

/// Treats `dir` as a sandbox treats a project: translates its owners if the caller is root of the
/// machine, and mounts an overlay over it. Writes nothing.
fn lower_layer(dir: &Path) -> TrialResult {
    if is_machine_root() {
        // This comes before the new namespaces: in those, the process has no rights over the
        // machine's mounts.
        translate_owners(dir, &range_namespace()?)?;
    }
    // Named as the working directory, the path cannot be split at a colon.
    rustix::process::chdir(dir).step("directory")?;
    private_mounts()?;
    // An overlay without a writable layer needs at least two others.
    let empty = create("tmpfs", &[], MountAttrFlags::empty()).step("fsopen")?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&empty, "", CWD, "/proc", flags).step("move-mount")?;
    let options = [
        FsOption::Value("lowerdir", ".:/proc"),
        FsOption::Flag("userxattr"),
    ];
    create("overlay", &options, MountAttrFlags::MOUNT_ATTR_RDONLY).step("overlay")?;
    Ok(String::new())
}

fn filter() -> TrialResult {
    rustix::thread::set_no_new_privs(true).step("no-new-privs")?;
    seccomp::install(seccomp::Profile::Default).map_err(|error| RefusedStep {
        step: "seccomp",
        errno: match error {
            seccomp::Error::Refused(source) => Errno::from_io_error(&source).unwrap_or(Errno::IO),
            seccomp::Error::Diverged(_) => Errno::SRCH,
        },
    })?;
    // The kernel's success alone is no proof that the filter works.
    if filter_trial::unfiltered(false).is_empty() {
        Ok(String::new())
    } else {
        Err(RefusedStep {
            step: "seccomp-effect",
            errno: Errno::CANCELED,
        })
    }
}

fn ruleset() -> TrialResult {
    let abi = landlock::abi_version();
    if abi == 0 {
        return Err(RefusedStep {
            step: "landlock",
            errno: Errno::OPNOTSUPP,
        });
    }
    let refused = |_| RefusedStep {
        step: "landlock-rules",
        errno: Errno::INVAL,
    };
    let policy = landlock::Policy {
        read_exec: vec!["/".into()],
        scope_abstract_sockets: true,
        ..landlock::Policy::default()
    };
    let built = landlock::Ruleset::build(&policy).map_err(refused)?;
    // Everybody may write to this file, but the policy forbids it.
    let write = || {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open("/dev/null", flags, Mode::empty()).map(drop)
    };
    write().step("landlock-before")?;
    rustix::thread::set_no_new_privs(true).step("no-new-privs")?;
    if let Some(fd) = &built.fd {
        landlock::restrict_thread(fd.as_fd()).map_err(refused)?;
    }
    if write() == Err(Errno::ACCESS) {
        Ok(format!("ABI {}", built.abi))
    } else {
        Err(RefusedStep {
            step: "landlock-effect",
            errno: Errno::CANCELED,
        })
    }
}

fn memfd_exec() -> TrialResult {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create("glovebox-probe", flags).step("memfd")?;
    let program = fs::read("/proc/self/exe").step("read-self")?;
    std::io::Write::write_all(&mut File::from(memfd.try_clone().step("memfd")?), &program)
        .step("memfd")?;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memfd));
    let output = Command::new(path)
        .args(["probe", NOTHING])
        .output()
        .step("exec")?;
    if output.status.success() {
        Ok(String::new())
    } else {
        Err(RefusedStep {
            step: "exec",
            errno: Errno::NOEXEC,
        })
    }
}

fn terminal() -> TrialResult {
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
    let terminal = rustix::pty::openpt(flags).step("ptmx")?;
    rustix::pty::unlockpt(&terminal).step("unlock")?;
    rustix::pty::ptsname(&terminal, Vec::new()).step("name")?;
    Ok(String::new())
}
