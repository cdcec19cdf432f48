//! State that all parts of a proxy share: rules, stand-in addresses, resolved names.

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

/// Error of reaching a host. It is already in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReachError {
    /// The policy or a limit refuses it.
    Refused,
    /// The policy allows it, but it cannot be reached.
    Failed(ConnectFailure),
}

/// State that all parts of a proxy share.
#[derive(Debug)]
pub(crate) struct ProxyState {
    control: Arc<Control>,
    resolver: Resolver,
    stand_ins: Mutex<StandIns>,
    /// Address of the HTTP and SOCKS proxy for programs with proxy settings.
    proxy: SocketAddrV4,
    interceptor: Option<Arc<Interceptor>>,
    /// The machine's own proxies, if there are any.
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

    /// Returns the rules, the log and the accounts.
    pub(crate) const fn control(&self) -> &Arc<Control> {
        &self.control
    }

    pub(crate) const fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Returns the address of the HTTP and SOCKS proxy for programs with proxy settings.
    pub(crate) const fn proxy(&self) -> SocketAddrV4 {
        self.proxy
    }

    /// Decides about a connection that a program requests, and returns its target with a meter that
    /// has begun to count. `host` is `None` if the requested text, `shown`, cannot be parsed
    /// unambiguously. An address of the sandbox is replaced by the host that it stands for.
    pub(crate) async fn target(
        &self,
        host: Option<Host>,
        shown: &str,
        port: u16,
    ) -> Result<Target, ReachError> {
        let host = match host {
            // A program that resolves names itself asks the proxy for the stand-in address that DNS
            // gave it.
            Some(Host::Address(IpAddr::V4(address))) => self.host_at(address),
            host => host,
        };
        let Some(host) = host.filter(|host| port != 0 && is_possible(host)) else {
            self.refuse(shown, Some(port), EgressReason::Never);
            return Err(ReachError::Refused);
        };
        let route = self.reach(&host, Some(port)).await?;
        // The meter comes after the decision, because it records the connection as allowed.
        let meter = Meter::begin(&self.control, &host, port).ok_or(ReachError::Refused)?;
        Ok(Target {
            host,
            port,
            route,
            meter,
        })
    }

    /// Returns the route to a host for `port`, or for any allowed port if `None`. A refusal or
    /// failure is written to the log.
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

    /// Returns the route to a host that `rule` allows, for `port` or for any port. The machine's
    /// proxy is used for names that lead to public addresses and for names that this machine cannot
    /// resolve. Any other host is dialled directly.
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

    /// Records that a secret was not filled in. `when_ns` is a time of `CLOCK_MONOTONIC` in
    /// nanoseconds, as in the log.
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

    /// Returns the permits of connections that need more memory than others.
    pub(crate) const fn places(&self) -> &RelayPlaces {
        &self.places
    }

    /// Returns the interceptor. `None` if the sandbox has no secrets.
    pub(crate) fn interceptor(&self) -> Option<&Arc<Interceptor>> {
        self.interceptor.as_ref()
    }

    /// Returns the interceptor if this host has a secret.
    pub(crate) fn interceptor_for(&self, host: &Host, port: u16) -> Option<&Arc<Interceptor>> {
        self.interceptor()
            .filter(|interceptor| interceptor.secret_for(host, port).is_some())
    }

    pub(crate) fn stand_in(&self, name: &Name) -> Option<Ipv4Addr> {
        self.stand_ins().address_of(name)
    }

    /// Returns the host that an address of the sandbox stands for: the name of a stand-in address,
    /// or the address itself if it does not belong to every sandbox. `None` for an address that
    /// stands for no host.
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

/// Returns false for addresses that no rule can open.
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
