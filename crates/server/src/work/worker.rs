//! Work of one session on its own thread, from opening its sandbox to its last event.

use super::frontend::EventFrontend;
use super::live::LiveSession;
use super::resources::{Resources, StartPlace};
use super::session_calls::SessionCalls;
use super::{App, HostRights};
use crate::log::{mark_failed, millis, start_span};
use crate::store::Owned;
use glovebox_agent::{Ending, Event, Log, Message, Placement, RunOutcome, SessionState};
use glovebox_sandbox::Name;
use glovebox_session::agent::{
    AgentFrontend as _, AgentRun, AgentSession, AgentWorkplace, EarlierSession, ModelConfig,
    NewSession, load_instructions,
};
use glovebox_session::sync::apply::{ChangesView, Review, ReviewAnswer};
use glovebox_session::sync::settle::{ApplyWhen, Reviewer, SettleContext, SettleOptions, settle};
use glovebox_session::work::{WarmSandbox, WorkContext};
use glovebox_session::{Error, Frontend as _, Notice};
use glovebox_settings::Settings;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use tracing::{Span, error, info, warn};

/// Message of the last event of a session that ended because the server ended.
const CUT: &str = "the server stopped while this session worked; a message goes on with it";

/// Start of a session's work.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// A new session.
    New(NewSession),
    /// A continued session, with the user's message.
    Again {
        log: Log,
        earlier: Box<EarlierSession>,
        words: Option<String>,
    },
}

/// Work of one session, ready to begin.
#[derive(Debug)]
pub(crate) struct Job {
    pub live: Arc<LiveSession>,
    pub owned: Owned,
    pub beginning: Beginning,
    pub settings: Settings,
    /// Resources that the session's sandbox may use.
    pub need: Resources,
    /// Sandbox of an earlier run of the session. None for a new session.
    pub sandbox: Option<Name>,
    /// Warm sandbox that was taken for this session.
    pub warm: Option<WarmSandbox>,
    pub project: PathBuf,
    pub model: ModelConfig,
    pub phase: Option<String>,
    /// True if a user can answer questions.
    pub has_user: bool,
    /// Hosts that the user who sent the request may open.
    pub host_rights: HostRights,
}

/// Runs the job until its end. An error becomes the last event of the session.
pub(crate) fn carry_out(app: &App, job: Job, place: Option<StartPlace>) {
    let id = job.live.id.clone();
    let frontend = EventFrontend {
        live: Arc::clone(&job.live),
        calls: SessionCalls::new(
            app,
            &job.live,
            app.config.placement.as_str(),
            &job.model.model.label(),
        ),
        has_user: job.has_user,
        host_rights: job.host_rights,
    };
    let worker = Worker {
        app,
        frontend: &frontend,
    };
    if let Err(error) = worker.work(job, place) {
        fail(app, &frontend, &id, &error);
    }
}

/// Ends a session with an event that gives the reason.
pub(super) fn fail(app: &App, frontend: &EventFrontend, id: &str, error: &Error) {
    let code = error.clone().into_fault().code;
    app.metrics.failed(code.as_str(), "");
    warn!(code = code.as_str(), "session cannot go on");
    frontend.notify(&Notice::RunFailed(error));
    let ending = if frontend.live.is_at_limit() {
        Ending::StoppedByLimit
    } else if frontend.live.is_cancelled() {
        Ending::Aborted
    } else {
        Ending::Failed
    };
    if frontend.live.is_cut() && ending == Ending::Aborted {
        let said = app.open_log().map_err(Error::from);
        if said.and_then(|log| end_cut(frontend, &log, id)).is_ok() {
            return;
        }
    }
    let said = app.open_log().map_err(Error::from).and_then(|log| {
        let ended = ended(ending, error.message());
        frontend.observer(&log, id).observe(&ended)?;
        log.set_state(id, state_of(ending))?;
        Ok(())
    });
    if let Err(lost) = said {
        let code = lost.clone().into_fault().code;
        error!(
            code = code.as_str(),
            "the end of the session cannot be written down"
        );
        // The log cannot be written; clients that read the stream now still get the event.
        let json = super::frontend::to_json(&ended(ending, lost.message()));
        frontend.live.hub.publish_piece("ended", &json);
    }
}

struct Worker<'a> {
    app: &'a App,
    frontend: &'a EventFrontend,
}

