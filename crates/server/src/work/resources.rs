//! Memory, processors and disk of sandboxes, compared with the quotas of each user and of all
//! users.
//!
//! A running sandbox counts with its limits, which is what it may use. A stopped one counts with
//! the disk that its files take, if there is a disk quota. The sandboxes are read from the registry
//! each time, so the sums are correct however a sandbox ended. Starts in progress, which the
//! registry does not know yet, are kept in [`Starts`].

use super::App;
use crate::config::{ResourceLimits, ResourceQuotas};
use glovebox_agent::Placement;
use glovebox_proto::{AdvicePart, Code, Fault, Setting};
use glovebox_sandbox::{Name, SandboxSpec, SandboxState};
use glovebox_settings::Settings;
use glovebox_settings::units::{Cpus, Size};
use glovebox_spec::Limits;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Amounts that a sandbox may use. An amount without a limit is `u64::MAX`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub memory_bytes: u64,
    /// Thousandths of one processor.
    pub cpu_millis: u64,
    pub disk_bytes: u64,
}

/// Resource that a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    Memory,
    Cpu,
    Disk,
}

impl ResourceKind {
    const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Disk];

    /// Returns the name of the resource in messages.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "processors",
            Self::Disk => "disk",
        }
    }

    /// Returns the settings of a sandbox's own limit, of the quota per user, and of the quota of
    /// all users.
    const fn settings(self) -> [Setting; 3] {
        match self {
            Self::Memory => [
                Setting::Memory,
                Setting::MaxMemoryPerUser,
                Setting::MaxMemory,
            ],
            Self::Cpu => [Setting::Cpus, Setting::MaxCpusPerUser, Setting::MaxCpus],
            Self::Disk => [Setting::Disk, Setting::MaxDiskPerUser, Setting::MaxDisk],
        }
    }

    /// Formats an amount as settings show it.
    fn shown(self, amount: u64) -> String {
        if amount == u64::MAX {
            return "no limit".to_owned();
        }
        match self {
            Self::Memory | Self::Disk => Size(Some(amount)).to_string(),
            Self::Cpu => Cpus(u32::try_from(amount).ok()).to_string(),
        }
    }
}

impl Resources {
    /// Returns what a sandbox of these settings may use.
    pub(super) fn of_settings(settings: &Settings) -> Self {
        Self::of_limits(&settings.limits.to_limits(None))
    }

    fn of_spec(spec: &SandboxSpec) -> Self {
        Self::of_limits(&spec.jail.limits)
    }

    fn of_limits(limits: &Limits) -> Self {
        Self {
            memory_bytes: limits.memory_bytes.unwrap_or(u64::MAX),
            cpu_millis: limits.cpu_millis.map_or(u64::MAX, u64::from),
            disk_bytes: limits.disk_bytes.unwrap_or(u64::MAX),
        }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            disk_bytes: self.disk_bytes.saturating_add(other.disk_bytes),
        }
    }

    const fn of(self, kind: ResourceKind) -> u64 {
        match kind {
            ResourceKind::Memory => self.memory_bytes,
            ResourceKind::Cpu => self.cpu_millis,
            ResourceKind::Disk => self.disk_bytes,
        }
    }
}

impl ResourceLimits {
    const fn of(&self, kind: ResourceKind) -> Option<u64> {
        match kind {
            ResourceKind::Memory => self.memory_bytes,
            ResourceKind::Cpu => self.cpu_millis,
            ResourceKind::Disk => self.disk_bytes,
        }
    }

    /// Returns the first resource of which `amounts` exceed the limit, with that limit.
    fn exceeded_by(&self, amounts: Resources) -> Option<(ResourceKind, u64)> {
        ResourceKind::ALL.into_iter().find_map(|kind| {
            let limit = self.of(kind)?;
            (amounts.of(kind) > limit).then_some((kind, limit))
        })
    }
}

/// Quota that keeps a sandbox from starting now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// True if the quota is the user's; false if it is that of all users.
    pub is_of_user: bool,
    pub kind: ResourceKind,
    limit: u64,
}

