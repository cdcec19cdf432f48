//! Sessions of agents that bundles declare. They are queued like other sessions and have no
//! sandbox.

use super::bundles::ReadyBundle;
use super::frontend::EventFrontend;
use super::live::LiveSession;
use super::request::TaskLimits;
use super::session_calls::SessionCalls;
use super::worker::{self, state_of};
use super::{App, HostRights, QueuedWork};
use crate::store::{Owned, SessionRows, SessionWorkspace};
use glovebox_agent::{DeclaredAgent, Ending, Event, Log, Message, SessionState};
use glovebox_bundle::Agent;
use glovebox_proto::{AdvicePart, Code, Fault, Setting};
use glovebox_runner::Engine;
use glovebox_session::Error;
use glovebox_session::agent::{
    AgentFrontend as _, AgentSession, EarlierSession, ModelConfig, NewSession, find_model,
};
use glovebox_session::bundle::{
    BundleRun, PLACEMENT, RunTools, declared_engine, engine_of, find_agent,
};
use glovebox_session::host::now_unix_ms;
use glovebox_settings::{AgentFlags, Settings};
use serde_json::json;
use std::sync::Arc;

/// Maximum length of an input.
const MAX_INPUT_BYTES: usize = 1 << 20;

/// Work of one session of a bundle's agent, ready to begin.
#[derive(Debug)]
pub(crate) struct BundleJob {
    pub live: Arc<LiveSession>,
    prepared: PreparedRun,
    session: AgentSession,
}

/// Inputs of every run of an agent, besides its session.
#[derive(Debug)]
struct PreparedRun {
    settings: Settings,
    model: ModelConfig,
    declared: DeclaredAgent,
    system: String,
    tools: RunTools,
}

impl PreparedRun {
    fn run(&self) -> BundleRun<'_> {
        BundleRun {
            settings: &self.settings,
            model: &self.model,
            declared: self.declared.clone(),
            system: &self.system,
            tools: &self.tools,
        }
    }
}

/// Validates the input text for an agent.
///
/// # Errors
/// `invalid-argument` if it is empty or longer than 1 MiB.
pub(crate) fn check_input(text: &str) -> Result<(), Fault> {
    let wrong =
        |message: &str, remedy: &str| Fault::failed(Code::InvalidArgument, message).remedy(remedy);
    if text.trim().is_empty() {
        return Err(wrong("`input` is empty", "say what the agent is to do"));
    }
    if text.len() > MAX_INPUT_BYTES {
        return Err(wrong("`input` has more than 1 MiB", "say less at once"));
    }
    Ok(())
}

impl App {
    /// Checks that requests may name this engine.
    ///
    /// # Errors
    /// `permission-denied`, with the flag that the operator has to set.
    pub(crate) fn check_engine(&self, engine: Engine) -> Result<(), Fault> {
        if engine == Engine::default() || self.config.bundles.engines.contains(&engine) {
            return Ok(());
        }
        let message = format!("the engine `{engine}` is not allowed here");
        Err(Fault::refused(Code::PermissionDenied, message).remedy([
            "leave `engine` out; whoever runs the server allows it: ".into(),
            AdvicePart::command(
                "glovebox serve",
                Setting::BundleEngine,
                Some(&engine.to_string()),
            ),
        ]))
    }

    fn prepare(
        &self,
        user: &str,
        bundle: &ReadyBundle,
        agent: &Agent,
        engine: Engine,
        limits: TaskLimits,
    ) -> Result<PreparedRun, Error> {
        self.check_engine(engine)?;
        let mut settings = self.session_settings(None, limits)?;
        let model = self.bundles.rules.resolve(&agent.key, &agent.model)?;
        settings.lay_agent_flags(&AgentFlags {
            model: Some(model),
            ..AgentFlags::default()
        });
        let model = find_model(&self.config.host, &settings, None)?;
        Ok(PreparedRun {
            settings,
            model,
            declared: DeclaredAgent {
                bundle: bundle.stored.hash.to_string(),
                agent: agent.key.clone(),
                engine: declared_engine(engine),
            },
            system: agent.system.clone(),
            tools: RunTools {
                tools: Arc::clone(bundle.tools(Some(&agent.key))),
                runner: Arc::clone(&self.bundles.runner),
                engine,
                tenant: user.to_owned(),
                // The session's id is added in `enqueue_run`, when it is known.
                context: json!({ "resourceId": user }),
            },
        })
    }

    /// Creates and queues a session of a bundle's agent for `user`. Returns the session's id.
    ///
    /// # Errors
    /// Fails if the input is invalid, the agent is not in the bundle, the engine or model is not
    /// allowed, or the queue is full.
    pub(crate) fn execute(
        self: &Arc<Self>,
        user: &str,
        bundle: &ReadyBundle,
        agent: &str,
        engine: Engine,
        input: &str,
        limits: TaskLimits,
    ) -> Result<String, Error> {
        check_input(input)?;
        let agent = find_agent(&bundle.stored, agent)?;
        self.refuse_when_full(user)?;
        let prepared = self.prepare(user, bundle, agent, engine, limits)?;
        let id = NewSession::random_id();
        let owned = Owned {
            user: user.to_owned(),
            is_applied: false,
        };
        let rows = SessionRows {
            id: &id,
            owned: &owned,
            workspace: Some(&SessionWorkspace::Own),
            request: None,
            sandbox: None,
            now_unix_ms: now_unix_ms(),
        };
        let new = self.create_session(&rows, || {
            NewSession::create(
                self.open_log()?,
                id.clone(),
                SessionState::Queued,
                input.to_owned(),
                &prepared.model,
                PLACEMENT,
                std::path::Path::new("/"),
            )
        })?;
        let live = LiveSession::new(&id, user, 0);
        self.enqueue_run(live, prepared, |run, frontend| run.begin(frontend, new))?;
        Ok(id)
    }

