//! After the loop: what is said about how it ended, and what becomes of the changes.

use super::Work;
use crate::args::Apply;
use crate::cmd::TerminalFrontend;
use crate::exit::CommandError;
use crate::sync::question;
use crate::sync::settle::{self, ApplyWhen, SettleOptions, SettleOutcome};
use glovebox_agent::{Ending, SessionState, Verdict};
use glovebox_proto::{Code, Fault};
use glovebox_session::agent::{AgentSession, AgentWorkplace};
use glovebox_settings::{Settings, WorkspaceMode};

/// When changes are taken over, given how the run ended.
pub(super) fn when(apply: Option<Apply>, settings: &Settings, ending: Ending) -> ApplyWhen {
    let is_done = ending == Ending::Completed;
    match apply {
        Some(Apply::Never) => ApplyWhen::Never,
        Some(Apply::Auto) if is_done => ApplyWhen::Always,
        Some(Apply::Ask) => ApplyWhen::Ask,
        None if is_done && settings.sync.on_success.value => ApplyWhen::Always,
        None if question::is_possible() => ApplyWhen::Ask,
        Some(Apply::Auto) | None => ApplyWhen::Later,
    }
}

impl Work<'_> {
    pub(super) fn tell(&self, verdict: &Verdict) {
        if matches!(verdict.ending, Ending::Completed | Ending::Aborted) {
            return;
        }
        let code = match verdict.ending {
            Ending::StoppedByLimit => Code::TimedOut,
            Ending::Lost => Code::LinkLost,
            _ => verdict
                .fault
                .as_ref()
                .map_or(Code::Unavailable, |fault| match fault.code {
                    Code::QuotaExhausted => Code::QuotaExhausted,
                    _ => Code::Unavailable,
                }),
        };
        let mut fault = Fault::failed(code, verdict.message.clone());
        let told = verdict.fault.as_ref();
        fault.remedy = told
            .and_then(|fault| fault.remedy.clone())
            .or_else(|| verdict.remedy.clone());
        self.cx.talk.error(&CommandError::from(fault));
    }

    /// Takes over what changed, or keeps it, or lets it go if the user said so.
    pub(super) fn settle_changes(
        &self,
        place: AgentWorkplace,
        ending: Ending,
        session: &AgentSession,
    ) -> Result<SettleOutcome, CommandError> {
        let Some(name) = place.work.name().cloned() else {
            place.end(&TerminalFrontend::new(self.cx));
            return Ok(SettleOutcome::Done);
        };
        if ending == Ending::Lost {
            if !self.run.settings.has_layers_on_disk() {
                self.cx.talk.warning(
                    "what it had changed cannot be reached any more: its files were not in layers on this disk",
                );
                return Ok(SettleOutcome::Done);
            }
            self.cx.talk.note(format_args!(
                "what it had changed is kept: `glovebox diff {name}`, `glovebox pull {name}`, `glovebox kill {name}`"
            ));
            return Ok(SettleOutcome::Keep);
        }
        // What is read-only in this phase may have been written in one before.
        let may_be_written_before = self.run.settings.workspace_mode() == WorkspaceMode::ReadOnly
            && self.run.settings.has_layers_on_disk();
        let can_collect = self.run.settings.can_collect() || may_be_written_before;
        let settled = if can_collect {
            let options = SettleOptions {
                takes_ignored: false,
                when: when(self.apply, self.run.settings, ending),
                has_patch: false,
                is_shown: self.cx.talk.is_watched(),
                kept_as: self.run.is_kept.then_some(name.as_str()),
                is_still: false,
                can_stay: true,
                is_success: ending == Ending::Completed,
            };
            settle::settle(
                self.cx,
                place.work.sandbox(),
                self.run.settings,
                options,
                None,
                self.signals,
            )
        } else if ending == Ending::Completed
            || self.apply == Some(Apply::Never)
            || self.run.settings.workspace_mode() == WorkspaceMode::ReadOnly
        {
            Ok(SettleOutcome::Done)
        } else {
            Ok(SettleOutcome::Keep)
        };
        if let Err(error) = &settled {
            // Without these words the work would be lost without anybody noticing.
            self.cx.talk.error(error);
        }
        match &settled {
            Ok(SettleOutcome::Done | SettleOutcome::Conflicts) if !self.run.is_kept => {
                place.end(&TerminalFrontend::new(self.cx));
                session.log.set_sandbox(&session.id, None)?;
            }
            Ok(_) => {
                // A name of the user's own is of something that goes on.
                if self.run.settings.has_layers_on_disk() && can_collect && !self.run.is_kept {
                    place.work.sandbox().stop("its changes are kept for `glovebox pull`")?;
                }
                self.cx.talk.note(format_args!(
                "the sandbox is kept: `glovebox diff {name}`, `glovebox pull {name}`, `glovebox kill {name}`"
                ));
            }
            Err(_) => self.cx.talk.warning(format_args!(
                "the sandbox is kept, your files are as before: try again with `glovebox pull {name}`"
            )),
        }
        settled
    }
}

pub(super) fn state_of(ending: Ending) -> SessionState {
    match ending {
        Ending::Completed => SessionState::Completed,
        Ending::StoppedByLimit => SessionState::StoppedByLimit,
        Ending::Aborted => SessionState::Aborted,
        Ending::Lost => SessionState::Lost,
        Ending::Failed => SessionState::Failed,
    }
}
