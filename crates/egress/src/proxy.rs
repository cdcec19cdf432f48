//! The proxy of one sandbox: a thread of its own that answers questions for names, accepts what programs inside
//! connect to, and passes it on where the policy lets it.

use crate::arrival;
use crate::dns;
use crate::policy::Policy;
use crate::resolve::Resolve;
use crate::state::ProxyState;
use glovebox_proto::Denial;
use rustix::fd::OwnedFd;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Semaphore, oneshot};

/// Connections of one sandbox at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// Connections that may wait for that, per port.
const BACKLOG: i32 = 1024;

/// What the first process of the sandbox has made inside.
#[derive(Debug)]
pub struct Sockets {
    /// Bound to the port where programs ask for names.
    pub names: OwnedFd,
    /// Stream sockets that are not bound yet; one is used for each port.
    pub spare: Vec<OwnedFd>,
    /// The first of the addresses that stand in for names; they are the sandbox's own.
    pub first_address: Ipv4Addr,
    /// Where programs that know of proxies ask; the address is the sandbox's own and stands for no name.
    pub proxy: SocketAddrV4,
}

/// A running proxy. Dropping it ends it, with every connection it carries.
#[derive(Debug)]
pub struct Proxy {
    state: Arc<ProxyState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one.
    ///
    /// # Errors
    /// When a port cannot be listened on, or there is no thread.
    pub fn start(sockets: Sockets, policy: Policy, resolve: Arc<dyn Resolve>) -> io::Result<Self> {
        let ports = policy.ports();
        let (first_address, proxy) = (sockets.first_address, sockets.proxy);
        let state = Arc::new(ProxyState::new(policy, resolve, first_address, proxy));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name("egress-look-up")
            .max_blocking_threads(8)
            .build()?;
        {
            // Sockets and tasks belong to the runtime from here on; they begin to work when its thread does.
            let _runtime = runtime.enter();
            let names = std::net::UdpSocket::from(sockets.names);
            names.set_nonblocking(true)?;
            tokio::spawn(dns::serve(UdpSocket::from_std(names)?, Arc::clone(&state)));
            let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
            let mut spare = sockets.spare.into_iter();
            // Every address of the sandbox, at these ports. Those of commands are above 1023 and their own business;
            // below, no command can have one (they lack the capability), so that nobody is in the way.
            let hosts = ports
                .iter()
                .map(|port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *port));
            let asked = (!ports.contains(&proxy.port())).then_some(proxy);
            for address in hosts.chain(asked) {
                let socket = spare.next().ok_or_else(|| {
                    io::Error::other("the policy has more ports than there are sockets")
                })?;
                let listener = TcpListener::from_std(listen(socket, address)?)?;
                tokio::spawn(accept(listener, Arc::clone(&state), Arc::clone(&places)));
            }
        }
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("egress".to_owned())
            .spawn(move || {
                // Its sender is dropped or used: either way it is over.
                let _ = runtime.block_on(stopped);
                // A question that the host's resolver has not answered yet holds up nobody.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            state,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// What was refused between two moments of CLOCK_MONOTONIC, in nanoseconds. `is_shared` says that more than one
    /// command ran.
    pub fn denials(&self, during: RangeInclusive<u64>, is_shared: bool) -> Vec<Denial> {
        self.state.denials(during, is_shared)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has no reason to panic; if it did, it has ended as well.
            let _ = thread.join();
        }
    }
}

fn listen(socket: OwnedFd, address: SocketAddrV4) -> io::Result<std::net::TcpListener> {
    rustix::net::bind(&socket, &SocketAddr::V4(address))?;
    rustix::net::listen(&socket, BACKLOG)?;
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn accept(listener: TcpListener, state: Arc<ProxyState>, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many descriptors, or a connection that has gone: the next may fare better.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            arrival::carry(stream, &state).await;
            drop(place);
        });
    }
}