    /// Creates a session that begins with the first `events` events of session `id`. Returns the
    /// new session's id.
    ///
    /// # Errors
    /// `conflict` while session `id` is waiting or working; `not-found` if it does not exist.
    pub(crate) fn fork_at(&self, user: &str, id: &str, events: u64) -> Result<String, Error> {
        if self.live(id).is_some() {
            let fault = Fault::failed(Code::Conflict, "the agent still answers an earlier message");
            return Err(fault.remedy("stop it first").into());
        }
        let Some(info) = self.find(id)? else {
            return Err(
                Fault::failed(Code::NotFound, format!("there is no session `{id}`")).into(),
            );
        };
        let new = NewSession::random_id();
        let owned = Owned {
            user: user.to_owned(),
            is_applied: false,
        };
        let workspace = self.owners.workspace(id)?;
        let rows = SessionRows {
            id: &new,
            owned: &owned,
            workspace: workspace.as_ref(),
            request: None,
            sandbox: None,
            now_unix_ms: now_unix_ms(),
        };
        self.create_session(&rows, || Ok(self.log().fork(&info, &new, Some(events))?))?;
        Ok(new)
    }

    /// Continues a session of a bundle's agent, with a further message if `words` is given.
    pub(super) fn go_on_with_bundle(
        self: &Arc<Self>,
        user: &str,
        log: Log,
        earlier: EarlierSession,
        words: Option<&str>,
        limits: TaskLimits,
    ) -> Result<(), Error> {
        let Some(declared) = earlier.declared().cloned() else {
            return Err(Fault::failed(Code::Internal, "the session is of no bundle").into());
        };
        let bundle = self.bundle(user, declared.bundle.parse()?)?;
        let agent = find_agent(&bundle.stored, &declared.agent)?;
        let prepared = self.prepare(user, &bundle, agent, engine_of(&declared)?, limits)?;
        let id = &earlier.info.id;
        log.set_state(id, SessionState::Queued)?;
        let live = LiveSession::new(id, user, earlier.info.events);
        self.enqueue_run(live, prepared, |run, frontend| {
            run.model.model.skip(earlier.conversation.turns as usize);
            run.take_up(frontend, log, earlier, words)
        })
    }

    fn enqueue_run(
        self: &Arc<Self>,
        live: Arc<LiveSession>,
        mut prepared: PreparedRun,
        begin: impl FnOnce(&BundleRun<'_>, &EventFrontend) -> Result<AgentSession, Error>,
    ) -> Result<(), Error> {
        prepared.tools.context["sessionId"] = live.id.clone().into();
        let session = begin(
            &prepared.run(),
            &self.bundle_frontend(&live, &prepared.model),
        )?;
        self.enqueue(QueuedWork::Bundle(Box::new(BundleJob {
            live,
            prepared,
            session,
        })));
        Ok(())
    }

    fn bundle_frontend(&self, live: &Arc<LiveSession>, model: &ModelConfig) -> EventFrontend {
        EventFrontend {
            live: Arc::clone(live),
            calls: SessionCalls::new(self, live, PLACEMENT, &model.model.label()),
            has_user: false,
            host_rights: HostRights::Nothing,
        }
    }
}

/// Runs the job until its end. An error becomes an event of the session.
pub(super) fn carry_out(app: &App, mut job: BundleJob) {
    let frontend = app.bundle_frontend(&job.live, &job.prepared.model);
    // Here and not in `prepare`: it asks the model server, for which a request must not wait.
    job.prepared.model.learn_window();
    if let Err(error) = work(&frontend, &mut job) {
        worker::fail(app, &frontend, &job.live.id, &error);
    }
}

/// Runs the agent until it has ended and no message of the user is waiting.
fn work(frontend: &EventFrontend, job: &mut BundleJob) -> Result<(), Error> {
    loop {
        let session = &mut job.session;
        let outcome = job.prepared.run().perform(frontend, session)?;
        let can_go_on = !job.live.is_cancelled() && outcome.ending != Ending::Lost;
        let Some(text) = job.live.next_message(true).filter(|_| can_go_on) else {
            if job.live.is_cut() && outcome.ending == Ending::Aborted {
                return worker::end_cut(frontend, &session.log, &session.id);
            }
            return Ok(session
                .log
                .set_state(&session.id, state_of(outcome.ending))?);
        };
        let text = job.prepared.model.secrets.clean(text);
        let said = Event::Said { text: text.clone() };
        frontend
            .observer(&session.log, &session.id)
            .observe(&said)?;
        session.conversation.messages.push(Message::User { text });
    }
}
