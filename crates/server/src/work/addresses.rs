//! Addresses of the remote service that runs sandboxes: their health, and the user bound to each.
//!
//! If all sandboxes of an address share one machine, the address serves one user only, so that no
//! user's files lie beside those of another.

use super::App;
use super::health::ComponentHealth;
use crate::config::ServerConfig;
use crate::metrics::Metrics;
use crate::store::Owners;
use glovebox_agent::{Placement, Program, SystemFacts, plain_fact};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::backend::ServiceFacts;
use glovebox_sandbox::{BASE_URL_OPTION, NAME_IN_URL, Place, Registry, SandboxSpec};
use glovebox_session::Error;
use glovebox_session::spec::resolve_service;
use glovebox_session::work::SandboxFacts;
use glovebox_settings::Settings;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Maximum time for an address to answer a probe.
const PROBE_WAIT: Duration = Duration::from_secs(3);
/// Time for which a successful probe is valid.
const FRESH: Duration = Duration::from_secs(10);
/// Consecutive failures after which an address counts as down.
const DOWN_AFTER: u32 = 3;
/// Pause after the first failure; each further failure doubles it, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The service addresses that a server is configured with.
#[derive(Debug)]
pub(super) struct Addresses {
    all: Vec<Address>,
    /// True if all sandboxes of an address share one machine.
    is_shared: bool,
    /// Held while addresses are probed.
    turn: Mutex<()>,
}

/// A service address and its health.
#[derive(Debug)]
struct Address {
    /// URL of the service. None if the backend's own default is used.
    url: Option<String>,
    /// Specification with which the address is probed.
    spec: SandboxSpec,
    state: Mutex<AddressState>,
}

/// Result of the probes of an address.
#[derive(Debug, Default)]
struct AddressState {
    /// Consecutive failures since the last answer.
    failures: u32,
    /// Message of the last failure. Empty if there was none.
    problem: String,
    /// Time of the last probe. None before the first.
    asked: Option<Instant>,
    facts: Option<ServiceFacts>,
}

impl AddressState {
    const fn is_up(&self) -> bool {
        self.failures < DOWN_AFTER
    }

    /// Returns the time until the next probe is due; zero if it is due now.
    fn due_in(&self) -> Duration {
        let Some(asked) = self.asked else {
            return Duration::ZERO;
        };
        let pause = match self.failures {
            0 => FRESH,
            failures => FIRST_PAUSE
                .saturating_mul(1 << (failures - 1).min(16))
                .min(LONGEST_PAUSE),
        };
        pause.saturating_sub(asked.elapsed())
    }

    const fn word(&self) -> &'static str {
        match self.failures {
            0 => "ready",
            failures if failures < DOWN_AFTER => "degraded",
            _ => "down",
        }
    }
}

impl Address {
    fn state(&self) -> MutexGuard<'_, AddressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the address in messages and metrics. An address holds no credential.
    fn place(&self) -> &str {
        self.url.as_deref().unwrap_or(self.spec.backend.as_str())
    }

    fn probe(&self, registry: &Registry) -> Result<(), Fault> {
        let answer = registry.probe_service(&self.spec, PROBE_WAIT);
        let mut state = self.state();
        let before = state.word();
        state.asked = Some(Instant::now());
        let done = match answer {
            Ok(facts) => {
                state.failures = 0;
                state.facts = Some(facts);
                Ok(())
            }
            Err(fault) => {
                state.failures = state.failures.saturating_add(1);
                state.problem.clone_from(&fault.message);
                Err(fault)
            }
        };
        let (place, now) = (self.place(), state.word());
        match (before, now) {
            (before, now) if before == now => {}
            (_, "ready") => info!(place, "an address of the service works again"),
            _ => warn!(
                place,
                state = now,
                problem = state.problem,
                "an address of the service does not work"
            ),
        }
        done
    }
}

