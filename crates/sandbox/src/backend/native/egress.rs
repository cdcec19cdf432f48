//! Egress proxy of a sandbox, which ends with the sandbox.

use super::secrets::read_certificates;
use crate::SandboxSpec;
use crate::backend::CreateCx;
use crate::fault;
use glovebox_egress::{
    AddAddress, Arrivals, Control, Interceptor, Proxy, ProxyHandle, Sockets, SystemResolver,
    TrafficLimits, UpstreamSettings,
};
use glovebox_jail::stage0::own_network::{self, FIRST_STAND_IN};
use glovebox_proto::{Denial, Fault};
use glovebox_spec::PROXY;
use std::io;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Egress proxy of a sandbox. `None` inside if the sandbox has none or it was closed.
#[derive(Debug, Default)]
pub(in crate::backend) struct SandboxProxy(Mutex<Option<Proxy>>);

impl SandboxProxy {
    /// Starts the proxy on the sockets of a new sandbox: the one that receives DNS queries, then
    /// unbound stream sockets. `interceptor` fills in secrets, if there are any; `upstream` is the
    /// machine's proxy, if it has one.
    pub(super) fn open(
        sockets: Vec<OwnedFd>,
        control: Arc<Control>,
        interceptor: Option<Interceptor>,
        upstream: Option<UpstreamSettings>,
    ) -> Result<Self, Fault> {
        let mut sockets = sockets.into_iter();
        let names = sockets
            .next()
            .ok_or_else(|| fault::internal("the sandbox did not hand over its way out"))?;
        let network = names.try_clone();
        let network = network.map_err(|error| fault::plain_io("cannot keep a socket", error))?;
        let sockets = Sockets {
            names,
            addresses: Box::new(OwnNetwork(network)),
            spare: sockets.collect(),
            first_address: FIRST_STAND_IN,
            proxy: PROXY,
        };
        Self::start(sockets.into(), control, interceptor, upstream)
    }

    /// Starts the proxy of a sandbox whose monitor passes connections on `channel`.
    pub(in crate::backend) fn open_passed(
        channel: OwnedFd,
        control: Arc<Control>,
        upstream: Option<UpstreamSettings>,
    ) -> Result<Self, Fault> {
        let arrivals = Arrivals::Passed {
            channel,
            first_address: FIRST_STAND_IN,
            proxy: PROXY,
        };
        Self::start(arrivals, control, None, upstream)
    }

    fn start(
        arrivals: Arrivals,
        control: Arc<Control>,
        interceptor: Option<Interceptor>,
        upstream: Option<UpstreamSettings>,
    ) -> Result<Self, Fault> {
        let resolver = Arc::new(SystemResolver);
        Proxy::start(arrivals, control, resolver, interceptor, upstream)
            .map(|proxy| Self(Mutex::new(Some(proxy))))
            .map_err(|error| fault::plain_io("cannot open the sandbox's way out", error))
    }

    /// Returns the rules, log and accounts of a new guest: those of an earlier one, or new ones.
    pub(in crate::backend) fn control(cx: &CreateCx<'_>) -> Arc<Control> {
        let limits = &cx.spec.jail.limits;
        let limits = TrafficLimits {
            bytes: limits.net_bytes,
            connections: limits.net_connections,
            bytes_per_second: limits.net_rate,
        };
        let new = || Arc::new(Control::new(cx.spec.egress.clone(), limits));
        cx.egress.clone().unwrap_or_else(new)
    }

    /// Returns the settings of the machine's proxy for a sandbox, with the certificates that verify
    /// it.
    pub(in crate::backend) fn upstream(
        wanted: &SandboxSpec,
    ) -> Result<Option<UpstreamSettings>, Fault> {
        let Some(proxies) = wanted.upstream.clone() else {
            return Ok(None);
        };
        let trusted = match wanted.certificates.first() {
            Some(path) if proxies.speaks_tls() => read_certificates(path)?.into_bytes(),
            _ => Vec::new(),
        };
        Ok(Some(UpstreamSettings { proxies, trusted }))
    }

    /// Returns a handle of the proxy. `None` if there is none.
    pub(in crate::backend) fn handle(&self) -> Option<ProxyHandle> {
        self.proxy().as_ref().map(Proxy::handle)
    }

    /// Returns the hosts that were refused during a time (CLOCK_MONOTONIC, in nanoseconds).
    pub(in crate::backend) fn refused(
        &self,
        during: RangeInclusive<u64>,
        is_shared: bool,
    ) -> Vec<Denial> {
        self.handle()
            .map_or_else(Vec::new, |proxy| proxy.denials(during, is_shared))
    }

    /// Ends the proxy with all its connections.
    pub(in crate::backend) fn close(&self) {
        let proxy = self.proxy().take();
        drop(proxy);
    }

    fn proxy(&self) -> std::sync::MutexGuard<'_, Option<Proxy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Network namespace of a sandbox, identified by a socket in it.
#[derive(Debug)]
struct OwnNetwork(OwnedFd);

impl AddAddress for OwnNetwork {
    fn add_address(&self, number: usize, address: Ipv4Addr) -> io::Result<()> {
        Ok(own_network::capture(self.0.as_fd(), number, address)?)
    }
}

#[cfg(test)]
mod tests {
    use glovebox_egress::{MAX_ADDRESSES, MAX_PORTS};
    use glovebox_jail::stage0::own_network::{MAX_CAPTURED, SPARE_SOCKETS};

    #[test]
    fn every_policy_has_the_sockets_and_addresses_it_takes() {
        const { assert!(MAX_PORTS < SPARE_SOCKETS && MAX_ADDRESSES <= MAX_CAPTURED) };
    }
}
