//! The guest's side of a sandbox without namespaces: restricts this process, and verifies the
//! restrictions.

use super::{GuestOrder, GuestRequest, MIN_LANDLOCK_ABI, Setup, TerminalReply};
use crate::landlock::{self, Policy, Ruleset};
use crate::{channel, etc, seccomp, system_data};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, Signal};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Paths of the machine's programs and libraries.
const PROGRAMS: [&str; 8] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc",
];
/// Files about the machine that programs read.
const FACTS: [&str; 5] = [
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/sys/fs/cgroup",
];
/// Devices, listed one by one: `/dev` contains the disks of the machine, `/dev/pts` the terminals
/// of other users.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// Address of another machine. It belongs to a range for documentation (RFC 5737).
const OUTSIDE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9);

/// A confined guest.
#[derive(Debug)]
pub struct ConfinedGuest {
    /// Landlock ruleset that is applied to each command again, so that none can trace the guest or
    /// another command.
    pub landlock: OwnedFd,
    /// Directory in which commands start, as bytes.
    pub cwd: Vec<u8>,
    /// Connection to the monitor.
    pub monitor: MonitorClient,
}

/// The guest's end of its socket to the monitor.
#[derive(Debug)]
pub struct MonitorClient {
    socket: OwnedFd,
}

impl MonitorClient {
    /// Opens a new terminal. Returns the master and the slave for a command. Blocks until the
    /// monitor replies.
    ///
    /// # Errors
    /// Those of openpty(3) in the monitor; EIO if the monitor is gone.
    pub fn open_terminal(&self) -> Result<(OwnedFd, OwnedFd), Errno> {
        let lost = |_| Errno::IO;
        channel::send(&self.socket, &GuestRequest::OpenTerminal, &[]).map_err(lost)?;
        let (reply, ends) = channel::receive::<TerminalReply>(&self.socket)
            .map_err(lost)?
            .ok_or(Errno::IO)?;
        match <[OwnedFd; 2]>::try_from(ends) {
            Ok([master, slave]) => Ok((master, slave)),
            Err(_) if reply.errno != 0 => Err(Errno::from_raw_os_error(reply.errno)),
            Err(_) => Err(Errno::IO),
        }
    }
}

/// Restricts this process, which `control` connects to its monitor.
///
/// Precondition: no other thread runs.
///
/// # Errors
/// The step that failed, or the restriction that has no effect. The process must end then.
pub fn enter(control: OwnedFd) -> Result<ConfinedGuest, String> {
    let order = channel::receive::<GuestOrder>(&control).map_err(|error| error.to_string())?;
    let (order, _) = order.ok_or("the monitor has ended")?;
    let GuestOrder {
        setup,
        monitor,
        has_egress,
    } = order;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(failed("tie this process to its monitor"))?;
    let monitor = Pid::from_raw(monitor).ok_or("the monitor has no process id")?;
    // The monitor may have ended before the call above took effect.
    if rustix::process::getppid() != Some(monitor) {
        return Err("the monitor has ended".to_owned());
    }
    // In the monitor's process group, a stopped guest would make the kernel send SIGHUP to both
    // when the owner ends.
    rustix::process::setsid().map_err(failed("begin a session"))?;
    let for_commands = build(&setup, false)?;
    let for_all = build(&setup, true)?;
    landlock::restrict_thread(for_all.as_fd()).map_err(|error| error.to_string())?;
    drop(for_all);
    // This comes after Landlock, whose calls a container's outer filter may refuse, and before the
    // guest serves requests.
    let listener = seccomp::install_with_listener()
        .map_err(|error| format!("cannot install the system call filter: {error}"))?;
    channel::send(&control, &GuestRequest::Confined, &[listener.as_fd()])
        .map_err(|error| format!("cannot hand over the listener of the filter: {error}"))?;
    drop(listener);
    verify(monitor, has_egress)?;
    Ok(ConfinedGuest {
        landlock: for_commands,
        cwd: setup.cwd.as_path().as_os_str().as_bytes().to_vec(),
        monitor: MonitorClient { socket: control },
    })
}