impl Addresses {
    /// Reads the addresses from the configuration. Returns None if sandboxes run on this machine,
    /// if the backend has no credential, or if each sandbox has an address of its own.
    ///
    /// # Errors
    /// Fails if a per-sandbox address is not the only one, or if a pool is configured for addresses
    /// that serve one user each.
    pub(super) fn open(config: &ServerConfig) -> Result<Option<Self>, Error> {
        let capabilities = config.settings.backend.value.capabilities();
        if config.placement == Placement::Local
            || capabilities.place != Place::Elsewhere
            || config.settings.backend.value.credential().is_none()
        {
            return Ok(None);
        }
        let spec = resolve_service(&config.settings, &config.host)?;
        let words = spec.option(BASE_URL_OPTION).first().cloned();
        let words = words.unwrap_or_default();
        let urls: Vec<&str> = words.split_whitespace().collect();
        if urls.iter().any(|url| url.contains(NAME_IN_URL)) {
            return match urls.as_slice() {
                [_] => Ok(None),
                _ => Err(Error::usage(
                    format!(
                        "an address with {NAME_IN_URL} is one for every sandbox, and stands alone"
                    ),
                    "name that one, or several without it",
                )),
            };
        }
        let is_shared = capabilities.shares_machine;
        // A warm sandbox has no user, but the address that it occupies would have to be bound to
        // one.
        if is_shared && config.pool > 0 {
            return Err(Error::usage(
                "each address is for one user, and a sandbox that is started ahead is for nobody yet",
                "leave the pool out",
            ));
        }
        let address = |url: Option<&str>| {
            let mut spec = spec.clone();
            if let Some(url) = url {
                let value = vec![url.to_owned()];
                spec.options.insert(BASE_URL_OPTION.to_owned(), value);
            }
            Address {
                url: url.map(ToOwned::to_owned),
                spec,
                state: Mutex::default(),
            }
        };
        let mut seen = BTreeSet::new();
        let mut all: Vec<Address> = urls
            .into_iter()
            .filter(|url| seen.insert(*url))
            .map(|url| address(Some(url)))
            .collect();
        if all.is_empty() {
            all.push(address(None));
        }
        Ok(Some(Self {
            all,
            is_shared,
            turn: Mutex::default(),
        }))
    }

    /// Removes the bindings of users to addresses that are no longer configured.
    pub(super) fn keep_bindings(&self, owners: &Owners) -> Result<(), Fault> {
        let urls: Vec<&str> = self
            .all
            .iter()
            .filter_map(|one| one.url.as_deref())
            .collect();
        owners.keep_addresses(&urls)
    }

    /// Probes every address for the first time.
    ///
    /// # Errors
    /// Returns the first failure if one of the addresses cannot run sandboxes.
    fn begin(&self, registry: &Registry) -> Result<(), Fault> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        probe_all(&self.all.iter().collect::<Vec<_>>(), registry)
    }

    /// Probes the addresses that are due. Returns true if at least one is up, with a text about all
    /// of them.
    fn check(&self, registry: &Registry, metrics: &Metrics) -> (bool, String) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: concurrent health requests would probe each due address several times.
        let is_due = |one: &&Address| one.state().due_in().is_zero();
        let due: Vec<&Address> = self.all.iter().filter(is_due).collect();
        // Each address keeps its own failure, which the loop below reads.
        let _ = probe_all(&due, registry);
        let mut up = 0;
        let mut problems = Vec::new();
        for address in &self.all {
            let state = address.state();
            metrics.backend_checked(
                address.spec.backend.as_str(),
                address.place(),
                state.is_up(),
            );
            up += usize::from(state.is_up());
            if state.failures > 0 {
                let (place, word) = (address.place(), state.word());
                problems.push(format!("{place} is {word}: {}", state.problem));
            }
        }
        let count = self.all.len();
        let mut detail = format!("{up} of {count} addresses of the service answer");
        for problem in problems {
            detail = format!("{detail}; {problem}");
        }
        (up > 0, detail)
    }

    /// Returns the time until the next probe of a failing address. None if all addresses work.
    fn next_look(&self) -> Option<Duration> {
        let failing = self.all.iter().filter(|one| one.state().failures > 0);
        failing.map(|one| one.state().due_in()).min()
    }

    /// Returns the facts of the first address that answers, or the message of the last failure.
    fn facts(&self) -> Result<SandboxFacts, String> {
        let mut problem = "the service was not looked at yet".to_owned();
        for address in &self.all {
            let state = address.state();
            match &state.facts {
                Some(facts) if state.failures == 0 => return Ok(sandbox_facts(facts)),
                _ => problem.clone_from(&state.problem),
            }
        }
        Err(problem)
    }

    /// Chooses the address for a new sandbox of a user. None stands for the backend's own default.
    ///
    /// # Errors
    /// `too-many-sandboxes` if every address is bound to another user.
    fn choose(&self, owners: &Owners, user: &str) -> Result<Option<String>, Fault> {
        let is_up = |one: &&Address| one.state().is_up();
        if !self.is_shared {
            let first = self.all.iter().find(is_up).or_else(|| self.all.first());
            return Ok(first.and_then(|one| one.url.clone()));
        }
        let up = self.all.iter().filter(is_up);
        let up: Vec<&str> = up.filter_map(|one| one.url.as_deref()).collect();
        if let Some(bound) = owners.bind_address(user, &up)? {
            return Ok(Some(bound));
        }
        Err(Fault::refused(
            Code::TooManySandboxes,
            "each address of the service has another user, and the sandboxes of an address share one machine",
        )
        .remedy(format!(
            "the operator gives `glovebox serve` one more `{BASE_URL_OPTION}`, or one with {NAME_IN_URL} for an address of \
             each sandbox"
        )))
    }
}

