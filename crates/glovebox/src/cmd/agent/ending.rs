//! After the agent loop: reports how it ended, and processes the changes.

use super::Work;
use crate::args::Apply;
use crate::cmd::Cx;
use crate::exit::{CommandError, Kind};
use crate::sync::question;
use crate::sync::settle::{ApplyWhen, SettleOutcome, TerminalReviewer};
use glovebox_agent::{Ending, RunOutcome, SessionState};
use glovebox_proto::{Class, Code, Fault};
use glovebox_session::agent::{AgentSession, AgentWorkplace, FinishOptions};
use glovebox_settings::Settings;

/// Decides when changes are applied, from how the run ended.
pub(super) fn when(apply: Option<Apply>, settings: &Settings, ending: Ending) -> ApplyWhen {
    let is_done = ending == Ending::Completed;
    match apply {
        Some(Apply::Discard) => ApplyWhen::Discard,
        Some(Apply::Auto) if is_done => ApplyWhen::Always,
        Some(Apply::Ask) => ApplyWhen::Ask,
        None if is_done && settings.sync.on_success.value => ApplyWhen::Always,
        None if question::is_possible() => ApplyWhen::Ask,
        Some(Apply::Auto) | None => ApplyWhen::Later,
    }
}

/// Reports how a run ended, unless it completed or the user aborted it.
pub(crate) fn tell(cx: &Cx, verdict: &RunOutcome) {
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
    cx.talk.error(&CommandError::from(fault));
}

/// Returns the exit code for how a run ended.
pub(crate) const fn code_of(verdict: &RunOutcome) -> u8 {
    match verdict.ending {
        Ending::Completed => 0,
        Ending::Failed => match &verdict.fault {
            Some(fault) if matches!(fault.class, Class::Refused) => Kind::Refused.exit_code(),
            _ => Kind::Failed.exit_code(),
        },
        Ending::Aborted => Kind::Interrupted.exit_code(),
        Ending::Lost => Kind::Lost.exit_code(),
        Ending::StoppedByLimit => Kind::Limit.exit_code(),
    }
}

impl Work<'_> {
    /// Applies the changes, keeps them, or discards them if the user said so.
    pub(super) fn settle_changes(
        &self,
        place: AgentWorkplace,
        ending: Ending,
        session: &AgentSession,
    ) -> Result<SettleOutcome, CommandError> {
        let name = place.work.name().cloned();
        let options = FinishOptions {
            when: when(self.apply, self.run.settings, ending),
            is_shown: self.cx.talk.is_watched(),
        };
        let mut reviewer = TerminalReviewer {
            cx: self.cx,
            signals: self.signals,
            patch: None,
        };
        let (run, terminal) = (&self.run, &self.terminal);
        let settled = run.settle_changes(place, terminal, session, ending, options, &mut reviewer);
        if let Err(error) = &settled {
            // Without this message the user would not notice that the changes were not applied.
            self.cx.talk.error(error);
            if let Some(name) = name {
                self.cx.talk.warning(format_args!(
                    "the sandbox is kept, your files are as before: try again with `glovebox pull {name}`"
                ));
            }
        }
        settled
    }
}

pub(crate) fn state_of(ending: Ending) -> SessionState {
    match ending {
        Ending::Completed => SessionState::Completed,
        Ending::StoppedByLimit => SessionState::StoppedByLimit,
        Ending::Aborted => SessionState::Aborted,
        Ending::Lost => SessionState::Lost,
        Ending::Failed => SessionState::Failed,
    }
}
