//! Ways to end a sandbox that keep its files: kept layers, parked changes, stopped sandboxes.

use super::{
    FREEZE_WAIT, LOOK_AGAIN, OwnedSandbox, STOP_WAIT, Sandbox, ShutdownReport, disorder, end,
    keep_caches,
};
use crate::control::{self, Order};
use crate::lifecycle::parking::{self, ParkingNews};
use crate::state::layout::WORKSPACE_UPPER;
use crate::state::sandbox_dir::{SandboxDir, SandboxDirState, read_status};
use crate::state::status::{SandboxState, Status};
use crate::{Backend, SandboxSpec, fault};
use glovebox_proto::{Code, Fault};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

impl Sandbox {
    /// Ends the processes of a sandbox that this process owns and keeps its layers under its name,
    /// like those of a stopped named sandbox. Of layers in memory only the workspace's is kept.
    /// Does nothing to a sandbox of a supervisor. Package caches are kept as by [`Self::finish`].
    ///
    /// # Errors
    /// `unsupported` if there is nothing to keep, and the errors of copying layers in memory; the
    /// sandbox is then gone. A retryable fault if only the status could not be written: the files
    /// stay, and if the changes are to be parked, the next sweep parks them.
    pub fn keep(self, reason: &str) -> Result<ShutdownReport, Fault> {
        self.retire(&|sandbox_dir| {
            let status = read_status(&sandbox_dir.path)?;
            sandbox_dir.write_status(&Status {
                state: SandboxState::Stopped,
                is_supervised: true,
                process: None,
                reason: Some(reason.to_owned()),
                ..status
            })
        })
    }

    /// Creates an empty layer over `project` for changes that are fetched from a copy of it on
    /// another machine. After they are written there, the sandbox can be kept or parked like a
    /// native one of that project.
    ///
    /// # Errors
    /// `unsupported` for a sandbox of a supervisor; the errors of writing.
    pub fn make_layer(&self, project: &Path, hidden: Vec<PathBuf>) -> Result<PathBuf, Fault> {
        let Some(owned) = &self.owned else {
            return Err(Fault::failed(
                Code::Unsupported,
                "only the owner of a sandbox makes layers for it",
            ));
        };
        let layer = owned.sandbox_dir.path.join(WORKSPACE_UPPER);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&layer)
            .map_err(|error| fault::io("make", &layer, error))?;
        let mut spec = SandboxSpec::new(Backend::NATIVE);
        spec.jail.workspace = Some(project.to_owned());
        spec.jail.hidden = hidden;
        owned.sandbox_dir.write_spec(&spec)?;
        Ok(layer)
    }

    /// As [`Self::keep`], but parks the changes for a day. `changes` is their number, if it is
    /// known. Returns the parked changes that were dropped to make room.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub fn park(
        self,
        reason: &str,
        changes: Option<u64>,
    ) -> Result<(Vec<ParkingNews>, ShutdownReport), Fault> {
        let (layout, name) = (self.layout.clone(), self.info.name.clone());
        let finished = self.retire(&|sandbox_dir| parking::park(sandbox_dir, reason, changes))?;
        Ok((parking::drop_excess(&layout, Some(&name)), finished))
    }

    fn retire(
        mut self,
        note: &dyn Fn(&SandboxDir) -> Result<(), Fault>,
    ) -> Result<ShutdownReport, Fault> {
        let Some(owned) = self.owned.take() else {
            return Ok(ShutdownReport::default());
        };
        let is_remote = !owned.sandbox_dir.has_layers() && owned.sandbox_dir.has_remote_files();
        let in_memory = if is_remote || owned.sandbox_dir.has_layers() {
            None
        } else {
            let owner = self.core.owner.as_ref();
            let Some(layers) = owner.and_then(|owner| owner.memory_layers()) else {
                end(&self.core, &self.layout, owned)?;
                return Err(Fault::failed(
                    Code::Unsupported,
                    "the sandbox has no layers on this machine that could be kept",
                ));
            };
            Some(layers)
        };
        let OwnedSandbox {
            sandbox_dir,
            slot,
            wall_clock,
            caches,
            ..
        } = owned;
        // Read before the kill, which itself ends the link.
        let disorder = disorder(&self.core);
        drop(wall_clock);
        let killed = self.core.owner.as_ref().map_or(Ok(()), |owner| {
            if is_remote {
                owner.halt()
            } else {
                owner.kill()
            }
        });
        self.core
            .link
            .lose(Fault::lost(Code::LinkLost, "the sandbox was stopped"));
        if let Err(fault) = killed {
            // Processes may still run, so the slot's ids are not given to another sandbox.
            std::mem::forget(slot);
            return Err(fault);
        }
        let saved = in_memory.map_or(Ok(()), |layers| {
            parking::save_memory_layers(&sandbox_dir, &layers)
        });
        let noted = match saved {
            Ok(()) => {
                let lost_caches = keep_caches(&self.layout, &sandbox_dir, caches, disorder);
                note(&sandbox_dir)
                    .map(|()| ShutdownReport { lost_caches })
                    .map_err(Fault::retryable)
            }
            Err(fault) => {
                // The first fault is the one to report. The next sweep finds files that stay.
                let _ = sandbox_dir.discard(&self.layout);
                Err(fault)
            }
        };
        slot.release();
        noted
    }

    /// Ends the processes of a supervised sandbox and keeps its files under its name. Returns when
    /// it has stopped. A sandbox without files on this machine is gone then.
    ///
    /// # Errors
    /// `sandbox-not-running`, or the errors of reaching its supervisor.
    pub fn stop(&self, reason: &str) -> Result<(), Fault> {
        let reason = reason.to_owned();
        match control::order(&self.dir, &Order::Stop { reason }, FREEZE_WAIT) {
            // The supervisor may end before its answer arrives; the lock below decides.
            Err(fault) if fault.code == Code::LinkLost => {}
            answered => drop(answered?),
        }
        let until = Instant::now() + STOP_WAIT;
        let name = &self.info.name;
        while matches!(SandboxDir::find(&self.layout, name)?, SandboxDirState::Held) {
            if Instant::now() >= until {
                let message = format!("the sandbox `{name}` did not stop in time");
                return Err(Fault::failed(Code::TimedOut, message));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// As [`Self::stop`], without waiting. For a process that is about to exit.
    pub fn begin_stop(&self, reason: &str) {
        let reason = reason.to_owned();
        // A supervisor that cannot be reached has ended or ends with the lease.
        let _ = control::tell(&self.dir, &Order::Stop { reason });
    }
}
