//! Proxy of one sandbox: a thread that answers DNS queries, accepts connections of programs inside,
//! and relays those that the policy allows.

use crate::allow::{AllowError, new_rules};
use crate::inward::arrival;
use crate::inward::dns;
use crate::inward::listeners::Listeners;
use crate::inward::passed;
use crate::memory::MAX_CONNECTIONS;
use crate::outward::machine_proxy::MachineProxy;
use crate::outward::resolve::Resolve;
use crate::outward::upstream::Upstream;
use crate::policy::MAX_ADDRESSES;
use crate::policy::live_policy::{RuleInForce, end_of};
use crate::policy::name::Host;
use crate::probe::{Probe, probe};
use crate::record::control::Control;
use crate::secrets::interceptor::Interceptor;
use crate::state::ProxyState;
use glovebox_proto::Denial;
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UdpSocket, UnixDatagram};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

/// Turns of the runtime after which every connection has handled the data that had arrived before:
/// one to be woken, and some to act.
const SETTLING_TURNS: usize = 4;
/// Maximum time to wait for these turns.
const SETTLING_WAIT: Duration = Duration::from_millis(500);
/// Maximum time to wait until data that programs have sent is passed on. A host may read
/// arbitrarily slowly.
const DRAIN_WAIT: Duration = Duration::from_secs(1);
/// Interval between two checks whether all data has been passed on.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

/// Sockets that the first process of the sandbox has created inside.
#[derive(Debug)]
pub struct Sockets {
    /// Datagram socket that is bound to the DNS port.
    pub names: OwnedFd,
    /// Adds addresses to the sandbox's network.
    pub addresses: Box<dyn AddAddress>,
    /// Unbound stream sockets. Each port that the proxy listens on uses one.
    pub spare: Vec<OwnedFd>,
    /// First stand-in address. Stand-in addresses belong to the sandbox's loopback interface.
    pub first_address: Ipv4Addr,
    /// Address of the HTTP and SOCKS proxy for programs with proxy settings. It belongs to the
    /// sandbox and stands for no name.
    pub proxy: SocketAddrV4,
}

/// The way on which connections of a sandbox arrive at its proxy.
#[derive(Debug)]
pub enum Arrivals {
    /// On sockets in the sandbox's own network.
    Sockets(Sockets),
    /// On a Unix SEQPACKET socket, from a monitor that accepts them: each message is the address
    /// and the port that the program asked for, and carries the connection.
    Passed {
        /// This end of the socket.
        channel: OwnedFd,
        /// First stand-in address.
        first_address: Ipv4Addr,
        /// Address of the HTTP and SOCKS proxy, as in [`Sockets`].
        proxy: SocketAddrV4,
    },
}

impl From<Sockets> for Arrivals {
    fn from(sockets: Sockets) -> Self {
        Self::Sockets(sockets)
    }
}

/// Adds no address, for a sandbox whose connections are passed on whatever their address.
#[derive(Debug)]
struct EveryAddress;

impl AddAddress for EveryAddress {
    fn add_address(&self, _: usize, _: Ipv4Addr) -> io::Result<()> {
        Ok(())
    }
}

/// The machine's own proxies, for connections of one sandbox.
#[derive(Debug, Clone)]
pub struct UpstreamSettings {
    /// Addresses of the proxies, and the hosts that are reached through them.
    pub proxies: MachineProxy,
    /// Certificates of authorities (PEM) that a proxy's certificate is checked against if the proxy
    /// speaks TLS.
    pub trusted: Vec<u8>,
}

/// Adds addresses to a sandbox's own network, so that connections of its programs to them arrive at
/// the proxy.
pub trait AddAddress: std::fmt::Debug + Send + Sync {
    /// Adds an address. `number` is its index among the addresses that rules open, from 0.
    ///
    /// # Errors
    /// The error of the kernel.
    fn add_address(&self, number: usize, address: Ipv4Addr) -> io::Result<()>;
}

/// Addresses that rules open and that have been added to the sandbox.
#[derive(Debug)]
struct OwnAddresses {
    known: BTreeSet<Ipv4Addr>,
    add: Box<dyn AddAddress>,
}

