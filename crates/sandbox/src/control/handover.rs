//! Start of a supervisor, and handover of a sandbox to it.
//!
//! The supervisor's standard input is a socket. Its first message carries the locks of the sandbox
//! and of its slot, so that the locks are held without interruption if either process dies. Then
//! follow one message for each value of a secret, in the order of the spec, one with the credential
//! of the backend, and one with the machine's proxy; the last two may be empty. These values are
//! not written anywhere else. The only answer tells whether the sandbox is ready.

use crate::link::until;
use crate::spec::credential::{Credential, MAX_CREDENTIAL_BYTES};
use crate::state::layout::Layout;
use crate::state::sandbox_dir::SandboxDir;
use crate::state::slot::Slot;
use crate::{SandboxSpec, fault};
use glovebox_egress::{MAX_VALUE_BYTES, MachineProxy, Secret, SecretValue};
use glovebox_proto::{Code, Fault, Setting, decode, encode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Prefix of the message with the credential.
const CREDENTIAL: &[u8] = b"credential ";
/// Prefix of the message with the machine's proxy.
const UPSTREAM: &[u8] = b"upstream ";
/// Maximum size of the machine's proxy settings, in bytes. Their number and sizes are bounded.
const MAX_UPSTREAM_BYTES: usize = 64 << 10;
/// Maximum size of an answer, in bytes. Longer fault messages are truncated before sending.
const ANSWER_BYTES: usize = 16 << 10;
/// Maximum size of each text of a fault, in bytes.
const TEXT_BYTES: usize = 4 << 10;
/// Maximum time for a failed supervisor to end.
const END_WAIT: Duration = Duration::from_secs(5);

/// Program that runs as supervisor: `exe __supervise --state DIR NAME`, with the handover on its
/// standard input and an empty environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    /// Path of the program, which must call [`crate::supervise`].
    pub exe: PathBuf,
}

/// Supervisor whose sandbox is ready.
#[derive(Debug)]
pub(crate) struct ReadySupervisor {
    pub(crate) child: Child,
}

/// Starts the supervisor of a sandbox and waits until the sandbox is ready.
pub(crate) fn supervisor(
    layout: &Layout,
    supervisor: &Supervisor,
    sandbox_dir: &SandboxDir,
    slot: Slot,
    spec: &SandboxSpec,
    deadline: Instant,
) -> Result<ReadySupervisor, Fault> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| fault::plain_io("cannot make a socket pair", errno))?;
    let log_path = sandbox_dir.path.join("log");
    let log = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&log_path)
        .map_err(|error| fault::io("open", &log_path, error))?;

    let mut command = Command::new(&supervisor.exe);
    command
        .arg("__supervise")
        .arg("--state")
        .arg(layout.state())
        .arg(sandbox_dir.name.as_str());
    command.env_clear().current_dir("/");
    command
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::from(log));
    let mut child = command.spawn().map_err(|error| {
        fault::plain_io(
            format!("cannot start the supervisor {}", supervisor.exe.display()),
            error,
        )
    })?;
    // Closes this process's copy of the other end; otherwise the end of the supervisor would go
    // unnoticed.
    drop(command);

    let handed = hand_over(&ours, &[sandbox_dir.lock.as_fd(), slot.lock.as_fd()])
        .and_then(|()| send_values(&ours, spec, deadline));
    let handed = match handed {
        // The supervisor has ended already. `await_answer` reports its log.
        Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        handed => handed,
    }
    .map_err(|errno| fault::plain_io("cannot hand the sandbox over to its supervisor", errno));
    // The supervisor holds its own copies of the locks by now.
    drop(slot);
    match handed.and_then(|()| await_answer(&ours, &log_path, deadline)) {
        Ok(()) => Ok(ReadySupervisor { child }),
        Err(fault) => {
            // The end of the stream makes a supervisor that is still busy give up.
            drop(ours);
            end(&mut child);
            Err(fault)
        }
    }
}

