//! Pool of sandboxes for the engine `quickjs`: one for each tenant that has called recently, and
//! one in reserve. They contain only the program that runs tools, so that all are alike. A sandbox
//! that a tenant has used is never given to another tenant.

use glovebox_js::tool_call::TOOL_MODE;
use glovebox_proto::{Background, Exec, Fault, LogCaps, Stdin, WriteMode};
use glovebox_sandbox::{Backend, Registry, SCRIPTS, Sandbox, SandboxSpec};
use glovebox_spec::{Layers, Limits, Net, ProcMode};
use serde_bytes::ByteBuf;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum number of tenants with a sandbox. Beyond it the least recently used sandbox is removed.
const MAX_KEPT: usize = 32;
/// Time after which the sandbox of an inactive tenant is removed.
const IDLE: Duration = Duration::from_mins(5);
/// Name prefix of the program that the guest holds; the digest of the program follows.
const PROGRAM: &str = "/glovebox-js/";
/// Memory limit of all calls of one tenant together, in bytes.
const MEMORY_BYTES: u64 = 1 << 30;
/// Limit on the processes of all calls of one tenant together, including their supervisors.
const PIDS: u32 = 256;
/// Disk limit, in bytes. Calls write no files.
const DISK_BYTES: u64 = 16 << 20;
/// Limits of the guest's log of a call: nothing is kept, because output is read as it arrives.
pub(crate) const LOG: LogCaps = LogCaps {
    head_bytes: 0,
    tail_bytes: 0,
    spill_bytes: 0,
};

/// Sandboxes of one registry.
#[derive(Debug)]
pub(crate) struct Pool {
    registry: Arc<Registry>,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    kept: HashMap<String, KeptSandbox>,
    reserve: Option<Sandbox>,
    refill: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct KeptSandbox {
    sandbox: Arc<Sandbox>,
    used: Instant,
}

impl Pool {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        // A poisoned lock is safe to use: every change of the state is a single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the reserve sandbox if there is none, so that the next new tenant need not wait.
    ///
    /// # Errors
    /// The [`Fault`] of creating a sandbox.
    pub(crate) fn prepare(&self) -> Result<(), Fault> {
        if self.state().reserve.is_some() {
            return Ok(());
        }
        let made = self.create()?;
        self.state().reserve.get_or_insert(made);
        Ok(())
    }

    /// Returns the sandbox of a tenant. Takes the reserve or creates one if it has none.
    ///
    /// # Errors
    /// The [`Fault`] of creating a sandbox.
    pub(crate) fn sandbox(self: &Arc<Self>, tenant: &str) -> Result<Arc<Sandbox>, Fault> {
        let now = Instant::now();
        let (reserve, ended) = {
            let mut state = self.state();
            let ended = drop_idle(&mut state, now);
            if let Some(kept) = state.kept.get_mut(tenant) {
                kept.used = now;
                return Ok(Arc::clone(&kept.sandbox));
            }
            (state.reserve.take(), ended)
        };
        // Ending a sandbox takes time, so it is done without the lock.
        drop(ended);
        let sandbox = Arc::new(match reserve {
            Some(sandbox) => sandbox,
            None => self.create()?,
        });
        let kept = {
            let mut state = self.state();
            // A concurrent call of the tenant may have added a sandbox.
            let kept = state
                .kept
                .entry(tenant.to_owned())
                .or_insert(KeptSandbox { sandbox, used: now });
            Arc::clone(&kept.sandbox)
        };
        self.refill();
        Ok(kept)
    }

    /// Removes a sandbox that is out of order. Calls that are running in it end with it.
    pub(crate) fn discard(&self, tenant: &str, sandbox: &Arc<Sandbox>) {
        let mut state = self.state();
        let is_same = state
            .kept
            .get(tenant)
            .is_some_and(|kept| Arc::ptr_eq(&kept.sandbox, sandbox));
        let dropped = is_same.then(|| state.kept.remove(tenant)).flatten();
        // The lock is released first, because ending a sandbox takes time.
        drop(state);
        drop(dropped);
    }

    /// Creates the next reserve in a thread. An error is ignored here: the next tenant creates its
    /// own sandbox and gets the error.
    fn refill(self: &Arc<Self>) {
        let mut state = self.state();
        if state.refill.as_ref().is_some_and(|one| !one.is_finished()) {
            return;
        }
        let pool = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name("tool-pool".to_owned())
            .spawn(move || drop(pool.prepare()));
        state.refill = started.ok();
    }

    /// Waits for the thread that creates the reserve: a half-made sandbox would outlive the
    /// directory of its registry.
    pub(crate) fn settle(&self) {
        let refill = self.state().refill.take();
        if let Some(refill) = refill {
            let _ = refill.join();
        }
    }

    /// Returns the registry that contains the sandboxes.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    fn create(&self) -> Result<Sandbox, Fault> {
        let sandbox = self.registry.create(&spec(), None)?;
        sandbox.write_file(program().as_bytes(), WriteMode::Program, &SCRIPTS.unpack()?)?;
        Ok(sandbox)
    }
}

/// Removes the sandboxes that have been idle too long, or the least recently used one if the pool
/// is full.
fn drop_idle(state: &mut PoolState, now: Instant) -> Vec<KeptSandbox> {
    let mut names: Vec<String> = state
        .kept
        .iter()
        .filter(|(_, kept)| now.duration_since(kept.used) > IDLE)
        .map(|(name, _)| name.clone())
        .collect();
    if names.is_empty() && state.kept.len() >= MAX_KEPT {
        let oldest = state.kept.iter().min_by_key(|(_, kept)| kept.used);
        names.extend(oldest.map(|(name, _)| name.clone()));
    }
    names
        .iter()
        .filter_map(|name| state.kept.remove(name))
        .collect()
}

/// Returns the specification of a sandbox for calls: no network, no workspace, and none of the
/// host's files.
fn spec() -> SandboxSpec {
    let mut spec = SandboxSpec::new(Backend::NATIVE);
    spec.jail.net = Net::None;
    spec.jail.proc = ProcMode::Pids;
    spec.jail.layers = Layers::Memory;
    spec.jail.limits = Limits {
        memory_bytes: Some(MEMORY_BYTES),
        pids: Some(PIDS),
        disk_bytes: Some(DISK_BYTES),
        ..Limits::default()
    };
    spec
}

fn program() -> String {
    format!("{PROGRAM}{}", SCRIPTS.blake3())
}

/// Returns the process of one call, which is killed after `deadline`.
pub(crate) fn process(deadline: Duration) -> Exec {
    Exec {
        clear_env: true,
        // With this form of `TZ` no time zone file is read (tzset(3)).
        env: vec![glovebox_proto::EnvVar {
            name: ByteBuf::from("TZ"),
            value: ByteBuf::from("UTC0"),
        }],
        stdin: Stdin::Stream,
        log: LOG,
        background: Background::Kill,
        timeout_ms: Some(deadline.as_millis() as u64),
        grace_ms: 0,
        program: Some(ByteBuf::from(program().into_bytes())),
        ..Exec::new(["glovebox-js", TOOL_MODE])
    }
}