fn failed(step: &'static str) -> impl Fn(Errno) -> String {
    move |errno| format!("cannot {step}: {errno}")
}

/// Builds the ruleset. With `scope_signals`, for the whole sandbox, it also confines signals.
fn build(setup: &Setup, scope_signals: bool) -> Result<OwnedFd, String> {
    let there = |path: &&str| Path::new(path).exists();
    let paths = |list: &[&'static str]| -> Vec<PathBuf> {
        list.iter()
            .filter(|path| there(path))
            .map(PathBuf::from)
            .collect()
    };
    let etc = etc::list_paths();
    let mut read_exec = paths(&PROGRAMS);
    read_exec.extend(paths(&FACTS));
    read_exec.extend(etc.files);
    read_exec.extend(system_data::kernel_dirs());
    read_exec.extend(system_data::package_dirs());
    read_exec.extend(setup.shown.iter().map(|path| path.as_path().to_owned()));
    let policy = Policy {
        read_exec,
        list: etc.dirs,
        read_write: setup
            .writable
            .iter()
            .map(|path| path.as_path().to_owned())
            .collect(),
        devices: paths(&DEVICES),
        scope_abstract_sockets: true,
        scope_signals,
        refuse_tcp: true,
        ..Policy::default()
    };
    let built = Ruleset::build(&policy).map_err(|error| error.to_string())?;
    match built.fd {
        Some(fd) if built.abi >= MIN_LANDLOCK_ABI => Ok(fd),
        _ => Err(format!(
            "the kernel has Landlock ABI {}, and {MIN_LANDLOCK_ABI} is needed",
            built.abi
        )),
    }
}

/// Checks that an attempt failed with the wanted error.
fn expect(what: &str, result: Result<(), Errno>, wanted: Errno) -> Result<(), String> {
    match result {
        Err(errno) if errno == wanted => Ok(()),
        Err(errno) => Err(format!("{what} failed with {errno} instead of {wanted}")),
        Ok(()) => Err(format!("{what} was possible")),
    }
}

/// Tries what must fail.
fn verify(monitor: Pid, has_egress: bool) -> Result<(), String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    expect(
        "listing the root directory",
        rustix::fs::open("/", flags, Mode::empty()).map(drop),
        Errno::ACCESS,
    )?;
    expect(
        "a signal to the monitor",
        rustix::process::test_kill_process(monitor),
        Errno::PERM,
    )?;
    // These are the monitor's answers.
    expect(
        "a Unix socket",
        rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).map(drop),
        Errno::AFNOSUPPORT,
    )?;
    expect(
        "a datagram socket",
        rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).map(drop),
        Errno::PROTONOSUPPORT,
    )?;
    match rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None) {
        Ok(socket) => verify_socket(&socket, has_egress)?,
        // The kernel cannot sign connections, so there are no network sockets.
        Err(Errno::AFNOSUPPORT) => {}
        Err(errno) => return Err(failed("make a socket")(errno)),
    }
    // This changes nothing, even if it succeeds.
    let omit = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT as _,
    };
    let times = Timestamps {
        last_access: omit,
        last_modification: omit,
    };
    expect(
        "a change of the times of the root directory",
        rustix::fs::utimensat(CWD, "/", &times, AtFlags::empty()),
        Errno::ACCESS,
    )
}

/// Tries what must fail on a network socket.
fn verify_socket(socket: &OwnedFd, has_egress: bool) -> Result<(), String> {
    if !has_egress {
        expect(
            "a connection to the outside",
            rustix::net::connect(socket, &OUTSIDE),
            Errno::NETUNREACH,
        )?;
    }
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    rustix::net::bind(socket, &any).map_err(failed("bind a socket"))?;
    let bound = rustix::net::getsockname(socket).map_err(failed("look at a socket"))?;
    // It has an address of the sandbox instead.
    if SocketAddrV4::try_from(bound).is_ok_and(|bound| bound.ip() == any.ip()) {
        return Err("a socket could be bound to the loopback of the machine".to_owned());
    }
    Ok(())
}