impl Worker<'_> {
    const fn caller(&self) -> WorkContext<'_> {
        WorkContext {
            host: &self.app.config.host,
            registry: &self.app.config.registry,
            supervisor: &self.app.config.supervisor,
            frontend: self.frontend,
        }
    }

    fn work(&self, job: Job, start_place: Option<StartPlace>) -> Result<(), Error> {
        let Job {
            owned,
            beginning,
            settings,
            project,
            mut model,
            phase,
            warm,
            ..
        } = job;
        let app = self.app;
        model.learn_window();
        let addition = match &beginning {
            Beginning::New(_) => None,
            Beginning::Again { earlier, .. } => earlier.addition(),
        };
        let host = &app.config.host;
        let instructions = load_instructions(host, self.frontend, &settings, &project)?;
        let run = AgentRun {
            host,
            settings: &settings,
            project: &project,
            model: &model,
            phase: phase.as_deref(),
            addition,
            instructions,
            is_asked: false,
            is_yes: !self.frontend.has_user,
            is_kept: false,
        };
        let (mut place, is_new) = self.open_place(&owned.user, &run, &beginning, warm)?;
        let mut session = match self.begin(&run, &mut place, beginning, is_new) {
            Ok(session) => session,
            Err(error) => {
                if is_new {
                    place.end(self.frontend);
                }
                return Err(error);
            }
        };
        if let Some(name) = place.work.name() {
            app.owners.add_sandbox(name.as_str(), &owned.user)?;
            self.frontend.calls.work_in(name);
        }
        // The registry knows the sandbox now: keeping the reservation would count it twice.
        drop(start_place);
        let outcome = self.converse(&run, &mut place, &mut session);
        // Before the outcome is inspected: the hosts must be closed after a failed run as well.
        self.close_hosts(&place);
        if let Some(name) = place.work.name() {
            app.count_network(name, true);
            app.idle.touch(name);
        }
        let outcome = outcome?;
        if self.frontend.live.is_cut() && outcome.ending == Ending::Aborted {
            end_cut(self.frontend, &session.log, &session.id)?;
        } else {
            let state = state_of(outcome.ending);
            session.log.set_state(&session.id, state)?;
        }
        if owned.is_applied && outcome.ending == Ending::Completed && settings.can_collect() {
            app.check_apply(&session.id)?;
            self.apply(&settings, &place)?;
        }
        // A sandbox keeps running for users who look at it, until its lease ends. Local work has no
        // sandbox to keep.
        if place.work.placement() == Placement::Local {
            place.end(self.frontend);
        }
        Ok(())
    }

    /// Opens the workplace of the tools. Returns it, and true if it was made now.
    fn open_place(
        &self,
        user: &str,
        run: &AgentRun<'_>,
        beginning: &Beginning,
        warm: Option<WarmSandbox>,
    ) -> Result<(AgentWorkplace, bool), Error> {
        let started = Instant::now();
        let backend = run.settings.backend.value.as_str();
        let span = match self.app.config.placement {
            Placement::Sandbox => start_span(backend),
            Placement::Local => Span::none(),
        };
        let found = span.in_scope(|| self.find_place(user, run, beginning, warm));
        let (opened, is_warm) = found.inspect_err(|error| {
            mark_failed(&span, error.clone().into_fault().code.as_str());
        })?;
        if let Some(name) = opened.0.work.name() {
            span.record("sandbox", name.as_str());
        }
        span.record("glovebox.is_new", opened.1);
        span.record("glovebox.is_warm", is_warm);
        drop(span);
        if matches!(beginning, Beginning::New(_)) {
            self.app.note_begun(is_warm);
        }
        if let Some(name) = opened.0.work.name() {
            self.app.idle.remove(name);
        }
        self.app
            .metrics
            .operation("start", backend, started.elapsed());
        if let Some(name) = opened.0.work.name() {
            let took_ms = millis(started.elapsed());
            info!(
                sandbox = name.as_str(),
                is_new = opened.1,
                is_warm,
                took_ms,
                "sandbox at work"
            );
        }
        Ok(opened)
    }

    /// Opens the workplace like `open_place`, without accounting. The second bool is true if a warm
    /// sandbox was used.
    fn find_place(
        &self,
        user: &str,
        run: &AgentRun<'_>,
        beginning: &Beginning,
        warm: Option<WarmSandbox>,
    ) -> Result<((AgentWorkplace, bool), bool), Error> {
        let caller = self.caller();
        if let Some(warm) = warm
            && let Some(place) = AgentWorkplace::open_warm(&caller, run.settings, warm)?
        {
            return Ok(((place, true), true));
        }
        let place = match (beginning, self.app.config.placement) {
            (Beginning::Again { earlier, .. }, _) => {
                let reopen = || earlier.reopen_place(&caller, run.settings);
                return Ok((self.app.with_room(reopen)?, false));
            }
            (Beginning::New(_), Placement::Sandbox) => {
                let name = AgentWorkplace::random_name();
                self.app.start_owned(user, &name, || {
                    AgentWorkplace::open_leased(&caller, run.settings, run.project, &name)
                })?
            }
            (Beginning::New(_), Placement::Local) => {
                let placement = Placement::Local;
                AgentWorkplace::open(&caller, run.settings, run.project, placement, None)?
            }
        };
        Ok(((place, true), false))
    }

    fn begin(
        &self,
        run: &AgentRun<'_>,
        place: &mut AgentWorkplace,
        beginning: Beginning,
        is_new: bool,
    ) -> Result<AgentSession, Error> {
        self.start_servers(run, place)?;
        match beginning {
            Beginning::New(new) => run.begin(place, self.frontend, new),
            Beginning::Again {
                log,
                earlier,
                words,
            } => {
                run.model.model.skip(earlier.conversation.turns as usize);
                place.find_again(earlier.context());
                let words = words.as_deref();
                run.take_up(place, self.frontend, log, *earlier, is_new, words)
            }
        }
    }

    fn start_servers(&self, run: &AgentRun<'_>, place: &mut AgentWorkplace) -> Result<(), Error> {
        let cancel: &AtomicBool = &self.frontend.live.is_cancelled;
        place.start_servers(&self.caller(), run.settings, run.project, cancel)
    }

    /// Runs the agent until it has ended and no message of the user is waiting.
    fn converse(
        &self,
        run: &AgentRun<'_>,
        place: &mut AgentWorkplace,
        session: &mut AgentSession,
    ) -> Result<RunOutcome, Error> {
        let live: &LiveSession = &self.frontend.live;
        loop {
            let outcome = run.perform(place, self.frontend, session);
            let can_go_on = !live.is_cancelled() && outcome.ending != Ending::Lost;
            let Some(text) = live.next_message(true).filter(|_| can_go_on) else {
                return Ok(outcome);
            };
            let text = run.model.secrets.clean(text);
            let said = Event::Said { text: text.clone() };
            self.frontend
                .observer(&session.log, &session.id)
                .observe(&said)?;
            session.conversation.messages.push(Message::User { text });
            self.start_servers(run, place)?;
        }
    }

    /// Closes the hosts that administrators opened for this work in the session of another user,
    /// who keeps using the sandbox.
    fn close_hosts(&self, place: &AgentWorkplace) {
        let rules = self.frontend.live.approvals.take_foreign_rules();
        if !rules.is_empty()
            && let Err(fault) = place.work.sandbox().close_hosts(&rules)
        {
            let code = fault.code.as_str();
            warn!(code, "hosts that an administrator opened are not closed");
        }
    }

    /// Applies the session's changes to the project.
    fn apply(&self, settings: &Settings, place: &AgentWorkplace) -> Result<(), Error> {
        let context = SettleContext {
            host: &self.app.config.host,
            settings,
            supervisor: place.work.supervisor(),
            frontend: self.frontend,
        };
        let name = place.work.name().map(ToString::to_string);
        let options = SettleOptions {
            when: ApplyWhen::Always,
            has_patch: false,
            is_shown: false,
            kept_as: name.as_deref(),
            is_still: false,
            can_stay: true,
            takes_ignored: false,
            is_success: true,
        };
        settle(&context, place.work.sandbox(), options, &mut Unasked)?;
        Ok(())
    }
}

