//! Session of one agent of a bundle: the agent loop with the bundle's tools and without a sandbox.

use super::{RunTools, StoredBundle};
use crate::Error;
use crate::agent::{
    AgentFrontend, AgentSession, EarlierSession, ModelConfig, NewSession, StopWish,
};
use glovebox_agent::{
    AgentLoop, DeclaredAgent, Event, Log, Message, NoApproval, RunOutcome, SessionState,
    StopSignal, Tools as _,
};
use glovebox_bundle::Agent;
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{Code, Fault};
use glovebox_runner::Engine;
use glovebox_settings::Settings;

/// Placement of such sessions in their events.
pub const PLACEMENT: &str = "bundle";

/// Returns the engine to record in a session; `None` for the default engine.
pub fn declared_engine(engine: Engine) -> Option<String> {
    (engine != Engine::default()).then(|| engine.as_str().to_owned())
}

/// Returns the engine that a session has recorded.
///
/// # Errors
/// The log names an unknown engine.
pub fn engine_of(declared: &DeclaredAgent) -> Result<Engine, Fault> {
    let Some(word) = &declared.engine else {
        return Ok(Engine::default());
    };
    word.parse()
        .map_err(|reason: String| Fault::failed(Code::InvalidArgument, reason))
}

/// Finds an agent by its key, or by its declared name.
///
/// # Errors
/// `not-found`, with the agents of the bundle.
pub fn find_agent<'a>(bundle: &'a StoredBundle, asked: &str) -> Result<&'a Agent, Fault> {
    let agents = &bundle.extraction.bundle.agents;
    let found = agents.iter().find(|agent| agent.key == asked);
    let found = found.or_else(|| agents.iter().find(|agent| agent.name == asked));
    found.ok_or_else(|| {
        let keys: Vec<&str> = agents.iter().map(|agent| agent.key.as_str()).collect();
        let asked: String = asked.chars().take(128).collect();
        let message = format!("the bundle has no agent `{}`", escape_text(&asked));
        let remedy = match keys.as_slice() {
            [] => "the bundle declares tools only, which can be called one by one".to_owned(),
            keys => format!("its agents are {}", keys.join(", ")),
        };
        Fault::failed(Code::NotFound, message).remedy(remedy)
    })
}

/// Run of an agent of a bundle.
#[derive(Debug)]
pub struct BundleRun<'a> {
    /// Limits of the run.
    pub settings: &'a Settings,
    /// Model that the operator allows for the one that the bundle names.
    pub model: &'a ModelConfig,
    /// Declaration of the agent, as recorded in its session.
    pub declared: DeclaredAgent,
    /// System prompt of the agent.
    pub system: &'a str,
    /// Tools of the agent; it has no others.
    pub tools: &'a RunTools,
}

impl BundleRun<'_> {
    /// Begins a recorded session.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn begin(
        &self,
        frontend: &dyn AgentFrontend,
        new: NewSession,
    ) -> Result<AgentSession, Error> {
        let system = self.model.secrets.clean(self.system.to_owned());
        let started = Event::Started {
            task: new.task().to_owned(),
            model: self.model.model.label(),
            placement: PLACEMENT.to_owned(),
            sandbox: None,
            own_sandbox: None,
            system: system.clone(),
            tools: self
                .tools
                .definitions()
                .into_iter()
                .map(|tool| tool.name)
                .collect(),
            phase: None,
            addition: None,
            context: None,
            declared: Some(self.declared.clone()),
        };
        frontend.observer(&new.log, &new.id).observe(&started)?;
        Ok(new.into_session(system))
    }

    /// Resumes an earlier session; `words` are the user's addition.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn take_up(
        &self,
        frontend: &dyn AgentFrontend,
        log: Log,
        earlier: EarlierSession,
        words: Option<&str>,
    ) -> Result<AgentSession, Error> {
        let system = self.model.secrets.clean(self.system.to_owned());
        let resumed = Event::Resumed {
            model: self.model.model.label(),
            system: system.clone(),
            own_sandbox: None,
        };
        let mut session = earlier.into_session(log, system);
        let mut observer = frontend.observer(&session.log, &session.id);
        observer.observe(&resumed)?;
        let words = words.map(|words| self.model.secrets.clean(words.to_owned()));
        if let Some(text) = words {
            observer.observe(&Event::Said { text: text.clone() })?;
            session.conversation.messages.push(Message::User { text });
        }
        drop(observer);
        Ok(session)
    }

    /// Runs the loop to its end. An error of the run becomes its outcome.
    ///
    /// # Errors
    /// The session's state cannot be written.
    pub fn perform(
        &self,
        frontend: &dyn AgentFrontend,
        session: &mut AgentSession,
    ) -> Result<RunOutcome, Error> {
        session.log.set_state(&session.id, SessionState::Running)?;
        let stop = StopSignal::default();
        let head = AgentLoop {
            model: self.model.model.as_ref(),
            tools: self.tools,
            approve: &NoApproval,
            system: &session.system,
            limits: self.settings.agent_limits(),
            price: self.model.price,
            budget: self.model.budget,
            secrets: &self.model.secrets,
            stop: stop.clone(),
        };
        let mut observer = frontend.observer(&session.log, &session.id);
        let asked = stop.clone();
        let on_stop = move |wish| match wish {
            StopWish::Asked(_) => asked.ask(),
            StopWish::Limit(why) => asked.ask_at_limit(why),
        };
        frontend.watch_stop(&session.id, Box::new(on_stop));
        let outcome = head.run(&mut session.conversation, observer.as_mut());
        frontend.unwatch_stop();
        Ok(outcome)
    }
}