/// Probes these addresses in parallel and waits for all of them. Returns the first failure.
fn probe_all(addresses: &[&Address], registry: &Registry) -> Result<(), Fault> {
    std::thread::scope(|scope| {
        let probes: Vec<_> = addresses
            .iter()
            .map(|address| scope.spawn(|| address.probe(registry)))
            .collect();
        let ended = probes.into_iter().map(|probe| {
            probe
                .join()
                .unwrap_or_else(|_| Err(Fault::failed(Code::Internal, "a probe has panicked")))
        });
        // Collect into a Vec first: collecting into a Result stops at the first failure, before the
        // other probes are joined.
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

// TRUST: a service says anything about itself; each fact is cut to one line of plain characters.
fn sandbox_facts(facts: &ServiceFacts) -> SandboxFacts {
    SandboxFacts {
        system: SystemFacts {
            os: plain_fact(&facts.os),
            arch: plain_fact(&facts.arch),
            ..SystemFacts::default()
        },
        directory: plain_fact(&facts.home),
        programs: facts
            .version
            .iter()
            .map(|version| Program {
                name: "service".to_owned(),
                version: plain_fact(version),
            })
            .collect(),
    }
}

impl App {
    /// Sets the address in the settings of a new sandbox to the one for this user.
    ///
    /// # Errors
    /// `too-many-sandboxes` if every address is bound to another user.
    pub(super) fn lay_address(&self, settings: &mut Settings, user: &str) -> Result<(), Fault> {
        let Some(addresses) = &self.addresses else {
            return Ok(());
        };
        let url = addresses.choose(&self.owners, user)?;
        if let (Some(url), Some(given)) = (url, settings.backend_options.get_mut(BASE_URL_OPTION)) {
            given.value = url;
        }
        Ok(())
    }

    /// Returns true if the server probes service addresses.
    pub(crate) const fn has_addresses(&self) -> bool {
        self.addresses.is_some()
    }

    /// Probes every address when the server starts. Returns None if the server has no addresses and
    /// tries a sandbox instead.
    pub(super) fn begin_addresses(&self) -> Option<Result<SandboxFacts, Error>> {
        let addresses = self.addresses.as_ref()?;
        let begun = addresses.begin(&self.config.registry);
        let facts = |()| addresses.facts().unwrap_or_default();
        Some(begun.map(facts).map_err(Error::from))
    }

    /// Returns the facts of the addresses, after probing those that are due. None as in
    /// `begin_addresses`.
    pub(super) fn capture_addresses(&self) -> Option<Result<SandboxFacts, String>> {
        let addresses = self.addresses.as_ref()?;
        addresses.check(&self.config.registry, &self.metrics);
        Some(addresses.facts())
    }

    /// Returns the health of the addresses as a component. None as in `begin_addresses`.
    pub(super) fn check_addresses(&self, name: &'static str) -> Option<ComponentHealth> {
        let addresses = self.addresses.as_ref()?;
        let (is_ready, detail) = addresses.check(&self.config.registry, &self.metrics);
        Some(ComponentHealth {
            name,
            is_ready,
            detail,
        })
    }

    /// Returns the time until the next probe of a failing address. None if all addresses work or
    /// there are none.
    pub(super) fn next_address_look(&self) -> Option<Duration> {
        self.addresses.as_ref()?.next_look()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_three_failures_are_down() {
        let state = |failures| AddressState {
            failures,
            asked: Some(Instant::now()),
            ..AddressState::default()
        };
        assert_eq!(AddressState::default().due_in(), Duration::ZERO);
        let about = |failures: u32, seconds: u64| {
            let due = state(failures).due_in();
            due <= Duration::from_secs(seconds) && due > Duration::from_secs(seconds - 1)
        };
        for (failures, seconds) in [(0, 10), (1, 1), (2, 2), (3, 4), (6, 30), (60, 30)] {
            assert!(about(failures, seconds), "{failures}");
        }
        let words = [0, 1, 2, 3].map(|failures| state(failures).word());
        assert_eq!(words, ["ready", "degraded", "degraded", "down"]);
        assert!(state(2).is_up() && !state(3).is_up());
    }
}
