//! Exchange of the layers of a live native sandbox: see [`glovebox_jail::exchange`].

use super::disk_quota::{DiskLimit, LooseLimit};
use super::{Native, launch_fault, plan_fault, workspace_mode};
use crate::backend::ExchangeCx;
use crate::fault;
use crate::watch::WatchedSandbox;
use glovebox_jail::exchange::{ClosedExchange, Exchange, ExchangeError};
use glovebox_jail::facts::HostFacts;
use glovebox_jail::plan::{CheckpointLayer, HostResources, Plan};
use glovebox_jail::seed::Seed;
use glovebox_jail::skeleton;
use glovebox_proto::Fault;
use glovebox_spec::Isolation;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time for each step.
const STEP_WAIT: Duration = Duration::from_secs(10);

/// Inputs of a plan, kept to make another one.
#[derive(Debug)]
pub(super) struct PlanInput {
    pub(super) spec: Isolation,
    pub(super) facts: HostFacts,
    /// Host resources without the frozen layers, which change.
    pub(super) place: HostResources,
    pub(super) state_dir: PathBuf,
}

/// Prepared exchange of layers.
#[derive(Debug)]
pub struct Layering {
    exchange: Exchange,
    plan: Plan,
    place: HostResources,
    mode: u32,
    state_dir: PathBuf,
    watched: Arc<WatchedSandbox>,
    disk: LooseLimit,
}

pub(super) fn begin(native: &Native, cx: ExchangeCx<'_>) -> Result<Layering, Fault> {
    let PlanInput {
        spec,
        facts,
        place,
        state_dir,
    } = &native.ground;
    let exchange =
        Exchange::spawn(&cx.image.path()).map_err(|error| launch_fault(&error, state_dir))?;
    let place = HostResources {
        frozen: cx.frozen,
        seed: cx.seed.as_deref().map(Seed::find),
        ..place.clone()
    };
    let plan = Plan::new(spec, facts, &place)
        .map_err(|error| plan_fault(&error))?
        .overlays(cx.parts);
    Ok(Layering {
        exchange,
        plan,
        mode: workspace_mode(spec, &place),
        place,
        state_dir: state_dir.clone(),
        watched: Arc::clone(&native.watched),
        disk: DiskLimit::loosen(&native.disk)?,
    })
}

impl Layering {
    /// Makes the present layers read-only. `None` if that is impossible while the sandbox runs;
    /// then nothing has changed. After a fault the sandbox must be ended.
    pub(crate) fn close(self) -> Result<Option<ClosedLayering>, Fault> {
        let Self {
            exchange,
            plan,
            place,
            mode,
            state_dir,
            watched,
            disk,
        } = self;
        match exchange.close(&watched.init, &plan, STEP_WAIT) {
            Ok(closed) => Ok(Some(ClosedLayering {
                closed,
                plan,
                place,
                mode,
                state_dir,
                watched,
                disk,
            })),
            Err(ExchangeError::Busy | ExchangeError::OutOfReach) => Ok(None),
            Err(ExchangeError::Failed(error)) => Err(launch_fault(&error, &state_dir)),
        }
    }
}

/// Exchange in progress: the sandbox cannot write until it is finished.
#[derive(Debug)]
pub(crate) struct ClosedLayering {
    closed: ClosedExchange,
    plan: Plan,
    place: HostResources,
    mode: u32,
    state_dir: PathBuf,
    watched: Arc<WatchedSandbox>,
    disk: LooseLimit,
}

impl ClosedLayering {
    /// Creates missing writable layers and mounts the new stack. `frozen` names the present paths
    /// of the frozen layers. Dropping the result may take time, so the caller should answer its
    /// client first.
    pub(crate) fn finish(self, frozen: Vec<CheckpointLayer>) -> Result<Exchange, Fault> {
        skeleton::make_layers(&self.plan, &self.place.layers, self.mode)
            .map_err(|error| fault::io("make the layers in", &self.place.layers, error))?;
        let exchange = self
            .closed
            .finish(STEP_WAIT)
            .map_err(|error| launch_fault(&error, &self.state_dir))?;
        self.disk.tighten()?;
        self.watched.set_frozen(frozen);
        Ok(exchange)
    }
}