/// Running proxy of one sandbox. Dropping it waits up to about 1.5 seconds until data that programs
/// have sent is passed on, then ends the proxy and all its connections.
#[derive(Debug)]
pub struct Proxy {
    handle: ProxyHandle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Handle of a proxy for use from any thread. It does not keep the proxy running.
#[derive(Debug, Clone)]
pub struct ProxyHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Arc<ProxyState>,
    listeners: Mutex<Listeners>,
    addresses: Mutex<OwnAddresses>,
    /// Permits for connections.
    places: Arc<Semaphore>,
    runtime: Handle,
}

impl Proxy {
    /// Starts a proxy that decides by the rules of `control` and records its decisions there.
    /// `interceptor` replaces placeholders of secrets; `None` if the sandbox has no secrets.
    /// `upstream` holds the machine's proxies; `None` if hosts are reached directly.
    ///
    /// # Errors
    /// An I/O error if a port cannot be opened, an address cannot be added, or the thread cannot be
    /// created.
    pub fn start(
        arrivals: impl Into<Arrivals>,
        control: Arc<Control>,
        resolve: Arc<dyn Resolve>,
        interceptor: Option<Interceptor>,
        upstream: Option<UpstreamSettings>,
    ) -> io::Result<Self> {
        let in_force = control.policy.in_force();
        let (ports, known) = (in_force.ports(), control.policy.first_addresses());
        let arrivals = arrivals.into();
        let (first_address, proxy) = match &arrivals {
            Arrivals::Sockets(sockets) => (sockets.first_address, sockets.proxy),
            Arrivals::Passed {
                first_address,
                proxy,
                ..
            } => (*first_address, *proxy),
        };
        let upstream = upstream
            .map(|settings| Upstream::new(settings.proxies, &settings.trusted))
            .transpose()?;
        let state = Arc::new(ProxyState::new(
            control,
            resolve,
            first_address,
            proxy,
            interceptor,
            upstream,
        ));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name("egress-look-up")
            .max_blocking_threads(8)
            .build()?;
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        // Sockets and tasks are registered with the runtime here. They begin to run when its thread
        // starts.
        let entered = runtime.enter();
        let (listeners, add) = match arrivals {
            Arrivals::Sockets(sockets) => {
                let names = std::net::UdpSocket::from(sockets.names);
                names.set_nonblocking(true)?;
                tokio::spawn(dns::serve(UdpSocket::from_std(names)?, Arc::clone(&state)));
                (Listeners::new(sockets.spare), sockets.addresses)
            }
            Arrivals::Passed { channel, .. } => {
                // SEQPACKET, which differs in that it has an end.
                let channel = std::os::unix::net::UnixDatagram::from(channel);
                channel.set_nonblocking(true)?;
                let channel = UnixDatagram::from_std(channel)?;
                tokio::spawn(passed::serve(
                    channel,
                    Arc::clone(&state),
                    Arc::clone(&places),
                ));
                let add: Box<dyn AddAddress> = Box::new(EveryAddress);
                (Listeners::every_port(), add)
            }
        };
        drop(entered);
        let handle = ProxyHandle(Arc::new(Shared {
            state,
            listeners: Mutex::new(listeners),
            addresses: Mutex::new(OwnAddresses { known, add }),
            places,
            runtime: runtime.handle().clone(),
        }));
        let hosts = ports.iter().copied().map(everywhere);
        let asked = (!ports.contains(&proxy.port())).then_some(proxy);
        for address in hosts.chain(asked) {
            handle.listen(address)?;
        }
        // Rules that were added under an earlier proxy of this sandbox may need further addresses.
        handle
            .add_addresses(&in_force.addresses())
            .map_err(|error| match error {
                AllowError::Address { error, .. } => error,
                other => io::Error::other(other),
            })?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("egress".to_owned())
            .spawn(move || {
                // Resolves when the `Proxy` drops or uses the sender; either is the signal to end.
                let _ = runtime.block_on(stopped);
                // In the background, because a lookup of the host's resolver may block a thread for
                // long.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns a handle for use from other threads.
    pub fn handle(&self) -> ProxyHandle {
        self.handle.clone()
    }
}

impl ProxyHandle {
    /// Returns the rules, the log and the accounts.
    pub fn control(&self) -> &Arc<Control> {
        self.0.state.control()
    }

    /// Returns the refusals between two times of `CLOCK_MONOTONIC`, in nanoseconds. `is_shared` is
    /// true if more than one command ran in that time. May block for up to half a second if the
    /// sandbox has secrets.
    pub fn denials(&self, during: RangeInclusive<u64>, is_shared: bool) -> Vec<Denial> {
        if self.0.state.interceptor().is_some() {
            self.settle();
        }
        self.control().denials(during, is_shared)
    }

    /// Waits until the proxy has handled the data that had arrived before the call. A program that
    /// rejects the proxy's certificate sends an alert and exits, and that alert must be in the log
    /// when its refusals are listed.
    fn settle(&self) {
        let (done, settled) = mpsc::channel();
        self.0.runtime.spawn(async move {
            for _ in 0..SETTLING_TURNS {
                tokio::task::yield_now().await;
            }
            // The receiver may have timed out.
            let _ = done.send(());
        });
        // If the proxy is too busy to finish in time, the latest refusals are missing from the
        // list.
        let _ = settled.recv_timeout(SETTLING_WAIT);
    }

    /// Opens the hosts of `words` (rules or names of presets) for `lifetime`, or as long as the
    /// sandbox runs if `None`. Returns these rules as they are in force now.
    ///
    /// # Errors
    /// [`AllowError`]; no host has been opened then.
    pub fn allow<S: AsRef<str>>(
        &self,
        words: &[S],
        lifetime: Option<Duration>,
    ) -> Result<Vec<RuleInForce>, AllowError> {
        let policy = &self.control().policy;
        let in_force = policy.in_force();
        let rules = new_rules(words, &in_force)?;
        let wanted = in_force.with(rules.clone())?;
        // The rules are added last: as soon as they hold, programs may connect, which needs the
        // listeners and the addresses. A step that fails leaves the policy as it was.
        self.listen_all(&wanted.ports())?;
        self.add_addresses(&wanted.addresses())?;
        policy.add(&rules, end_of(lifetime))?;
        let mut list = policy.list();
        list.retain(|one| !one.is_denial && rules.contains(&one.rule));
        Ok(list)
    }

    /// Probes a connection to a host. Blocks until the result is there; `None` if the proxy has
    /// ended.
    pub fn probe(&self, host: Host, port: u16) -> Option<Probe> {
        let (done, answer) = mpsc::channel();
        let state = Arc::clone(&self.0.state);
        self.0.runtime.spawn(async move {
            // The receiver may be gone.
            let _ = done.send(probe(&state, &host, port).await);
        });
        answer.recv().ok()
    }

    /// Adds the missing addresses to the sandbox. They are not removed when their rule expires,
    /// because connections that the rule allowed stay open.
    fn add_addresses(&self, wanted: &BTreeSet<Ipv4Addr>) -> Result<(), AllowError> {
        let addresses = self.0.addresses.lock();
        let mut addresses = addresses.unwrap_or_else(PoisonError::into_inner);
        let missing: Vec<Ipv4Addr> = wanted.difference(&addresses.known).copied().collect();
        let room = MAX_ADDRESSES.saturating_sub(addresses.known.len());
        if let Some(address) = missing.get(room) {
            return Err(AllowError::TooManyAddresses { address: *address });
        }
        for address in missing {
            let number = addresses.known.len();
            let added = addresses.add.add_address(number, address);
            added.map_err(|error| AllowError::Address { address, error })?;
            addresses.known.insert(address);
        }
        Ok(())
    }

    fn listen_all(&self, ports: &BTreeSet<u16>) -> Result<(), AllowError> {
        let missing = {
            let listeners = self.listeners();
            let missing = listeners.missing(ports);
            if let Some(port) = missing.get(listeners.spare()) {
                return Err(AllowError::TooManyPorts { port: *port });
            }
            missing
        };
        // Two threads may open ports at the same time. If the sockets do not suffice for both, the
        // second one fails in `listen`.
        for port in missing {
            self.listen(everywhere(port))
                .map_err(|error| AllowError::Port { port, error })?;
        }
        Ok(())
    }

    fn listen(&self, address: SocketAddrV4) -> io::Result<()> {
        let shared = &self.0;
        let mut listeners = self.listeners();
        if listeners.is_open(address.port()) {
            return Ok(());
        }
        let _runtime = shared.runtime.enter();
        let listener = TcpListener::from_std(listeners.listen(address)?)?;
        tokio::spawn(accept(
            listener,
            Arc::clone(&shared.state),
            Arc::clone(&shared.places),
        ));
        Ok(())
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        let listeners = self.0.listeners.lock();
        listeners.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Waits until data that programs have sent before they exited is passed on, at most
    /// [`DRAIN_WAIT`].
    fn drain(&self) {
        let control = self.handle.control();
        self.handle.settle();
        let begun = Instant::now();
        while control.is_sending() && begun.elapsed() < DRAIN_WAIT {
            std::thread::sleep(DRAIN_INTERVAL);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Draining comes first: stopping the thread ends all connections, and data on its way would
        // be lost.
        self.drain();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The result is an error only if the thread panicked; it has ended then too.
            let _ = thread.join();
        }
    }
}

/// Returns the wildcard address with this port: every address of the sandbox.
const fn everywhere(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)
}

async fn accept(listener: TcpListener, state: Arc<ProxyState>, places: Arc<Semaphore>) {
    loop {
        // The permit comes before `accept`, so that connections beyond the limit wait in the
        // backlog.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open descriptors, or a connection that was closed before it was accepted.
            // The pause keeps this loop from spinning until a descriptor is free.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        // The sockets of a sandbox's network are of IPv4.
        let Ok(SocketAddr::V4(wanted)) = stream.local_addr() else {
            continue;
        };
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            arrival::carry(stream, wanted, &state).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::policy::name::Name;
    use crate::record::limits::TrafficLimits;
    use rustix::net::{AddressFamily, SocketType, socket};
    use std::net::{IpAddr, UdpSocket as StdUdpSocket};

    /// How long rules hold that are to end in a test.
    const SHORT: Duration = Duration::from_millis(50);

    /// Remembers what it was told to add.
    #[derive(Debug, Clone, Default)]
    struct AddedAddresses(Arc<Mutex<Vec<(usize, Ipv4Addr)>>>);

    impl AddAddress for AddedAddresses {
        fn add_address(&self, number: usize, address: Ipv4Addr) -> io::Result<()> {
            self.0.lock().unwrap().push((number, address));
            Ok(())
        }
    }

    #[derive(Debug)]
    struct NoNames;

    impl Resolve for NoNames {
        fn addresses(&self, _: &Name) -> io::Result<Vec<IpAddr>> {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn free_port() -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    }

    /// A proxy on sockets of this machine, and the addresses that it was given.
    fn start() -> (Proxy, AddedAddresses) {
        let added = AddedAddresses::default();
        let stream = |_| socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let sockets = Sockets {
            names: StdUdpSocket::bind("127.0.0.1:0").unwrap().into(),
            addresses: Box::new(added.clone()),
            spare: (0..2).map(stream).collect(),
            first_address: Ipv4Addr::new(198, 18, 0, 1),
            proxy: SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port()),
        };
        let control = Arc::new(Control::new(Policy::default(), TrafficLimits::default()));
        let proxy = Proxy::start(sockets, control, Arc::new(NoNames), None, None).unwrap();
        (proxy, added)
    }

    /// Addresses stay a sandbox's own when the rules that opened them have ended, so that rules which follow each other
    /// can come to more than any policy has.
    #[test]
    fn more_addresses_than_a_sandbox_can_have_are_refused_by_name_and_none_is_added() {
        let (proxy, added) = start();
        let handle = proxy.handle();
        let port = free_port();
        let words = |numbers: RangeInclusive<usize>| -> Vec<String> {
            numbers
                .map(|last| format!("192.0.2.{last}:{port}"))
                .collect()
        };
        let many = MAX_ADDRESSES - 2;
        handle.allow(&words(1..=many), Some(SHORT)).unwrap();
        std::thread::sleep(2 * SHORT);
        assert_eq!(handle.control().rules(), []);
        // No policy has too many, and the sandbox would have.
        let error = handle.allow(&words(many..=many + 3), None).unwrap_err();
        let first_too_many = Ipv4Addr::new(192, 0, 2, u8::try_from(many + 3).unwrap());
        assert!(
            matches!(error, AllowError::TooManyAddresses { address } if address == first_too_many),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("64 addresses have been opened"),
            "{error}"
        );
        assert_eq!(handle.control().rules(), []);
        assert_eq!(added.0.lock().unwrap().len(), many);
        // What there is room for is opened, and what was opened before takes none.
        handle.allow(&words(many - 1..=many + 2), None).unwrap();
        let added = added.0.lock().unwrap();
        assert_eq!(added.len(), MAX_ADDRESSES);
        assert!(added.iter().map(|(number, _)| *number).eq(0..MAX_ADDRESSES));
    }
}