/// Returns the last event of a session that did not reach an end of its own.
pub(crate) fn ended(ending: Ending, message: &str) -> Event {
    Event::Ended {
        ending,
        message: message.to_owned(),
        turns: 0,
        usage: None,
        uncounted_answers: 0,
        cost_usd: None,
    }
}

/// Logs that the end of the server ended a session, as the next start does for one that was killed.
pub(super) fn end_cut(frontend: &EventFrontend, log: &Log, id: &str) -> Result<(), Error> {
    frontend
        .observer(log, id)
        .observe(&ended(Ending::Aborted, CUT))?;
    Ok(log.set_state(id, SessionState::Interrupted)?)
}

/// Returns the state of a session after this ending.
pub(crate) const fn state_of(ending: Ending) -> SessionState {
    match ending {
        Ending::Completed => SessionState::Completed,
        Ending::StoppedByLimit => SessionState::StoppedByLimit,
        Ending::Aborted => SessionState::Aborted,
        Ending::Lost => SessionState::Lost,
        Ending::Failed => SessionState::Failed,
    }
}

/// Reviewer for changes that are applied without a question.
struct Unasked;

impl Reviewer for Unasked {
    type Error = Error;

    fn agree(&mut self, _: &Review<'_>, _: &Path, _: bool) -> Result<ReviewAnswer, Error> {
        Ok(ReviewAnswer::Later)
    }

    fn write_patch(&mut self, _: &ChangesView) -> Result<(), Error> {
        Ok(())
    }
}
