//! The `host` backend: the guest as an ordinary process of the caller. It has the same interface as
//! every other sandbox and no walls, and its report says so.

use super::native::SandboxProxy;
use super::words::StderrTail;
use super::{Begun, CreateCx, Driver, GuestStream, Owner, unheld_limits};
use crate::process::{self, ProcessRef};
use crate::{Backend, Report, SandboxSpec, fault};
use glovebox_egress::ProxyHandle;
use glovebox_jail::program;
use glovebox_proto::{Code, Denial, Fault};
use glovebox_spec::LimitState;
use rustix::net::{Shutdown, shutdown};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time for a guest to end its jobs and itself after its link is closed.
const LEAVE_WAIT: Duration = Duration::from_secs(3);
/// Time to wait for the exit status of a process whose link has ended.
const EPITAPH_WAIT: Duration = Duration::from_millis(200);
/// Maximum time for the kernel to end a killed process.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Driver of the `host` backend.
#[derive(Debug)]
pub(super) struct HostDriver;

impl Driver for HostDriver {
    fn backend(&self) -> Backend {
        Backend::HOST
    }

    fn explain(&self, _: &SandboxSpec) -> Result<String, Fault> {
        Ok("an ordinary process of the caller; nothing is isolated\n".to_owned())
    }

    fn summary(&self, _: &SandboxSpec) -> Vec<String> {
        vec!["no walls".to_owned()]
    }

    fn create(&self, cx: &CreateCx<'_>, _: Begun) -> Result<GuestStream, Fault> {
        create(cx)
    }
}

