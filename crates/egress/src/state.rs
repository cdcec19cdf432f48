//! What all parts of a proxy share: the policy, what stands for what, what was looked up, what was refused.

use crate::address::{AddressKind, kind};
use crate::name::{Host, Name};
use crate::policy::Policy;
use crate::refusals::Refusals;
use crate::resolve::{Resolve, ResolveError, Resolver};
use crate::stand_in::{StandIns, is_own};
use crate::target::Target;
use glovebox_proto::{Denial, EgressReason};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What all parts of a proxy share.
#[derive(Debug)]
pub(crate) struct ProxyState {
    policy: Policy,
    resolver: Resolver,
    stand_ins: Mutex<StandIns>,
    /// Where programs that know of proxies ask.
    proxy: SocketAddrV4,
    refusals: Refusals,
}

impl ProxyState {
    pub(crate) fn new(
        policy: Policy,
        resolve: Arc<dyn Resolve>,
        first_address: Ipv4Addr,
        proxy: SocketAddrV4,
    ) -> Self {
        Self {
            policy,
            resolver: Resolver::new(resolve),
            stand_ins: Mutex::new(StandIns::new(first_address)),
            proxy,
            refusals: Refusals::default(),
        }
    }

    /// Where programs that know of proxies ask.
    pub(crate) const fn proxy(&self) -> SocketAddrV4 {
        self.proxy
    }

    /// Where a connection may go that is asked for, or that an address of the sandbox stands for. `host` is `None` when
    /// what was asked for, shown as `shown`, has no clear reading.
    pub(crate) async fn target(
        &self,
        host: Option<Host>,
        shown: &str,
        port: u16,
    ) -> Option<Target> {
        let host = match host {
            // Whoever looks names up itself asks the proxy for the address that it got here.
            Some(Host::Address(IpAddr::V4(address))) => self.host_at(address),
            host => host,
        };
        let Some(host) = host.filter(|host| port != 0 && is_possible(host)) else {
            self.refuse(shown, Some(port), EgressReason::Never);
            return None;
        };
        let addresses = self.reach(&host, Some(port)).await?;
        Some(Target {
            host,
            port,
            addresses,
        })
    }

    /// The addresses that may be dialled for a host, on this port or on any that is listed for it. What may not be
    /// reached is remembered as refused.
    pub(crate) async fn reach(&self, host: &Host, port: Option<u16>) -> Option<Vec<IpAddr>> {
        let decision = match port {
            Some(port) => self.policy.decide(host, port),
            None => self.policy.decide_host(host),
        };
        let reason = match decision {
            Err(reason) => reason,
            Ok(rule) => match self.resolver.targets(host, rule).await {
                Ok(addresses) => return Some(addresses),
                Err(ResolveError::Unknown) => return None,
                Err(ResolveError::Forbidden) => EgressReason::Private,
            },
        };
        self.refuse(&host.to_string(), port, reason);
        None
    }

    /// What was refused in this time (CLOCK_MONOTONIC, in nanoseconds).
    pub(crate) fn denials(&self, during: RangeInclusive<u64>, is_shared: bool) -> Vec<Denial> {
        self.refusals.denials(during, is_shared)
    }

    pub(crate) fn refuse(&self, host: &str, port: Option<u16>, reason: EgressReason) {
        self.refusals.add(host, port, reason);
    }

    pub(crate) fn stand_in(&self, name: &Name) -> Option<Ipv4Addr> {
        self.stand_ins().address_of(name)
    }

    /// The host that an address of the sandbox stands for: a name, or a listed address itself. `None` for one that
    /// stands for nothing.
    pub(crate) fn host_at(&self, address: Ipv4Addr) -> Option<Host> {
        match self.stand_ins().name_of(address) {
            Some(name) => Some(Host::Name(name.clone())),
            None if is_own(address) => None,
            None => Some(Host::Address(address.into())),
        }
    }

    fn stand_ins(&self) -> MutexGuard<'_, StandIns> {
        self.stand_ins
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether some rule could open this.
fn is_possible(host: &Host) -> bool {
    match host {
        Host::Name(_) => true,
        Host::Address(IpAddr::V6(address)) if address.is_loopback() => false,
        Host::Address(address) => kind(*address) != AddressKind::Never,
    }
}
