//! `glovebox expose`: forwards a port of this machine to a server of a sandbox.

use super::Cx;
use super::listening::cannot_listen;
use crate::args::{ExposeArgs, Listen};
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, Messages};
use glovebox_proto::{Code, Fault, Request};
use glovebox_sandbox::Sandbox;
use serde_json::json;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Maximum number of simultaneous connections; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 128;
/// Interval at which the sandbox is pinged to detect its end.
const ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const STACK_BYTES: usize = 256 << 10;

/// Forwards until the sandbox ends or the user interrupts.
pub(crate) fn run(cx: &Cx, args: &ExposeArgs) -> CommandResult {
    render::answer_failure(
        expose(cx, args),
        args.json,
        || json!({ "sandbox": args.name, "port": args.port }),
    )
}

fn expose(cx: &Cx, args: &ExposeArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let sandbox = Arc::new(cx.user_registry()?.connect(&name)?);
    let (listener, address) = listen(args.listen, args.port)?;
    if !address.ip().is_loopback() {
        cx.talk.warning(format_args!(
            "whoever reaches {address} can use the server in sandbox `{name}`; nothing asks for a password"
        ));
    }
    let shown = shown_address(address);
    if args.json {
        let message = format!("port {} of sandbox `{name}` is at {shown}", args.port);
        let data = json!({ "sandbox": name, "port": args.port, "address": shown });
        render::print(render::envelope(true, &message, &data))?;
    } else {
        render::print(format_args!(
            "http://{shown} leads to port {} of sandbox `{name}`; Ctrl-C ends it\n",
            args.port
        ))?;
    }
    let (serving, port, talk) = (Arc::clone(&sandbox), args.port, cx.talk);
    thread::Builder::new()
        .name("accept".to_owned())
        .spawn(move || accept(&listener, &serving, port, talk))
        .map_err(|error| CommandError::io("start a thread", &error))?;
    loop {
        thread::sleep(ALIVE_INTERVAL);
        if let Err(fault) = sandbox.call(Request::Ping(Vec::new().into())) {
            return Err(match fault.code {
                Code::LinkLost => Fault::lost(
                    Code::LinkLost,
                    format!("sandbox `{name}` has ended, and with it the way to its port"),
                ),
                _ => fault,
            }
            .into());
        }
    }
}

/// Listens on the requested port, on the server's own port number, or on a free port if that number
/// is unavailable.
fn listen(wish: Listen, port: u16) -> Result<(TcpListener, SocketAddr), CommandError> {
    let bind = |port: u16| -> std::io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind((wish.address, port))?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    let is_taken = |error: &std::io::Error| {
        matches!(
            error.kind(),
            ErrorKind::AddrInUse | ErrorKind::PermissionDenied
        )
    };
    let bound = match (wish.port, bind(wish.port.unwrap_or(port))) {
        (None, Err(error)) if is_taken(&error) => bind(0),
        (_, bound) => bound,
    };
    bound.map_err(|error| {
        let asked = SocketAddr::new(wish.address, wish.port.unwrap_or(0));
        cannot_listen(asked, &error, "--listen")
    })
}

/// Returns the address for a browser on this machine.
fn shown_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn accept(listener: &TcpListener, sandbox: &Arc<Sandbox>, port: u16, talk: Messages) {
    let places = Arc::new(ConnectionSlots::default());
    let told = Arc::new(AtomicBool::new(false));
    for client in listener.incoming() {
        let Ok(client) = client else {
            // Descriptors are exhausted, or the connection was reset: the next accept may succeed.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        // Wait for a slot before the thread starts: that bounds the number of threads.
        places.take();
        let (sandbox, freed, talk) = (Arc::clone(sandbox), Arc::clone(&places), talk);
        let is_told = Arc::clone(&told);
        let served = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let _ = client.set_nodelay(true);
                match sandbox.forward_port(port, client.as_fd()) {
                    Ok(()) => is_told.store(false, Ordering::Relaxed),
                    Err(fault) => {
                        // Reset the connection: to the client it is a closed port, or a connection
                        // that broke.
                        let _ =
                            rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO));
                        // Report it once, not for each attempt of a client that waits for the
                        // server to start.
                        if fault.code == Code::NotFound && !is_told.swap(true, Ordering::Relaxed) {
                            talk.note(fault.message);
                        }
                    }
                }
                freed.give_back();
            });
        if served.is_err() {
            places.give_back();
        }
    }
}

/// Counter of connections; [`Self::take`] blocks at the maximum.
#[derive(Debug, Default)]
struct ConnectionSlots {
    taken: Mutex<usize>,
    freed: Condvar,
}

impl ConnectionSlots {
    fn take(&self) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self
            .freed
            .wait_while(taken, |taken| *taken >= MAX_CONNECTIONS)
            .unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
    }

    fn give_back(&self) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.freed.notify_one();
    }
}