/// Sends the values that are in no file: values of secrets, the credential and the machine's proxy.
fn send_values(socket: &OwnedFd, spec: &SandboxSpec, deadline: Instant) -> Result<(), Errno> {
    let wait = deadline.saturating_duration_since(Instant::now());
    // A timeout of zero would mean no timeout.
    let wait = wait.max(Duration::from_millis(1));
    rustix::net::sockopt::set_socket_timeout(
        socket,
        rustix::net::sockopt::Timeout::Send,
        Some(wait),
    )?;
    for value in spec.secrets.iter().filter_map(Secret::value) {
        rustix::net::send(socket, value.as_bytes(), SendFlags::NOSIGNAL)?;
    }
    // The prefix is needed because a message of zero bytes looks like the end of the stream.
    let mut message = Zeroizing::new(CREDENTIAL.to_vec());
    if let Some(credential) = &spec.credential {
        message.extend_from_slice(credential.expose().as_bytes());
    }
    rustix::net::send(socket, &message, SendFlags::NOSIGNAL)?;
    let mut message = Zeroizing::new(UPSTREAM.to_vec());
    if let Some(upstream) = &spec.upstream {
        let lines = upstream.to_lines().as_bytes();
        message.reserve_exact(lines.len());
        message.extend_from_slice(lines);
    }
    rustix::net::send(socket, &message, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the values that are in no file and stores them in `spec`.
pub(crate) fn take_values(
    socket: &OwnedFd,
    spec: &mut SandboxSpec,
    deadline: Instant,
) -> Result<(), Fault> {
    for secret in &mut spec.secrets {
        wait_readable(socket, deadline)?;
        let mut bytes = Zeroizing::new(vec![0; MAX_VALUE_BYTES + 1]);
        let length = rustix::io::read(socket, bytes.as_mut_slice())
            .map_err(|errno| fault::plain_io("cannot take over the value of a secret", errno))?;
        bytes.truncate(length);
        let value = SecretValue::new(&bytes).map_err(|error| {
            let name = &secret.name;
            fault::internal(format!(
                "the value of the secret `{name}` did not arrive: {error}"
            ))
        })?;
        secret.set_value(value);
    }
    wait_readable(socket, deadline)?;
    let mut bytes = Zeroizing::new(vec![0; CREDENTIAL.len() + MAX_CREDENTIAL_BYTES]);
    let length = rustix::io::read(socket, bytes.as_mut_slice())
        .map_err(|errno| fault::plain_io("cannot take over the credential", errno))?;
    bytes.truncate(length);
    let text = bytes.strip_prefix(CREDENTIAL).map(str::from_utf8);
    spec.credential =
        match text {
            Some(Ok("")) => None,
            Some(Ok(text)) => Some(Credential::new(text).map_err(|error| {
                fault::internal(format!("the credential did not arrive: {error}"))
            })?),
            _ => return Err(fault::internal("the credential did not arrive")),
        };
    wait_readable(socket, deadline)?;
    let mut bytes = Zeroizing::new(vec![0; UPSTREAM.len() + MAX_UPSTREAM_BYTES]);
    let length = rustix::io::read(socket, bytes.as_mut_slice())
        .map_err(|errno| fault::plain_io("cannot take over the machine's proxy", errno))?;
    bytes.truncate(length);
    let lines = bytes.strip_prefix(UPSTREAM).map(str::from_utf8);
    let Some(Ok(lines)) = lines else {
        return Err(fault::internal("the machine's proxy did not arrive"));
    };
    spec.upstream = MachineProxy::from_lines(lines);
    Ok(())
}

/// Sends descriptors, at most two.
pub(crate) fn hand_over(socket: &OwnedFd, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(fds));
    sendmsg(
        socket,
        &[IoSlice::new(b"fds")],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives the locks of the sandbox and of its slot.
pub(crate) fn take_over(socket: &OwnedFd, deadline: Instant) -> Result<[OwnedFd; 2], Fault> {
    let broken =
        |what: &str| fault::internal(format!("a supervisor is started by glovebox only: {what}"));
    wait_readable(socket, deadline).map_err(|_| broken("nothing was handed over"))?;
    let fds = receive(socket).map_err(|errno| broken(&errno.to_string()))?;
    <[OwnedFd; 2]>::try_from(fds).map_err(|_| broken("the locks are missing"))
}

/// Receives descriptors, at most two.
pub(crate) fn receive(socket: &OwnedFd) -> Result<Vec<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0_u8; 16];
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut word)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(fds)
}

/// Returns true if the process that started the supervisor still waits for the answer.
pub(crate) fn is_awaited(socket: &OwnedFd) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    // That process sends nothing more, so anything readable is the end of the stream.
    rustix::net::recv(socket, &mut [0_u8; 1][..], flags) == Err(Errno::AGAIN)
}

/// Sends the supervisor's answer. Returns false if no process waits for it.
pub(crate) fn answer(socket: &OwnedFd, outcome: Result<(), Fault>) -> bool {
    let outcome = outcome.map_err(|mut fault| {
        fault.message = cut(fault.message);
        fault.remedy = fault.remedy.map(|remedy| remedy.map_texts(cut));
        fault
    });
    encode(&outcome)
        .is_ok_and(|bytes| rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL).is_ok())
}

fn cut(mut text: String) -> String {
    let end = (0..=TEXT_BYTES.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    text
}

fn await_answer(socket: &OwnedFd, log: &Path, deadline: Instant) -> Result<(), Fault> {
    wait_readable(socket, deadline)?;
    let mut bytes = vec![0_u8; ANSWER_BYTES];
    match rustix::io::read(socket, bytes.as_mut_slice()) {
        Ok(0) | Err(_) => {
            let said = std::fs::read(log).unwrap_or_default();
            let said = String::from_utf8_lossy(&said[said.len().saturating_sub(600)..])
                .trim()
                .to_owned();
            let said = if said.is_empty() {
                String::new()
            } else {
                format!(", saying: {said}")
            };
            Err(Fault::lost(
                Code::LinkLost,
                format!("the supervisor ended before the sandbox was ready{said}"),
            ))
        }
        Ok(count) => decode::<Result<(), Fault>>(&bytes[..count], "answer of a supervisor")
            .map_err(|error| fault::internal(error.to_string()))?,
    }
}

fn wait_readable(socket: &OwnedFd, deadline: Instant) -> Result<(), Fault> {
    loop {
        let Ok(left) = until(Some(deadline)) else {
            return Err(
                Fault::failed(Code::TimedOut, "the sandbox was not ready in time").remedy([
                    "give it more time with ".into(),
                    Setting::StartTimeout.of("2m"),
                ]),
            );
        };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], left.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(fault::plain_io("cannot wait for the supervisor", errno)),
        }
    }
}

/// Waits for a failed supervisor to end, and kills it after [`END_WAIT`], which ends its guest too.
fn end(child: &mut Child) {
    let ended = crate::process::open(child.id())
        .is_none_or(|pidfd| crate::process::wait_gone(pidfd, END_WAIT));
    if !ended {
        let _ = child.kill();
    }
    let _ = child.wait();
}
