//! Ways to end a sandbox that leave its files: kept, parked, stopped.

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
    /// Ends the processes of a sandbox of this process and keeps its layers under its name, as those
    /// of a named sandbox that has stopped. Of layers in memory only the workspace's is kept. One of a
    /// supervisor is left alone. What was to be kept for other sandboxes is, as by [`Self::finish`].
    ///
    /// # Errors
    /// `unsupported` when nothing would remain, and what kept layers in memory from being copied; the
    /// sandbox is then gone. A retryable fault when only the note about it could not be written: its files stay, and
    /// those of one whose changes are to be parked are parked by the next sweep that can.
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

    /// Makes an empty layer over `project` for changes that were fetched from a copy of it elsewhere. Once they are
    /// written there, the sandbox is kept or parked as a native one of that project.
    ///
    /// # Errors
    /// `unsupported` for a sandbox of a supervisor; what could not be written.
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

    /// As [`Self::keep`], for a day: `changes` is how many there are, if they were counted. Gives what had
    /// to go because too much is parked.
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
            // As in `end`.
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
                // The fault is what matters; what cannot be removed is found by the next sweep.
                let _ = sandbox_dir.discard(&self.layout);
                Err(fault)
            }
        };
        slot.release();
        noted
    }

    /// Ends the processes of a sandbox that has a supervisor and keeps its files under its name;
    /// returns when it has stopped. What has no files on this machine is gone then.
    ///
    /// # Errors
    /// `sandbox-not-running`, or that of a supervisor that does not answer.
    pub fn stop(&self, reason: &str) -> Result<(), Fault> {
        let reason = reason.to_owned();
        match control::order(&self.dir, &Order::Stop { reason }, FREEZE_WAIT) {
            // It may be gone before its answer is; the lock tells.
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

    /// Asks for what [`Self::stop`] does and waits for nothing: for whoever is about to exit.
    pub fn begin_stop(&self, reason: &str) {
        let reason = reason.to_owned();
        // Who cannot be reached has ended, or ends with the lease.
        let _ = control::tell(&self.dir, &Order::Stop { reason });
    }
}
