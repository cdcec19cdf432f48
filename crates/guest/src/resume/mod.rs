//! Serves a host on another machine over connections that may break.
//!
//! ```text
//! exec session 1   guest serve --resume RUN_DIR   relay -- socket pair --+
//! exec session 2   guest link RUN_DIR             relay -- RUN_DIR/socket --+-- pump -- socket
//! pair -- event loop
//!                                                                        (detached process of its
//!                                                                        own session)
//! ```
//!
//! A service may end an exec session together with its process group, so the event loop runs in a
//! process of its own session. The first exec session lives as long as that process, every further
//! one as long as its connection. The pump keeps the bytes that the host has not acknowledged
//! (`glovebox_proto::resume`).

mod pump;
mod relay;
mod run_dir;

use crate::serve::{self, Cx};
use glovebox_jail::process;
use glovebox_jail::program::socket_pair;
use glovebox_proto::resume::{Record, Refusal, encode_record};
use pump::Pump;
pub(crate) use relay::Relay;
use run_dir::RunDir;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::net::{Shutdown, shutdown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Second word of the command line of the serving process.
pub(crate) const DETACHED: &str = "--detached";
/// Stack size of the pump's thread in bytes. Its data is on the heap and its calls are not deep.
const STACK_BYTES: usize = 128 << 10;

/// Starts the process that serves at `run_dir`, relays the bytes of this exec session to it, and
/// returns when it has ended. Blocks.
///
/// # Errors
/// One line of text: the process could not be started, or failed.
pub(crate) fn start(run_dir: &Path, relay: Relay) -> Result<(), String> {
    // The end of this process may end the exec session, and then the service may kill what the
    // session left behind. So only SIGKILL may end it before the serving process.
    process::reset_and_block_signals().map_err(|errno| format!("cannot block signals: {errno}"))?;
    let (ours, theirs) =
        socket_pair().map_err(|errno| format!("cannot make a socket pair: {errno}"))?;
    let mut child = {
        // The name of the program would be invalid if its file was removed after the start.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("glovebox-guest")
            .args(["serve", DETACHED])
            .arg(run_dir)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null());
        command
            .spawn()
            .map_err(|error| format!("cannot start the process that serves: {error}"))?
        // Dropping `command` here closes this process's copy of the other end of the pair, so that
        // the relay sees its end.
    };
    relay.run(ours);
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the process that serves failed: {status}")),
        Err(error) => Err(format!("cannot wait for the process that serves: {error}")),
    }
}

/// Serves at `run_dir`, first over `first`, until the host ends the session or has been gone for as
/// long as its greeting said. Blocks.
///
/// Preconditions: this process is not a process group leader, and no other thread runs.
///
/// # Errors
/// One line of text.
pub(crate) fn serve_detached(run_dir: &Path, first: OwnedFd, cx: Cx) -> Result<(), String> {
    let at = |step: &'static str| move |errno| format!("cannot {step}: {errno}");
    // First of all: a signal to the exec session's process group must not reach this process.
    rustix::process::setsid().map_err(at("begin a session"))?;
    // Before the pump's thread starts: it inherits the mask, and must not take signals of the event
    // loop.
    process::reset_and_block_signals().map_err(at("block signals"))?;
    process::set_non_dumpable().map_err(at("close this process to others"))?;
    let run_dir = RunDir::create(run_dir)?;
    // An exec session ends only when no process holds its output open.
    let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(at("open /dev/null"))?;
    rustix::stdio::dup2_stderr(&null).map_err(at("let go of standard error"))?;
    drop(null);

    let (ours, theirs) = socket_pair().map_err(at("make a socket pair"))?;
    let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(at("copy a socket"));
    let (link_in, link_out) = (copy(&theirs)?, copy(&theirs)?);
    let pump = Pump::new(run_dir, first, ours).map_err(at("set up the connection"))?;
    let thread = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || pump.run())
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let result = serve::run(link_in, link_out, cx);
    // A worker that hangs in a file operation may hold a copy of the socket, so closing ours is not
    // enough for the pump to see the end. Bytes already written remain readable.
    let _ = shutdown(&theirs, Shutdown::Both);
    let _ = thread.join();
    result.map_err(|error| error.to_string())
}

/// Relays the bytes of this exec session to the guest that serves at `run_dir`. Blocks.
///
/// # Errors
/// One line of text: no guest serves there. The host has then received a refusal.
pub(crate) fn link(run_dir: &Path, relay: Relay) -> Result<(), String> {
    match run_dir::connect(run_dir) {
        Ok(socket) => {
            relay.run(socket);
            Ok(())
        }
        Err(errno) => {
            let mut refusal = Vec::new();
            encode_record(&Record::Refuse(Refusal::Gone), &mut refusal);
            relay.send(&refusal);
            Err(format!("no guest serves at {}: {errno}", run_dir.display()))
        }
    }
}