impl Shortage {
    /// Returns the reason for people.
    pub(crate) fn text(&self) -> String {
        let whose = if self.is_of_user {
            "this user's sandboxes"
        } else {
            "all sandboxes together"
        };
        let (kind, limit) = (self.kind.as_str(), self.kind.shown(self.limit));
        format!("{whose} use the {kind} that they may have ({limit})")
    }

    fn fault(&self) -> Fault {
        let remedy = "wait until a sandbox has stopped, end one, or delete a session; /api/quotas says what is used";
        // Only the user can free a user's own quota; for that of all users, waiting is all the
        // client can do.
        let code = if self.is_of_user {
            Code::Busy
        } else {
            Code::Unavailable
        };
        Fault::failed(code, self.text()).remedy(remedy).retryable()
    }
}

/// Starts in progress by user, with what their sandboxes may use.
#[derive(Debug, Default)]
pub(super) struct Starts {
    on_their_way: Mutex<HashMap<String, Vec<Resources>>>,
    /// Bytes of the files of stopped sandboxes, and the time of the state they belong to.
    stopped_bytes: Mutex<HashMap<Name, (SystemTime, u64)>>,
}

impl Starts {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Resources>>> {
        self.on_their_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped_bytes(&self) -> MutexGuard<'_, HashMap<Name, (SystemTime, u64)>> {
        self.stopped_bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reservation of a start in progress. It is dropped when the registry knows the sandbox or the
/// start has failed.
#[derive(Debug)]
pub(super) struct StartPlace {
    starts: Arc<Starts>,
    user: String,
    need: Resources,
}

impl Drop for StartPlace {
    fn drop(&mut self) {
        let mut all = self.starts.lock();
        if let Some(needs) = all.get_mut(&self.user) {
            if let Some(at) = needs.iter().position(|need| *need == self.need) {
                needs.swap_remove(at);
            }
            if needs.is_empty() {
                all.remove(&self.user);
            }
        }
    }
}

/// Resources that sandboxes use now.
#[derive(Debug, Default)]
pub(super) struct ResourceUse {
    pub of_user: Resources,
    pub of_all: Resources,
    /// Running sandboxes of the user.
    pub running: Vec<Name>,
}

/// A sandbox that is about to start.
#[derive(Debug, Clone)]
pub(super) struct StartWish<'a> {
    pub user: &'a str,
    /// Amounts that the sandbox may use.
    pub need: Resources,
    /// Name of the sandbox if it exists already; it may even run.
    pub name: Option<&'a Name>,
    /// Maximum number of running sandboxes of the user, including this one.
    pub max_running: usize,
}

/// Reason for which a sandbox cannot start now.
#[derive(Debug)]
pub(super) enum NoPlace {
    /// The user runs the maximum number of sandboxes, which it holds.
    TooMany(usize),
    /// A quota is exhausted.
    Short(Shortage),
}

impl NoPlace {
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::TooMany(limit) => {
                let message = format!("{limit} sandboxes of this user run, and that is the most");
                let remedy = "end one, or wait until a command in one has ended; /api/quotas says what is used";
                Fault::failed(Code::TooManySandboxes, message)
                    .remedy(remedy)
                    .retryable()
            }
            Self::Short(shortage) => shortage.fault(),
        }
    }
}

impl ResourceQuotas {
    /// Returns true if there is any quota.
    pub(super) fn is_limited(&self) -> bool {
        *self != Self::default()
    }

    /// Returns true if there is a quota of disk.
    const fn is_disk_limited(&self) -> bool {
        self.in_all.disk_bytes.is_some() || self.per_user.disk_bytes.is_some()
    }

    /// Checks that sandboxes of these settings can ever start here.
    ///
    /// # Errors
    /// `too-large`, with the limit and the settings to change.
    pub fn check_settings(&self, settings: &Settings) -> Result<(), Fault> {
        self.check(Resources::of_settings(settings))
    }

