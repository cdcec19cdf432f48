//! Exchange of the layers below a live sandbox.
//!
//! If no command runs, the overlays are exchanged under the guest; jobs, logs and `/dev/shm` stay.
//! Otherwise, or if the exchange is impossible, the guest is ended and another one started, because
//! running processes have the old files open and are confined to the old directories. A checkpoint
//! refuses to do that while a command runs.

use super::{RunningSandbox, raise};
use crate::backend::ExchangeCx;
use crate::checkpoint::change::{self, PendingChange};
use crate::checkpoint::{self, Checkpoint, stack, store, upper};
use crate::control::{ControlCommand, Order};
use crate::process::freeze::{self, FrozenProcesses};
use crate::state::layout::Layout;
use crate::state::sandbox_dir::SandboxDir;
use crate::{GuestImage, fault};
use glovebox_egress::Control;
use glovebox_jail::exchange::Exchange;
use glovebox_jail::plan::CheckpointLayer;
use glovebox_proto::{Code, Fault, Setting};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time for the guest to look up its mounts.
const RENEW_WAIT: Duration = Duration::from_secs(10);
/// Number of layers that are mounted only because one part of the sandbox was not exchanged for
/// long. Above it the next checkpoint exchanges that part as well.
const MAX_STALE: usize = 64;

/// Progress of a change of the layers.
enum ExchangeOutcome {
    /// The change is complete.
    Done {
        id: String,
        thrown: Vec<PathBuf>,
        /// Exchange whose end is awaited after the client was answered.
        exchange: Option<Exchange>,
    },
    /// The change is recorded, and the guest must be restarted to complete it.
    Written {
        id: String,
        held: Option<FrozenProcesses>,
    },
}

/// Result of trying to exchange the overlays.
enum ExchangeAttempt {
    /// An exchange is impossible; nothing has changed.
    Impossible,
    /// The exchange failed before the change was recorded. The sandbox may have become read-only.
    Failed,
    Begun(ExchangeOutcome),
}

impl RunningSandbox {
    /// Changes the layers of the sandbox and answers the client.
    ///
    /// An error means that the sandbox is gone. A change that was not made is reported to the
    /// client only.
    pub(super) fn change(
        &mut self,
        layout: &Layout,
        sandbox_dir: &SandboxDir,
        command: ControlCommand,
    ) -> Result<(), Fault> {
        let begun = match self.begin(layout, sandbox_dir, &command) {
            Ok(begun) => begun,
            Err(fault) => {
                command.answer(Err(fault));
                return Ok(());
            }
        };
        let (id, thrown, exchange) = match begun {
            ExchangeOutcome::Done {
                id,
                thrown,
                exchange,
            } => (id, thrown, exchange),
            ExchangeOutcome::Written { id, held } => {
                match self.start_anew(layout, sandbox_dir, &id, held) {
                    Ok(thrown) => (id, thrown, None),
                    Err(fault) => {
                        command.answer(Err(fault.clone()));
                        return Err(fault);
                    }
                }
            }
        };
        let is_new = matches!(command.order, Order::Checkpoint { .. });
        command.answer(Ok(id));
        if is_new {
            self.control.flatten();
        }
        if !thrown.is_empty() || !is_new {
            self.control.clear(thrown);
        }
        drop(exchange);
        Ok(())
    }

    /// Ends the guest and starts another on the recorded change.
    fn start_anew(
        &mut self,
        layout: &Layout,
        sandbox_dir: &SandboxDir,
        id: &str,
        held: Option<FrozenProcesses>,
    ) -> Result<Vec<PathBuf>, Fault> {
        let reason = format!("the sandbox's files were changed to `{id}`, and its guest with them");
        // The rules and accounts of the proxy outlive the guest, with hosts that were opened
        // meanwhile.
        let egress = self.owner.egress();
        self.owner.kill()?;
        drop(held);
        let control = egress.map(|proxy| Arc::clone(proxy.control()));
        self.replace_guest(layout, sandbox_dir, control, &reason)
    }

    /// Starts another guest in place of one that has ended. `egress` holds the rules and accounts of
    /// its proxy. Requests that were open with the old guest end with `reason`. Returns the paths in
    /// the trash that are still to be removed.
    pub(super) fn replace_guest(
        &mut self,
        layout: &Layout,
        sandbox_dir: &SandboxDir,
        egress: Option<Arc<Control>>,
        reason: &str,
    ) -> Result<Vec<PathBuf>, Fault> {
        let raised = raise(
            layout,
            sandbox_dir,
            &self.spec,
            self.slot,
            self.caches.as_ref(),
            egress,
        )?;
        self.owner = raised.owner;
        let (init, group) = (self.owner.process(), self.owner.group_freezer());
        self.control.freezer.set_init(init, group);
        self.control.set_owner(self.owner.as_ref());
        self.status.process = self.owner.process();
        sandbox_dir.write_status(&self.status)?;
        let lost = Fault::lost(Code::LinkLost, reason);
        self.router.replace(raised.greeted, &lost)?;
        Ok(raised.thrown)
    }

