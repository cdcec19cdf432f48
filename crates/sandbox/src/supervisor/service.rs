//! Restore of a sandbox whose machine and checkpoints a service keeps.
//!
//! The service restarts the machine, so the guest ends before and another one is started after it.
//! The restore is written down first. If it is unknown whether the service has done it, the sandbox
//! stops, and its next start does it again.

use super::RunningSandbox;
use crate::SandboxSpec;
use crate::backend::{self, ServiceCx};
use crate::checkpoint::{remote, stack};
use crate::control::ControlCommand;
use crate::state::layout::Layout;
use crate::state::sandbox_dir::SandboxDir;
use glovebox_proto::{Class, Code, Fault};
use std::time::{Duration, Instant};

/// Maximum time for the service to restore a machine.
const RESTORE_WAIT: Duration = Duration::from_mins(5);

impl RunningSandbox {
    /// Restores the machine to a checkpoint and answers the client.
    ///
    /// An error means that the sandbox is gone. A restore that was refused is reported to the client
    /// only.
    pub(super) fn restore_at_service(
        &mut self,
        layout: &Layout,
        sandbox_dir: &SandboxDir,
        command: ControlCommand,
        id: &str,
    ) -> Result<(), Fault> {
        if let Err(fault) = self.begin_restore(layout, sandbox_dir, id) {
            command.answer(Err(fault));
            return Ok(());
        }
        let result = self.restart_restored(layout, sandbox_dir, id);
        match result {
            Ok(restored) => {
                command.answer(restored.map(|()| id.to_owned()));
                Ok(())
            }
            Err(fault) => {
                command.answer(Err(fault.clone()));
                Err(fault)
            }
        }
    }

    /// Checks whether the machine can be restored, and writes down that it is. Nothing has ended if
    /// this fails.
    fn begin_restore(
        &self,
        layout: &Layout,
        sandbox_dir: &SandboxDir,
        id: &str,
    ) -> Result<(), Fault> {
        stack::checkpoint(&sandbox_dir.path, id)?;
        let cx = service_cx(layout, &self.spec);
        backend::checkpoints(&cx)?.check(&cx, &sandbox_dir.name, id)?;
        remote::begin_restore(&sandbox_dir.path, id)
    }

    /// Ends the guest, restores the machine and starts another guest. The inner error says why the
    /// service refused; the new guest then has the files from before.
    fn restart_restored(
        &mut self,
        layout: &Layout,
        sandbox_dir: &SandboxDir,
        id: &str,
    ) -> Result<Result<(), Fault>, Fault> {
        // A halt, since a kill would destroy the machine.
        self.owner.halt()?;
        let restored = finish_restore(layout, sandbox_dir, &self.spec);
        if let Err(fault) = &restored
            && remote::pending_restore(&sandbox_dir.path)?.is_some()
        {
            return Err(fault.clone());
        }
        let reason = format!("the sandbox was restored to `{id}`, and its guest ended");
        self.replace_guest(layout, sandbox_dir, None, &reason)?;
        Ok(restored)
    }
}

/// Finishes a restore that has begun. Does nothing if there is none. Precondition: no guest runs.
///
/// # Errors
/// The service's refusal, after which the restore is forgotten; any other error leaves it to the
/// next start.
pub(super) fn finish_restore(
    layout: &Layout,
    sandbox_dir: &SandboxDir,
    spec: &SandboxSpec,
) -> Result<(), Fault> {
    let dir = &sandbox_dir.path;
    let Some(id) = remote::pending_restore(dir)? else {
        return Ok(());
    };
    let cx = service_cx(layout, spec);
    match backend::checkpoints(&cx)?.restore(&cx, &sandbox_dir.name, &id) {
        Ok(()) => remote::finish_restore(dir, &id),
        Err(fault) if is_undecided(&fault) => Err(fault),
        Err(fault) => {
            remote::give_up_restore(dir)?;
            Err(fault)
        }
    }
}

/// Returns true if a request may have had its effect although it failed.
fn is_undecided(fault: &Fault) -> bool {
    let is_passing = fault.is_retryable || fault.class == Class::Lost;
    // A service that takes no more requests has not begun with this one.
    is_passing && fault.code != Code::RateLimited
}

fn service_cx<'a>(layout: &'a Layout, spec: &'a SandboxSpec) -> ServiceCx<'a> {
    ServiceCx {
        spec,
        state_dir: layout.state(),
        known: &[],
        deadline: Instant::now() + RESTORE_WAIT,
    }
}
