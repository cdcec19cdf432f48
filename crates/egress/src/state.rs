//! What all parts of a proxy share: the rules, what stands for what, what was looked up.

use crate::ConnectFailure;
use crate::memory::RelayPlaces;
use crate::outward::resolve::{Resolve, ResolveError, Resolver};
use crate::outward::target::Target;
use crate::policy::address::{AddressKind, kind};
use crate::policy::name::{Host, Name};
use crate::policy::rule::Rule;
use crate::policy::stand_in::{StandIns, is_own};
use crate::record::control::Control;
use crate::record::meter::Meter;
use crate::secrets::interceptor::Interceptor;
use glovebox_proto::{EgressReason, SecretReason};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why there is no way to a host; the log has it already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReachError {
    /// It is not to be reached.
    Refused,
    /// It may be reached, and cannot.
    Failed(ConnectFailure),
}

/// What all parts of a proxy share.
#[derive(Debug)]
pub(crate) struct ProxyState {
    control: Arc<Control>,
    resolver: Resolver,
    stand_ins: Mutex<StandIns>,
    /// Where programs that know of proxies ask.
    proxy: SocketAddrV4,
    interceptor: Option<Arc<Interceptor>>,
    places: RelayPlaces,
}

impl ProxyState {
    pub(crate) fn new(
        control: Arc<Control>,
        resolve: Arc<dyn Resolve>,
        first_address: Ipv4Addr,
        proxy: SocketAddrV4,
        interceptor: Option<Interceptor>,
    ) -> Self {
        Self {
            control,
            resolver: Resolver::new(resolve),
            stand_ins: Mutex::new(StandIns::new(first_address)),
            proxy,
            interceptor: interceptor.map(Arc::new),
            places: RelayPlaces::new(),
        }
    }

    /// The rules, the log and the accounts.
    pub(crate) const fn control(&self) -> &Arc<Control> {
        &self.control
    }

    pub(crate) const fn resolver(&self) -> &Resolver {
        &self.resolver
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
    ) -> Result<Target, ReachError> {
        let host = match host {
            // Whoever looks names up itself asks the proxy for the address that it got here.
            Some(Host::Address(IpAddr::V4(address))) => self.host_at(address),
            host => host,
        };
        let Some(host) = host.filter(|host| port != 0 && is_possible(host)) else {
            self.refuse(shown, Some(port), EgressReason::Never);
            return Err(ReachError::Refused);
        };
        let addresses = self.reach(&host, Some(port)).await?;
        let meter = Meter::begin(&self.control, &host, port).ok_or(ReachError::Refused)?;
        Ok(Target {
            host,
            port,
            addresses,
            meter,
        })
    }

    /// The addresses that may be dialled for a host, on this port or on any that is listed for it. What may not or
    /// cannot be reached is remembered.
    pub(crate) async fn reach(
        &self,
        host: &Host,
        port: Option<u16>,
    ) -> Result<Vec<IpAddr>, ReachError> {
        let policy = self.control.policy.in_force();
        let decision = match port {
            Some(port) => policy.decide(host, port),
            None => policy.decide_host(host),
        };
        let (reason, rule) = match decision {
            Err(reason) => (reason, policy.closing_rule(host, port)),
            Ok(rule) => match self.resolver.targets(host, rule).await {
                Ok(addresses) => return Ok(addresses),
                Err(ResolveError::Unknown) => {
                    return Err(self.fail(host, port, rule, ConnectFailure::UnknownName));
                }
                Err(ResolveError::NoAnswer) => {
                    return Err(self.fail(host, port, rule, ConnectFailure::NoResolverAnswer));
                }
                Err(ResolveError::Forbidden) => (EgressReason::Private, Some(rule)),
            },
        };
        let rule = rule.map(ToString::to_string);
        self.control.refuse(&host.to_string(), port, reason, rule);
        Err(ReachError::Refused)
    }

    fn fail(
        &self,
        host: &Host,
        port: Option<u16>,
        rule: &Rule,
        failure: ConnectFailure,
    ) -> ReachError {
        let control = &self.control;
        control.fail(&host.to_string(), port, rule.to_string(), failure);
        ReachError::Failed(failure)
    }

    pub(crate) fn refuse(&self, host: &str, port: Option<u16>, reason: EgressReason) {
        self.control.refuse(host, port, reason, None);
    }

    /// Remembers that a secret was not filled in. `when_ns` is on the clock of the log.
    pub(crate) fn refuse_secret(
        &self,
        secret: &str,
        target: &Target,
        reason: SecretReason,
        when_ns: u64,
    ) {
        let host = target.host.to_string();
        self.control
            .withhold(secret, &host, target.port, reason, when_ns);
    }

    /// The places of connections that take more memory than others.
    pub(crate) const fn places(&self) -> &RelayPlaces {
        &self.places
    }

    /// What fills secrets in, if the sandbox has any.
    pub(crate) fn interceptor(&self) -> Option<&Arc<Interceptor>> {
        self.interceptor.as_ref()
    }

    /// The same, if this host has one.
    pub(crate) fn interceptor_for(&self, host: &Host, port: u16) -> Option<&Arc<Interceptor>> {
        self.interceptor()
            .filter(|interceptor| interceptor.secret_for(host, port).is_some())
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