/// Starts the guest as a child of this process.
fn create(cx: &CreateCx<'_>) -> Result<GuestStream, Fault> {
    let mut command = Command::new(cx.image.path());
    command
        .arg0("glovebox-guest")
        .arg("serve")
        .env_clear()
        .envs(cx.spec.jail.env.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &cx.spec.cwd {
        command.current_dir(cwd);
    }
    let mut report = Report::of_caller("host", cx.name.as_str(), "caller");
    report.limits = unheld_limits(cx.spec, "the host backend has no walls");
    for (wall, detail) in [
        (
            "filesystem",
            "commands see and change every file the caller can",
        ),
        (
            "processes",
            "commands see and signal every process of the caller",
        ),
        ("network", "commands reach whatever this machine reaches"),
        ("syscalls", "no filter"),
    ] {
        report.wall(wall, LimitState::Absent, detail);
    }
    report
        .degraded
        .push("the host backend isolates nothing".to_owned());
    spawn(command, cx, report, "guest")
}

/// Starts a guest as a child of this process, by a command with its arguments, environment and
/// working directory. Its standard input and output become the link. The owner in the result ends
/// it and all processes that it started.
///
/// # Errors
/// Fails if the program cannot be started.
pub fn spawn_guest(
    command: Command,
    cx: &CreateCx<'_>,
    report: Report,
) -> Result<GuestStream, Fault> {
    spawn(command, cx, report, "guest")
}

/// As [`spawn_guest`], for a guest whose monitor passes connections to listed hosts on `channel`
/// ([`glovebox_egress::Arrivals::Passed`]). The egress proxy ends with the guest.
///
/// # Errors
/// As [`spawn_guest`], and if the proxy cannot be started.
pub fn spawn_guest_with_proxy(
    command: Command,
    cx: &CreateCx<'_>,
    mut report: Report,
    channel: OwnedFd,
) -> Result<GuestStream, Fault> {
    let upstream = SandboxProxy::upstream(cx.spec)?;
    if let Some(upstream) = &cx.spec.upstream {
        report.reach_through(upstream);
    }
    let proxy = SandboxProxy::open_passed(channel, SandboxProxy::control(cx), upstream)?;
    spawn_with(command, cx, report, "guest", proxy)
}

/// Runs a program in a process group of its own, with a socket as standard input and output. Also
/// used by the `command` backend.
pub(super) fn spawn(
    command: Command,
    cx: &CreateCx<'_>,
    report: Report,
    what: &'static str,
) -> Result<GuestStream, Fault> {
    spawn_with(command, cx, report, what, SandboxProxy::default())
}

fn spawn_with(
    mut command: Command,
    cx: &CreateCx<'_>,
    report: Report,
    what: &'static str,
    proxy: SandboxProxy,
) -> Result<GuestStream, Fault> {
    let copy = |fd: &OwnedFd| {
        fd.try_clone()
            .map_err(|error| fault::plain_io("cannot copy a file descriptor", error))
    };
    let (ours, theirs) = program::socket_pair()
        .map_err(|error| fault::plain_io("cannot make a socket pair", error))?;
    let words = StderrTail::new()?;
    command
        .stdin(Stdio::from(copy(&theirs)?))
        .stdout(Stdio::from(theirs))
        .stderr(words.stdio()?);
    // Ctrl-C at the caller's terminal must not reach the guest.
    command.process_group(0);
    let child = program::spawn_when_closed(&mut command).map_err(|error| {
        let program = command.get_program().to_string_lossy();
        spawn_fault(&error, cx, what, &program)
    })?;
    // The child has not been reaped yet, so the id is still its own.
    let reference = ProcessRef::of(child.id());
    let (reader, writer) = (copy(&ours)?, copy(&ours)?);
    let owner = Process {
        child: Mutex::new(child),
        reference,
        socket: ours,
        words,
        report,
        what,
        proxy,
    };
    Ok(GuestStream::new(reader, writer, Box::new(owner)))
}

fn spawn_fault(error: &std::io::Error, cx: &CreateCx<'_>, what: &str, program: &str) -> Fault {
    if let Some(cwd) = &cx.spec.cwd
        && what == "guest"
        && !cwd.is_dir()
    {
        return Fault::failed(
            Code::CwdNotFound,
            format!("cannot work in {}: {error}", cwd.display()),
        );
    }
    if what == "guest" {
        return fault::plain_io("cannot start the guest", copy_error(error));
    }
    let fault = Fault::failed(
        Code::CarrierFailed,
        format!("cannot run the carrier `{program}`: {error}"),
    );
    if error.kind() == std::io::ErrorKind::NotFound {
        fault.remedy(format!("install `{program}`, or give its full path"))
    } else {
        fault
    }
}

fn copy_error(error: &std::io::Error) -> std::io::Error {
    error
        .raw_os_error()
        .map_or_else(|| error.kind().into(), std::io::Error::from_raw_os_error)
}

/// Child process at the other end of a socket.
#[derive(Debug)]
pub(super) struct Process {
    child: Mutex<Child>,
    reference: Option<ProcessRef>,
    socket: OwnedFd,
    words: StderrTail,
    report: Report,
    what: &'static str,
    /// Egress proxy, if the sandbox has one.
    proxy: SandboxProxy,
}

impl Process {
    fn status(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().ok().flatten()
    }
}

impl Owner for Process {
    fn report(&self) -> Report {
        self.report.clone()
    }

    fn egress(&self) -> Option<ProxyHandle> {
        self.proxy.handle()
    }

    fn refused_hosts(&self, during: RangeInclusive<u64>, is_shared: bool) -> Vec<Denial> {
        self.proxy.refused(during, is_shared)
    }

    fn exit_reason(&self) -> Option<String> {
        // The link ends shortly before the process does.
        if let Some(pidfd) = self.reference.and_then(ProcessRef::open) {
            process::wait_gone(pidfd, EPITAPH_WAIT);
        }
        let how = match self.status()? {
            status if status.success() => "ended".to_owned(),
            status => match (status.code(), status.signal()) {
                (Some(code), _) => format!("ended with code {code}"),
                (_, Some(signal)) => format!("was ended by signal {signal}"),
                _ => "ended".to_owned(),
            },
        };
        let words = self.words.tail();
        let said = if words.is_empty() {
            String::new()
        } else {
            format!(", saying: {words}")
        };
        Some(format!("the {} {how}{said}", self.what))
    }

    fn process(&self) -> Option<ProcessRef> {
        self.reference
    }

    fn kill(&self) -> Result<(), Fault> {
        // The end of its input makes the guest end every job and itself.
        let _ = shutdown(&self.socket, Shutdown::Both);
        if self.status().is_some() {
            return Ok(());
        }
        let pid = self
            .child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .id();
        let Some(pidfd) = process::open(pid) else {
            return Ok(());
        };
        if !process::wait_gone(&pidfd, LEAVE_WAIT) {
            process::kill_tree(pid, &pidfd);
            if !process::wait_gone(&pidfd, KILL_WAIT) {
                return Err(Fault::failed(
                    Code::Io,
                    format!(
                        "the {} (process {pid}) does not end although it was killed",
                        self.what
                    ),
                ));
            }
        }
        self.status();
        self.proxy.close();
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