    /// Checks that a sandbox can ever start here, even if no other one runs.
    ///
    /// # Errors
    /// `too-large`, with the limit and the settings to change.
    pub(crate) fn check(&self, need: Resources) -> Result<(), Fault> {
        for (limits, whose, is_of_all) in [
            (&self.per_user, "each user", false),
            (&self.in_all, "all users together", true),
        ] {
            let Some((kind, limit)) = limits.exceeded_by(need) else {
                continue;
            };
            let word = kind.as_str();
            let [own, per_user, in_all] = kind.settings();
            let quota = if is_of_all { in_all } else { per_user };
            let (needed, limit) = (kind.shown(need.of(kind)), kind.shown(limit));
            let message = format!(
                "a sandbox with {needed} of {word} never fits: the server has {limit} for {whose}"
            );
            let remedy = [
                "the operator lowers the limit of a sandbox, ".into(),
                AdvicePart::command("glovebox serve", own, None),
                ", or raises the quota, ".into(),
                AdvicePart::command("glovebox serve", quota, None),
            ];
            return Err(Fault::refused(Code::TooLarge, message).remedy(remedy));
        }
        Ok(())
    }
}

impl App {
    /// Returns what the sandbox of a session may use. An existing sandbox has limits of its own.
    pub(super) fn session_need(&self, settings: &Settings, sandbox: Option<&Name>) -> Resources {
        if self.config.placement == Placement::Local {
            return Resources::default();
        }
        let spec = sandbox.and_then(|name| self.config.registry.spec(name).ok());
        spec.map_or_else(
            || Resources::of_settings(settings),
            |spec| Resources::of_spec(&spec),
        )
    }

    /// Reserves the resources of a sandbox that is about to start. If they do not suffice, stops
    /// idle sandboxes that count against the same limit, the least recently used first.
    ///
    /// # Errors
    /// `TakeError::NoPlace` if no further idle sandbox can be stopped.
    pub(super) fn take_place(&self, wish: &StartWish<'_>) -> Result<StartPlace, TakeError> {
        let quotas = &self.config.quotas;
        loop {
            // The lock is released before an idle sandbox is stopped: that takes a while, and other
            // starts must not wait for it.
            let mut starts = self.starts.lock();
            let used = self.resources_used(wish.user, wish.name)?;
            let own = starts.get(wish.user);
            let coming = own.map_or(0, Vec::len);
            let mut of_user = used.of_user.plus(wish.need);
            let mut of_all = used.of_all.plus(wish.need);
            for need in own.into_iter().flatten() {
                of_user = of_user.plus(*need);
            }
            for need in starts.values().flatten() {
                of_all = of_all.plus(*need);
            }
            let short = |is_of_user, (kind, limit)| {
                NoPlace::Short(Shortage {
                    is_of_user,
                    kind,
                    limit,
                })
            };
            let no_place = if used.running.len() + coming >= wish.max_running {
                Some(NoPlace::TooMany(wish.max_running))
            } else if let Some(exceeded) = quotas.per_user.exceeded_by(of_user) {
                Some(short(true, exceeded))
            } else {
                let exceeded = quotas.in_all.exceeded_by(of_all);
                exceeded.map(|exceeded| short(false, exceeded))
            };
            let Some(no_place) = no_place else {
                let needs = starts.entry(wish.user.to_owned()).or_default();
                needs.push(wish.need);
                return Ok(StartPlace {
                    starts: Arc::clone(&self.starts),
                    user: wish.user.to_owned(),
                    need: wish.need,
                });
            };
            drop(starts);
            let is_of_user = !matches!(&no_place, NoPlace::Short(short) if !short.is_of_user);
            let may_stop = |name: &Name| {
                wish.name != Some(name) && (!is_of_user || used.running.contains(name))
            };
            if !self.stop_one_idle(may_stop) {
                return Err(TakeError::NoPlace(no_place));
            }
        }
    }