    fn begin(
        &mut self,
        layout: &Layout,
        sandbox_dir: &SandboxDir,
        command: &ControlCommand,
    ) -> Result<ExchangeOutcome, Fault> {
        let mut is_broken = false;
        if self.is_idle()? {
            match self.exchange(layout, sandbox_dir, &command.order)? {
                ExchangeAttempt::Begun(begun) => return Ok(begun),
                ExchangeAttempt::Failed => is_broken = true,
                ExchangeAttempt::Impossible => {}
            }
        }
        let held = command.changing.freeze()?;
        if matches!(command.order, Order::Checkpoint { .. }) && !is_broken && !self.is_idle()? {
            return Err(Fault::failed(
                Code::Busy,
                "something runs in the sandbox, and would lose its files",
            )
            .remedy([
                format!(
                    "wait for it or end it (`glovebox logs {}` lists what runs), or copy what was written \
                     instead with ",
                    sandbox_dir.name
                )
                .into(),
                Setting::Live.into(),
            ])
            .retryable());
        }
        let (pending, checkpoint) = plan(sandbox_dir, &command.order, false)?;
        change::begin(&sandbox_dir.path, &pending)?;
        Ok(ExchangeOutcome::Written {
            id: checkpoint.id,
            held: Some(held),
        })
    }

    /// Returns true if only the guest runs and no request is open.
    fn is_idle(&self) -> Result<bool, Fault> {
        let init = self.owner.process();
        Ok(!self.router.is_busy() && init.map_or(Ok(false), freeze::is_idle)?)
    }

    /// Exchanges the overlays of the idle sandbox.
    ///
    /// # Errors
    /// The errors of planning and recording the change.
    fn exchange(
        &mut self,
        layout: &Layout,
        sandbox_dir: &SandboxDir,
        order: &Order,
    ) -> Result<ExchangeAttempt, Fault> {
        let dir = &sandbox_dir.path;
        let old = stack::read(dir)?;
        let stale = old.mounted.len().saturating_sub(old.layers.len());
        let (pending, checkpoint) = plan(sandbox_dir, order, stale > MAX_STALE)?;
        let seed = checkpoint::seed_layer(layout, &pending.stack.layers);
        if seed != checkpoint::seed_layer(layout, &old.layers) {
            // The other seed's objects are mounted, and an exchange does not reach those mounts.
            return Ok(ExchangeAttempt::Impossible);
        }
        let mut parts = vec![store::ROOT, store::WORKSPACE];
        let mut below = checkpoint::frozen(layout, &pending.stack.layers);
        if let Order::Checkpoint { .. } = order {
            let Some(layer) = &pending.frozen else {
                // Nothing was written, so there is no layer to exchange.
                change::begin(dir, &pending)?;
                let thrown = change::finish(layout, dir)?;
                return Ok(ExchangeAttempt::Begun(ExchangeOutcome::Done {
                    id: checkpoint.id,
                    thrown,
                    exchange: None,
                }));
            };
            parts.retain(|part| layer.has(part));
            // Opened at its present path. Moving it afterwards does not matter.
            if let Some(newest) = below.first_mut() {
                *newest = CheckpointLayer {
                    root: layer.has_root.then(|| upper(dir, store::ROOT)),
                    workspace: layer.has_workspace.then(|| upper(dir, store::WORKSPACE)),
                    first_id: layer.first_id,
                };
            }
        }
        let image = GuestImage::shared(&layout.base())?;
        let layering = self.owner.exchange(ExchangeCx {
            image: &image,
            frozen: below,
            seed,
            parts: &parts,
        });
        let closed = match layering {
            None | Some(Err(_)) => return Ok(ExchangeAttempt::Impossible),
            Some(Ok(layering)) => match layering.close() {
                Ok(Some(closed)) => closed,
                Ok(None) => return Ok(ExchangeAttempt::Impossible),
                Err(_) => return Ok(ExchangeAttempt::Failed),
            },
        };
        // Recorded only after the layers are read-only. A recorded change must be completed, while
        // an exchange that could not be closed can still be given up.
        if change::begin(dir, &pending).is_err() {
            return Ok(ExchangeAttempt::Failed);
        }
        let done = change::finish(layout, dir).and_then(|thrown| {
            let stack = stack::read(dir)?;
            // A part that is not exchanged keeps its layers.
            let others = if parts.len() == store::PARTS.len() {
                &[][..]
            } else {
                &old.mounted
            };
            stack::note_mounted(dir, &stack, others)?;
            let exchange = closed.finish(checkpoint::frozen(layout, &stack.layers))?;
            self.router.renew(RENEW_WAIT)?;
            Ok((thrown, exchange))
        });
        Ok(ExchangeAttempt::Begun(match done {
            Ok((thrown, exchange)) => ExchangeOutcome::Done {
                id: checkpoint.id,
                thrown,
                exchange: Some(exchange),
            },
            // The change is recorded, so the next start completes it, but this guest cannot stay.
            Err(_) => ExchangeOutcome::Written {
                id: checkpoint.id,
                held: None,
            },
        }))
    }
}

fn plan(
    sandbox_dir: &SandboxDir,
    order: &Order,
    is_whole: bool,
) -> Result<(PendingChange, Checkpoint), Fault> {
    match order {
        Order::Checkpoint { comment, .. } => {
            change::plan_checkpoint(&sandbox_dir.path, comment.as_deref(), is_whole)
        }
        Order::Restore { id } => change::plan_restore(&sandbox_dir.path, id),
        Order::Freeze
        | Order::Verify
        | Order::Layers
        | Order::Delete { .. }
        | Order::Stop { .. }
        | Order::Network(_)
        | Order::Link => Err(fault::internal("an order that needs no command")),
    }
}
