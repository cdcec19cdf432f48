//! What all parts of a proxy share: the rules, what stands for what, what was looked up.

use crate::ConnectFailure;
use crate::memory::RelayPlaces;
use crate::outward::resolve::{Resolve, ResolveError, Resolver, kind_from_here};
use crate::outward::target::{Route, Target};
use crate::outward::upstream::Upstream;
use crate::policy::address::{AddressKind, kind};
use crate::policy::name::{Host, Name};
use crate::policy::rule::{Reach, Rule};
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
    /// The machine's own proxies, if it has any.
    upstream: Option<Arc<Upstream>>,
    places: RelayPlaces,
}

impl ProxyState {
    pub(crate) fn new(
        control: Arc<Control>,
        resolve: Arc<dyn Resolve>,
        first_address: Ipv4Addr,
        proxy: SocketAddrV4,
        interceptor: Option<Interceptor>,
        upstream: Option<Upstream>,
    ) -> Self {
        Self {
            control,
            resolver: Resolver::new(resolve),
            stand_ins: Mutex::new(StandIns::new(first_address)),
            proxy,
            interceptor: interceptor.map(Arc::new),
            upstream: upstream.map(Arc::new),
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
        let route = self.reach(&host, Some(port)).await?;
        let meter = Meter::begin(&self.control, &host, port).ok_or(ReachError::Refused)?;
        Ok(Target {
            host,
            port,
            route,
            meter,
        })
    }

    /// How a host is reached, on this port or on any that is listed for it. What may not or cannot be reached is
    /// remembered.
    pub(crate) async fn reach(&self, host: &Host, port: Option<u16>) -> Result<Route, ReachError> {
        let policy = self.control.policy.in_force();
        let decision = match port {
            Some(port) => policy.decide(host, port),
            None => policy.decide_host(host),
        };
        let (reason, rule) = match decision {
            Err(reason) => (reason, policy.closing_rule(host, port)),
            Ok(rule) => match self.find_route(host, port, rule).await {
                Ok(route) => return Ok(route),
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

    /// How a host is reached that `rule` opens, on this port or on any. The machine's proxy is for names that lead to
    /// public addresses, and for those that this machine does not know; what else may be reached is near, and dialled.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub(crate) async fn find_route(
        &self,
        host: &Host,
        port: Option<u16>,
        rule: &Rule,
    ) -> Result<Route, ResolveError> {
        let is_pinned = matches!(rule.reach(), Reach::Pinned(_));
        let upstream = self.upstream.as_ref();
        let upstream =
            upstream.filter(|upstream| !is_pinned && upstream.proxies().covers(host, port));
        let Some(upstream) = upstream else {
            return Ok(Route {
                addresses: self.resolver.targets(host, rule).await?,
                upstream: None,
            });
        };
        let is_public = |address: &IpAddr| kind_from_here(*address) == AddressKind::Public;
        let (addresses, is_proxied) = match self.resolver.targets_beside_proxy(host, rule).await {
            Ok(addresses) => {
                let is_proxied = addresses.iter().any(is_public);
                (addresses, is_proxied)
            }
            Err(ResolveError::Unknown | ResolveError::NoAnswer) => (Vec::new(), true),
            Err(ResolveError::Forbidden) => return Err(ResolveError::Forbidden),
        };
        Ok(Route {
            addresses,
            upstream: is_proxied.then(|| Arc::clone(upstream)),
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outward::machine_proxy::MachineProxy;
    use crate::policy::Policy;
    use crate::record::limits::TrafficLimits;
    use std::io;

    /// Knows some names.
    #[derive(Debug)]
    struct SomeNames;

    impl Resolve for SomeNames {
        fn addresses(&self, name: &Name) -> io::Result<Vec<IpAddr>> {
            let address = match name.as_str() {
                "private.example" | "open.example" | "localhost" => "10.0.0.1",
                "public.example" => "1.1.1.1",
                "metadata.example" => "169.254.169.254",
                _ => return Err(io::ErrorKind::NotFound.into()),
            };
            Ok(vec![address.parse().unwrap()])
        }
    }

    /// True if a host is reached through the machine's proxy, which has this variable; the reason if it is not reached.
    fn is_proxied(variable: &str, host: &str, port: u16) -> Result<bool, ReachError> {
        let rules = [
            "*.example",
            "open.example=private",
            "pinned.example=10.0.0.2",
            "unknown.example:8080",
            "1.1.1.1",
            "10.0.0.3",
            "localhost:80",
            "metadata.google.internal",
        ];
        let policy = Policy::new(&rules, &[]).unwrap();
        let find = |name: &str| (name == variable).then(|| "http://127.0.0.1:3128".to_owned());
        let proxies = MachineProxy::from_variables(find).0.unwrap();
        let state = ProxyState::new(
            Arc::new(Control::new(policy, TrafficLimits::default())),
            Arc::new(SomeNames),
            Ipv4Addr::new(198, 18, 0, 1),
            SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1),
            None,
            Some(Upstream::new(proxies, b"").unwrap()),
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let host = Host::parse(host).unwrap();
        let route = runtime.block_on(state.reach(&host, Some(port)))?;
        assert!(route.upstream.is_some() || !route.addresses.is_empty());
        Ok(route.upstream.is_some())
    }

    #[test]
    fn the_proxy_of_the_machine_is_for_public_and_unknown_names() {
        let unknown = Err(ReachError::Failed(ConnectFailure::UnknownName));
        for (host, port, outcome) in [
            ("public.example", 443, Ok(true)),
            ("unknown.example", 443, Ok(true)),
            ("unknown.example", 80, Ok(true)),
            ("unknown.example", 8080, Ok(true)),
            ("1.1.1.1", 443, Ok(true)),
            // What this machine knows as private is judged as without a proxy.
            ("private.example", 443, Err(ReachError::Refused)),
            ("metadata.example", 443, Err(ReachError::Refused)),
            ("open.example", 443, Ok(false)),
            ("pinned.example", 443, Ok(false)),
            ("10.0.0.3", 443, Ok(false)),
            ("localhost", 80, Err(ReachError::Refused)),
            ("metadata.google.internal", 80, unknown),
            ("unlisted.test", 443, Err(ReachError::Refused)),
        ] {
            assert_eq!(
                is_proxied("all_proxy", host, port),
                outcome,
                "{host}:{port}"
            );
        }
        // Without a proxy for TLS only HTTP in the open has a way to a name that the machine does not know.
        assert_eq!(is_proxied("http_proxy", "unknown.example", 80), Ok(true));
        assert_eq!(is_proxied("http_proxy", "unknown.example", 443), unknown);
        assert_eq!(is_proxied("https_proxy", "unknown.example", 80), unknown);
    }
}
