//! Addresses of the service on which sandboxes are: which of them answer, and whose sandboxes each has.
//!
//! An address that is a machine for itself serves one user, so that nobody's files lie beside those of others.

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

/// Most time until an address has answered.
const PROBE_WAIT: Duration = Duration::from_secs(3);
/// How long an answer holds.
const FRESH: Duration = Duration::from_secs(10);
/// Failures in a row after which an address counts as down.
const DOWN_AFTER: u32 = 3;
/// Pause after the first failure, doubled with each further one up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The addresses of a server.
#[derive(Debug)]
pub(super) struct Addresses {
    all: Vec<Address>,
    /// Whether all sandboxes of an address share one machine.
    is_shared: bool,
    /// Held while addresses are asked.
    turn: Mutex<()>,
}

/// One address.
#[derive(Debug)]
struct Address {
    /// None: the one that the backend has by itself.
    url: Option<String>,
    /// What is needed to ask it.
    spec: SandboxSpec,
    state: Mutex<AddressState>,
}

/// What is known of an address.
#[derive(Debug, Default)]
struct AddressState {
    /// Failures since it last answered.
    failures: u32,
    /// The last of them.
    problem: String,
    /// When it was asked last.
    asked: Option<Instant>,
    facts: Option<ServiceFacts>,
}

impl AddressState {
    const fn is_up(&self) -> bool {
        self.failures < DOWN_AFTER
    }

    /// Time until it is to be asked again.
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

    /// Its name for people and in metrics. An address holds no credential.
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
    /// The addresses that the server is told. None where sandboxes are on this machine, and where each has an address of
    /// its own.
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

    /// Forgets users of addresses that the server is not told any more.
    pub(super) fn keep_bindings(&self, owners: &Owners) -> Result<(), Fault> {
        let urls: Vec<&str> = self
            .all
            .iter()
            .filter_map(|one| one.url.as_deref())
            .collect();
        owners.keep_addresses(&urls)
    }

    /// Asks every address for the first time.
    ///
    /// # Errors
    /// Why one of them cannot have sandboxes.
    fn begin(&self, registry: &Registry) -> Result<(), Fault> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        probe_all(&self.all.iter().collect::<Vec<_>>(), registry)
    }

    /// Asks what is due and tells how they are.
    fn check(&self, registry: &Registry, metrics: &Metrics) -> (bool, String) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |one: &&Address| one.state().due_in().is_zero();
        let due: Vec<&Address> = self.all.iter().filter(is_due).collect();
        // Each keeps its own failure.
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

    /// Time until one is to be asked again, where one does not work.
    fn next_look(&self) -> Option<Duration> {
        let failing = self.all.iter().filter(|one| one.state().failures > 0);
        failing.map(|one| one.state().due_in()).min()
    }

    /// Facts of the first address that answers.
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

    /// The address for a new sandbox of a user. None: the one that the backend has by itself.
    ///
    /// # Errors
    /// `too-many-sandboxes` where each address has another user.
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

/// Asks these addresses at once. Returns the first failure.
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
        // All are waited for.
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
    /// Gives the settings of a new sandbox the address that the user's sandboxes have.
    ///
    /// # Errors
    /// `too-many-sandboxes` where there is none for another user.
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

    /// Returns true where sandboxes are at addresses that are asked.
    pub(crate) const fn has_addresses(&self) -> bool {
        self.addresses.is_some()
    }

    /// Asks every address at the start of the server. None where sandboxes are tried instead.
    pub(super) fn begin_addresses(&self) -> Option<Result<SandboxFacts, Error>> {
        let addresses = self.addresses.as_ref()?;
        let begun = addresses.begin(&self.config.registry);
        let facts = |()| addresses.facts().unwrap_or_default();
        Some(begun.map(facts).map_err(Error::from))
    }

    /// What addresses say about themselves, asked anew where that is due. None as above.
    pub(super) fn capture_addresses(&self) -> Option<Result<SandboxFacts, String>> {
        let addresses = self.addresses.as_ref()?;
        addresses.check(&self.config.registry, &self.metrics);
        Some(addresses.facts())
    }

    /// How the addresses are, as a component of health. None as above.
    pub(super) fn check_addresses(&self, name: &'static str) -> Option<ComponentHealth> {
        let addresses = self.addresses.as_ref()?;
        let (is_ready, detail) = addresses.check(&self.config.registry, &self.metrics);
        Some(ComponentHealth {
            name,
            is_ready,
            detail,
        })
    }

    /// Time until an address that does not work is to be asked again.
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
