//! End of a run: settles the sandbox and its changes.

use super::{AgentRun, AgentSession, AgentWorkplace};
use crate::Error;
use crate::frontend::{Frontend, Notice};
use crate::sync::settle::{
    ApplyWhen, Reviewer, SettleContext, SettleOptions, SettleOutcome, settle,
};
use glovebox_agent::Ending;
use glovebox_sandbox::WorkspaceMode;

/// Options for the end of a run.
#[derive(Debug, Clone, Copy)]
pub struct FinishOptions {
    /// When changes are applied to the project.
    pub when: ApplyWhen,
    /// True if the user sees changes that are not applied.
    pub is_shown: bool,
}

impl AgentRun<'_> {
    /// Applies the changes, keeps them in the sandbox, or discards them if the user said so.
    ///
    /// # Errors
    /// The changes cannot be applied, in which case the sandbox is unchanged; errors of `reviewer`.
    pub fn settle_changes<R: Reviewer>(
        &self,
        place: AgentWorkplace,
        frontend: &dyn Frontend,
        session: &AgentSession,
        ending: Ending,
        options: FinishOptions,
        reviewer: &mut R,
    ) -> Result<SettleOutcome, R::Error> {
        let Some(name) = place.work.name().cloned() else {
            place.end(frontend);
            return Ok(SettleOutcome::Done);
        };
        let keeps_files = self.settings.keeps_files();
        if ending == Ending::Lost {
            if !keeps_files {
                frontend.notify(&Notice::ChangesLost);
                return Ok(SettleOutcome::Done);
            }
            frontend.notify(&Notice::ChangesKept { name: &name });
            return Ok(SettleOutcome::Keep);
        }
        let is_read_only = self.settings.workspace_mode() == WorkspaceMode::ReadOnly;
        // A workspace that is read-only in this phase may have been written in an earlier one.
        let can_collect = self.settings.can_collect() || (is_read_only && keeps_files);
        let is_completed = ending == Ending::Completed;
        let settled = if can_collect {
            let context = SettleContext {
                host: self.host,
                settings: self.settings,
                supervisor: place.work.supervisor(),
                frontend,
            };
            let options = SettleOptions {
                when: options.when,
                has_patch: false,
                is_shown: options.is_shown,
                kept_as: self.is_kept.then_some(name.as_str()),
                is_still: false,
                can_stay: true,
                takes_ignored: false,
                is_success: is_completed,
            };
            settle(&context, place.work.sandbox(), options, reviewer)?
        } else if is_completed || is_read_only || options.when == ApplyWhen::Discard {
            SettleOutcome::Done
        } else {
            SettleOutcome::Keep
        };
        let is_over = matches!(settled, SettleOutcome::Done | SettleOutcome::Conflicts);
        if is_over && !self.is_kept {
            place.end(frontend);
            let forgotten = session.log.set_sandbox(&session.id, None);
            forgotten.map_err(Error::from)?;
            return Ok(settled);
        }
        // A sandbox that the user has named keeps running.
        if keeps_files && can_collect && !self.is_kept {
            let sandbox = place.work.sandbox();
            let stopped = sandbox.stop("its changes are kept for `glovebox pull`");
            stopped.map_err(Error::from)?;
        }
        frontend.notify(&Notice::SandboxKept { name: &name });
        Ok(settled)
    }
}