    /// Returns what the sandboxes of `user`, and of all users, use now, without `left_out`. The
    /// files of stopped sandboxes are measured only if there is a disk quota.
    pub(super) fn resources_used(
        &self,
        user: &str,
        left_out: Option<&Name>,
    ) -> Result<ResourceUse, Fault> {
        let mut used = ResourceUse::default();
        let is_limited = self.config.quotas.is_limited();
        let is_disk_limited = self.config.quotas.is_disk_limited();
        let registry = &self.config.registry;
        for (name, owned) in self.owners.sandboxes()? {
            let is_own = owned.user == user;
            let Ok(name) = Name::parse(&name) else {
                continue;
            };
            if left_out == Some(&name) || !(is_own || is_limited) {
                continue;
            }
            let Some(entry) = registry.entry(&name)? else {
                continue;
            };
            let is_running = matches!(entry.state, SandboxState::Starting | SandboxState::Ready);
            if !is_running && !is_disk_limited {
                continue;
            }
            let amounts = if is_running {
                // A sandbox that is just being removed has no spec and counts as nothing.
                registry
                    .spec(&name)
                    .map_or_else(|_| Resources::default(), |spec| Resources::of_spec(&spec))
            } else {
                Resources {
                    disk_bytes: self.stopped_disk_bytes(&name),
                    ..Resources::default()
                }
            };
            used.of_all = used.of_all.plus(amounts);
            if is_own {
                used.of_user = used.of_user.plus(amounts);
                if is_running {
                    used.running.push(name);
                }
            }
        }
        Ok(used)
    }

    /// Returns the bytes of the files of a stopped sandbox. The size is cached until the sandbox
    /// changes its state.
    fn stopped_disk_bytes(&self, name: &Name) -> u64 {
        let registry = &self.config.registry;
        let since = registry.changed_at(name).ok().flatten();
        let known = self.starts.stopped_bytes().get(name).copied();
        if let (Some(since), Some((at, bytes))) = (since, known)
            && since == at
        {
            return bytes;
        }
        let bytes = registry.disk_bytes(name).ok().flatten().unwrap_or(0);
        if let Some(since) = since {
            let known = (since, bytes);
            self.starts.stopped_bytes().insert(name.clone(), known);
        }
        bytes
    }

    /// Removes the cached size of a sandbox that was removed.
    pub(super) fn forget_disk_bytes(&self, name: &Name) {
        self.starts.stopped_bytes().remove(name);
    }
}

/// Error of reserving a place.
#[derive(Debug)]
pub(super) enum TakeError {
    NoPlace(NoPlace),
    Fault(Fault),
}

impl From<Fault> for TakeError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl TakeError {
    pub(super) fn into_fault(self) -> Fault {
        match self {
            Self::NoPlace(no_place) => no_place.fault(),
            Self::Fault(fault) => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEED: Resources = Resources {
        memory_bytes: 512 << 20,
        cpu_millis: 1500,
        disk_bytes: u64::MAX,
    };

    #[test]
    fn what_never_fits_is_told_with_the_limit_and_the_flag() {
        let mut quotas = ResourceQuotas::default();
        quotas.check(NEED).unwrap();
        quotas.per_user.memory_bytes = Some(512 << 20);
        quotas.in_all.cpu_millis = Some(1500);
        quotas.check(NEED).unwrap();
        quotas.in_all.cpu_millis = Some(1000);
        let refused = quotas.check(NEED).unwrap_err();
        assert_eq!(
            refused.message,
            "a sandbox with 1.5 of processors never fits: the server has 1 for all users together"
        );
        quotas.per_user.disk_bytes = Some(1 << 30);
        let refused = quotas.check(NEED).unwrap_err();
        assert_eq!(
            refused.message,
            "a sandbox with no limit of disk never fits: the server has 1GiB for each user"
        );
        let remedy = refused.remedy.unwrap().to_string();
        assert!(remedy.contains("--max-disk-per-user"), "{remedy}");
    }

    #[test]
    fn amounts_that_nothing_limits_stay_so() {
        let sum = NEED.plus(NEED);
        assert_eq!((sum.memory_bytes, sum.disk_bytes), (1 << 30, u64::MAX));
    }
}
