//! Sandboxes for calls: one for each tenant that has called lately, and one more in reserve. They hold nothing but the
//! program that runs tools, so one is like another; a tenant's own is never given to a second tenant.

use glovebox_js::tool_call::TOOL_MODE;
use glovebox_proto::{Background, Exec, Fault, LogCaps, Stdin, WriteMode};
use glovebox_sandbox::{Backend, Registry, SCRIPTS, Sandbox, SandboxSpec};
use glovebox_spec::{Layers, Limits, Net, ProcMode};
use serde_bytes::ByteBuf;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Tenants whose sandboxes are kept. The one that called longest ago gives its own up.
const MAX_KEPT: usize = 32;
/// A tenant that does not call for so long has no sandbox any more.
const IDLE: Duration = Duration::from_mins(5);
/// The program among those that the guest holds; its digest follows.
const PROGRAM: &str = "/glovebox-js/";
/// Memory of all calls of one tenant together.
const MEMORY_BYTES: u64 = 1 << 30;
/// Processes of all calls of one tenant together, with their wardens.
const PIDS: u32 = 256;
/// Nothing should ever be written.
const DISK_BYTES: u64 = 16 << 20;
/// Nothing is read from the guest's log of a call.
pub(crate) const LOG: LogCaps = LogCaps {
    head_bytes: 0,
    tail_bytes: 0,
    spill_bytes: 0,
};

/// The sandboxes of one registry.
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
        // Every change of the state is one assignment, so one that was cut short left nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a sandbox in reserve, so that the next new tenant does not wait for one.
    ///
    /// # Errors
    /// Whatever keeps a sandbox from starting.
    pub(crate) fn prepare(&self) -> Result<(), Fault> {
        if self.state().reserve.is_some() {
            return Ok(());
        }
        let made = self.create()?;
        self.state().reserve.get_or_insert(made);
        Ok(())
    }

    /// The sandbox of a tenant.
    ///
    /// # Errors
    /// Whatever keeps one from starting.
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
        // Ending a sandbox takes a moment, which nobody else needs to wait for.
        drop(ended);
        let sandbox = Arc::new(match reserve {
            Some(sandbox) => sandbox,
            None => self.create()?,
        });
        let kept = {
            let mut state = self.state();
            // Another call of the tenant may have been faster.
            let kept = state
                .kept
                .entry(tenant.to_owned())
                .or_insert(KeptSandbox { sandbox, used: now });
            Arc::clone(&kept.sandbox)
        };
        self.refill();
        Ok(kept)
    }

    /// Forgets a sandbox that does not answer as it should. Calls that still run in it end with it.
    pub(crate) fn discard(&self, tenant: &str, sandbox: &Arc<Sandbox>) {
        let mut state = self.state();
        let is_same = state
            .kept
            .get(tenant)
            .is_some_and(|kept| Arc::ptr_eq(&kept.sandbox, sandbox));
        let dropped = is_same.then(|| state.kept.remove(tenant)).flatten();
        drop(state);
        drop(dropped);
    }

    /// Makes the next reserve beside other work. One that cannot be made is made when it is needed, and fails there.
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

    /// Waits until nothing is made any more: a sandbox that is half made would outlive its registry's directory.
    pub(crate) fn settle(&self) {
        let refill = self.state().refill.take();
        if let Some(refill) = refill {
            let _ = refill.join();
        }
    }

    /// Where its sandboxes are.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    fn create(&self) -> Result<Sandbox, Fault> {
        let sandbox = self.registry.create(&spec(), None)?;
        sandbox.write_file(program().as_bytes(), WriteMode::Program, &SCRIPTS.unpack()?)?;
        Ok(sandbox)
    }
}

/// Takes out what has not been used for long, and one more where there are too many.
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

/// What a sandbox for calls is like: no network, no workspace, nothing of the host's but a skeleton of directories.
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

/// The process of one call, which is killed at the end of this time.
pub(crate) fn process(deadline: Duration) -> Exec {
    Exec {
        clear_env: true,
        // A form of TZ for which no file is read.
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
