//! What all parts of a proxy share: the policy, what stands for what, what was looked up, what was refused.

use crate::name::{Host, Name};
use crate::policy::Policy;
use crate::refusals::Refusals;
use crate::resolve::{Resolve, ResolveError, Resolver};
use crate::stand_in::StandIns;
use glovebox_proto::{Denial, EgressReason};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What all parts of a proxy share.
#[derive(Debug)]
pub(crate) struct ProxyState {
    policy: Policy,
    resolver: Resolver,
    stand_ins: Mutex<StandIns>,
    refusals: Refusals,
}

impl ProxyState {
    pub(crate) fn new(policy: Policy, resolve: Arc<dyn Resolve>, first_address: Ipv4Addr) -> Self {
        Self {
            policy,
            resolver: Resolver::new(resolve),
            stand_ins: Mutex::new(StandIns::new(first_address)),
            refusals: Refusals::default(),
        }
    }

    /// The addresses that may be dialled for a name, on this port or on any that is listed for it. What may not be
    /// reached is remembered as refused.
    pub(crate) async fn reach(&self, name: &Name, port: Option<u16>) -> Option<Vec<IpAddr>> {
        let host = Host::Name(name.clone());
        let decision = match port {
            Some(port) => self.policy.decide(&host, port),
            None => self.policy.decide_host(&host),
        };
        let reason = match decision {
            Err(reason) => reason,
            Ok(rule) => match self.resolver.targets(&host, rule).await {
                Ok(addresses) => return Some(addresses),
                Err(ResolveError::Unknown) => return None,
                Err(ResolveError::Forbidden) => EgressReason::Private,
            },
        };
        self.refuse(name.as_str(), port, reason);
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

    /// The name that a connection to this address is meant for.
    pub(crate) fn name_of(&self, address: Ipv4Addr) -> Option<Name> {
        self.stand_ins().name_of(address).cloned()
    }

    fn stand_ins(&self) -> MutexGuard<'_, StandIns> {
        self.stand_ins
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
