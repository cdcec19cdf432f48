//! Program that runs inside a sandbox: serves requests of the host, runs jobs and reaps their
//! processes.
//!
//! * `serve` speaks the protocol on descriptors 0 (in) and 1 (out) as an ordinary process;
//! * `serve --resume RUN_DIR [--lines]` does so in a process of its own session, which survives
//!   broken connections; `link [--lines] RUN_DIR` is a further connection to it;
//! * `stage0` reads a plan from the socket on descriptor 0, becomes the first process of a new
//!   sandbox, and then serves on that socket;
//! * `confine` monitors a sandbox without namespaces, whose guest it starts as `confined`;
//! * `exchange` takes an order from descriptor 0 and exchanges the overlays of a running sandbox;
//! * `refresh` lets a running sandbox see what the host replaced below its overlays;
//! * `usage` sums up a directory tree of a sandbox from within its user namespace;
//! * `probe NAME` tries one thing that a sandbox needs and reports the result.
//!
//! ```text
//! serve      the event loop: waits, dispatches requests and events, sends
//! jobs       commands: processes, streams, ends, waiting requests
//! freeze     all processes of the commands, stopped for a while
//! transfers, tree, tunnels    files, whole trees and connections, one bounded step at a time
//! requests   open requests and their answers; passed to all of the above
//! workers    threads for steps that may block
//! resume     connections to a host on another machine, which may break
//! ```
//!
//! It prints only one line when it has to give up, and the results of a probe.

#![expect(
    clippy::print_stderr,
    reason = "the one place this program may say why it gives up"
)]

mod command;
mod effect;
mod facts;
mod fault;
mod files;
mod frame_writer;
mod freeze;
mod jobs;
mod link;
mod log;
mod network_use;
mod poll;
mod ports;
mod programs;
mod requests;
mod resolver;
mod resume;
mod serve;
mod spill;
mod terminal;
mod timers;
mod transfers;
mod tree;
mod tunnels;
mod workers;

use glovebox_jail::process::Separation;
use glovebox_jail::stage0::{self, GuestHandover};
use glovebox_jail::{confine, exchange, probe, refresh, usage};
use glovebox_proto::Facts;
use resume::Relay;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::ExitCode;

/// Allocator for musl. Musl's own returns freed memory to the kernel as soon as its neighbours are
/// free, so that reading one small file costs several system calls and interrupts the processors of
/// the other threads. This one keeps up to 2 MiB.
#[cfg(target_env = "musl")]
#[global_allocator]
static MEMORY: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("glovebox-guest: {panic}");
        std::process::abort();
    }));
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["serve"] => serve_on_standard_streams(),
        ["serve", "--resume", run_dir, ref lines @ ..] if matches!(lines, [] | ["--lines"]) => {
            take_relay(!lines.is_empty()).and_then(|relay| resume::start(run_dir.as_ref(), relay))
        }
        ["serve", resume::DETACHED, run_dir] => serve_detached(run_dir.as_ref()),
        ["link", run_dir] => {
            take_relay(false).and_then(|relay| resume::link(run_dir.as_ref(), relay))
        }
        ["link", "--lines", run_dir] => {
            take_relay(true).and_then(|relay| resume::link(run_dir.as_ref(), relay))
        }
        ["stage0", network, ref rest @ ..]
            if network == stage0::OWN_NETWORK || network == stage0::HOST_NETWORK =>
        {
            let own_group = rest.first() == Some(&stage0::OWN_GROUP);
            match stage0::enter(network == stage0::OWN_NETWORK, own_group) {
                Ok(inside) => serve_in_sandbox(inside),
                // The supervisor has received the reason.
                Err(ended) => return exit_code(ended.0),
            }
        }
        [confine::MONITOR_MODE] => {
            take_streams().and_then(|(link, _)| confine::watch_over(link, terminal::open_ends))
        }
        [confine::GUEST_MODE] => serve_confined(),
        [exchange::MODE] => return exit_code(exchange::run().0),
        [refresh::MODE] => return exit_code(refresh::run().0),
        [usage::MODE] => return exit_code(usage::run().0),
        ["probe", what, ..] => return exit_code(probe::child_main(what)),
        _ => Err(
            "usage: glovebox-guest serve|link|stage0|confine|exchange|refresh|usage|probe NAME"
                .to_owned(),
        ),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("glovebox-guest: {message}");
            ExitCode::FAILURE
        }
    }
}

fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Serves as the first process of a sandbox whose setup is complete and checked.
fn serve_in_sandbox(inside: GuestHandover) -> Result<(), String> {
    let link_out = inside.link.try_clone().map_err(|error| error.to_string())?;
    // Nothing uses the working directory. When the mounts are exchanged, a working directory in the
    // root moves along; any other would keep the old mounts alive.
    rustix::process::chdir("/").map_err(|errno| format!("cannot enter the root: {errno}"))?;
    // Files that tools create get the permissions that the sandbox's creator would give them.
    rustix::process::umask(inside.umask);
    let found = &inside.self_test;
    let cx = serve::Cx {
        supervisor: inside.supervisor,
        landlock: inside.landlock,
        separation: inside.separation,
        walls: Some(inside.walls),
        names: inside.names,
        monitor: None,
        base_env: inside
            .env
            .into_iter()
            .map(|(name, value)| (name.into_bytes(), value.into_bytes()))
            .collect(),
        default_cwd: inside.cwd,
        processors: inside.processors,
        open_files: inside.open_files,
        is_init: true,
        facts: Facts {
            landlock_abi: found.landlock_abi,
            userns_denied: found.userns_denied,
            mount_denied: found.mount_denied,
            vsock_denied: found.vsock_denied,
            open_fds: found.open_fds.clone(),
            ..Facts::default()
        },
    };
    serve::run(inside.link, link_out, cx).map_err(|error| error.to_string())
}

/// Serves as an ordinary process over its standard streams.
fn serve_on_standard_streams() -> Result<(), String> {
    let (link_in, link_out) = take_streams()?;
    serve::run(link_in, link_out, process_cx()?).map_err(|error| error.to_string())
}

/// Serves as an ordinary process, first over the socket on standard input.
fn serve_detached(run_dir: &Path) -> Result<(), String> {
    let (first, null) = take_streams()?;
    drop(null);
    resume::serve_detached(run_dir, first, process_cx()?)
}

/// Serves in a sandbox without namespaces. Standard input is the link, standard output leads to the
/// monitor.
fn serve_confined() -> Result<(), String> {
    let (link, control) = take_streams()?;
    let inside = confine::enter(control)?;
    let link_out = link.try_clone().map_err(|error| error.to_string())?;
    let cx = serve::Cx {
        landlock: Some(inside.landlock),
        // The guest has the same user id as the commands, so only the seccomp filter separates
        // them.
        separation: Separation::Filter,
        default_cwd: inside.cwd,
        monitor: Some(inside.monitor),
        ..process_cx()?
    };
    serve::run(link, link_out, cx).map_err(|error| error.to_string())
}

/// Takes the standard streams as those of an exec session.
fn take_relay(is_lines: bool) -> Result<Relay, String> {
    let (input, output) = take_streams()?;
    Ok(Relay::new(input, output, is_lines))
}

/// Returns the context of an ordinary process, with the environment and working directory that it
/// was started with.
fn process_cx() -> Result<serve::Cx, String> {
    let cwd = std::env::current_dir()
        .map_err(|error| format!("cannot tell the working directory: {error}"))?;
    let base_env = std::env::vars_os()
        .map(|(name, value)| (name.into_vec(), value.into_vec()))
        .collect();
    Ok(serve::Cx {
        supervisor: None,
        landlock: None,
        separation: Separation::None,
        walls: None,
        names: None,
        monitor: None,
        base_env,
        default_cwd: OsString::from(cwd).into_vec(),
        processors: None,
        open_files: None,
        is_init: rustix::process::getpid().is_init(),
        facts: Facts::default(),
    })
}

fn take_streams() -> Result<(OwnedFd, OwnedFd), String> {
    take_link().map_err(|errno| format!("cannot take over the standard streams: {errno}"))
}

/// Moves the link away from descriptors 0 and 1 and puts /dev/null there, so that code that uses
/// the standard streams cannot disturb the link.
fn take_link() -> Result<(OwnedFd, OwnedFd), Errno> {
    let link_in = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let link_out = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    Ok((link_in, link_out))
}
