//! One run of an agent: its session is written down, and the loop works until it ends.

use super::{AgentWorkplace, ModelConfig, ToolsetFilter, phase_instruction};
use crate::Error;
use crate::frontend::{Frontend, Notice};
use crate::host::now_unix_ms;
use glovebox_agent::{
    AgentLoop, Approval, Approve, Conversation, Date, Ending, Event, Instructions, Log, Message,
    NoApproval, Observe, Placement, Questions, RunOutcome, Secrets, SessionInfo, SessionLock,
    SessionState, StopSignal, ToolServer, Toolbox, Tools as _, system_prompt,
};
use glovebox_mcp::client::Servers;
use glovebox_proto::{Fault, Remedy, Setting};
use glovebox_sandbox::Name;
use glovebox_settings::{Settings, Surroundings};
use glovebox_tools::policy::{
    Ask, AskHost, HostConsent, Permit, PermitRequest, Policy, PolicyGate, ServerTool,
};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often the user asks to stop until the agent is not given another word.
const LAST_STOP: u32 = 2;

/// A wish that an agent stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopWish {
    /// The user's, who has asked so often.
    Asked(u32),
    /// A limit of whoever runs the agent was reached: which, in a sentence.
    Limit(String),
}

/// Told of each wish that the agent stops.
pub type OnStop = Box<dyn Fn(StopWish) + Send + Sync>;

/// What a user interface gives to the run of an agent.
pub trait AgentFrontend: Frontend {
    /// Keeps the events of a session in its log, and shows them.
    fn observer<'a>(&'a self, log: &'a Log, id: &'a str) -> Box<dyn Observe + 'a>;

    /// The user, where there is somebody to ask. `servers` are those whose tools may be called; `secrets` are not
    /// shown.
    fn user(&self, secrets: &Secrets, servers: Vec<ToolServer>) -> Option<Arc<dyn AgentUser>>;

    /// Whether there is somebody to ask.
    fn has_user(&self) -> bool;

    /// From now on `on_stop` is told each time that the session `id` is to stop.
    fn watch_stop(&self, id: &str, on_stop: OnStop);

    /// The end of [`Self::watch_stop`]: how often the user has asked.
    fn unwatch_stop(&self) -> u32;

    /// What the agent that was stopped is to do instead, if anything.
    fn ask_for_more(&self) -> Option<String>;
}

/// The user's word on calls: what a rule asks about, what the model calls, what a script calls; and on hosts that a
/// command was refused.
pub trait AgentUser: Ask + Approve + AskHost {
    /// Asked before each call that a script makes of a tool that is not read-only.
    fn approve_nested(&self, tool: &str, arguments: &Value) -> Approval;
}

/// One run of an agent, new or taken up again.
#[derive(Debug)]
pub struct AgentRun<'a> {
    /// What this machine and this user are like.
    pub host: &'a Surroundings,
    /// What is asked for.
    pub settings: &'a Settings,
    /// The project it works on.
    pub project: &'a Path,
    /// The model.
    pub model: &'a ModelConfig,
    /// The kind of work.
    pub phase: Option<&'a str>,
    /// What the model is told in addition.
    pub addition: Option<String>,
    /// What files of the user's and of the project tell it.
    pub instructions: Vec<Instructions>,
    /// Whether the user is asked before each change.
    pub is_asked: bool,
    /// Whether the user has said yes to all changes.
    pub is_yes: bool,
    /// Whether the sandbox has a name of the user's, and stays.
    pub is_kept: bool,
}

/// A session that is open.
#[derive(Debug)]
pub struct AgentSession {
    /// Its log, among others.
    pub log: Log,
    /// Its name there.
    pub id: String,
    /// Held while it is open.
    pub lock: SessionLock,
    /// What the model is told about where it is.
    pub system: String,
    /// What was said.
    pub conversation: Conversation,
}

/// A session that is written down, and has no place yet.
#[derive(Debug)]
pub struct NewSession {
    /// Its log, among others.
    pub log: Log,
    /// Its name there.
    pub id: String,
    lock: SessionLock,
    task: String,
}

impl NewSession {
    /// Draws the name of a session that is not written down yet.
    pub fn random_id() -> String {
        Name::random("s").to_string()
    }

    /// Writes down the session `id`, which is to work on `task`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(
        log: Log,
        id: String,
        state: SessionState,
        task: String,
        model: &ModelConfig,
        placement: &str,
        project: &Path,
    ) -> Result<Self, Error> {
        let task = model.secrets.clean(task);
        let lock = log.lock(&id)?;
        log.create(&SessionInfo {
            id: id.clone(),
            state,
            task: task.clone(),
            model: model.model.label(),
            placement: placement.to_owned(),
            sandbox: None,
            project: project.to_owned(),
            created_unix_ms: 0,
            updated_unix_ms: 0,
            events: 0,
        })?;
        Ok(Self {
            log,
            id,
            lock,
            task,
        })
    }

    /// What it is to work on.
    pub(crate) fn task(&self) -> &str {
        &self.task
    }

    /// The session, begun.
    pub(crate) fn into_session(self, system: String) -> AgentSession {
        AgentSession {
            log: self.log,
            id: self.id,
            lock: self.lock,
            system,
            conversation: Conversation::new(self.task),
        }
    }
}

impl AgentRun<'_> {
    /// Begins a session that is written down, in its place.
    ///
    /// # Errors
    /// When it cannot be written; when the sandbox is lost.
    pub fn begin(
        &self,
        place: &AgentWorkplace,
        frontend: &dyn AgentFrontend,
        new: NewSession,
    ) -> Result<AgentSession, Error> {
        let system = self.system(place, frontend)?;
        let sandbox = place.work.name().map(ToString::to_string);
        new.log.set_sandbox(&new.id, sandbox.as_deref())?;
        let started = Event::Started {
            task: new.task.clone(),
            model: self.model.model.label(),
            placement: place.work.placement().to_string(),
            own_sandbox: sandbox.clone().filter(|_| !self.is_kept),
            sandbox,
            system: system.clone(),
            tools: self.tool_names(place)?,
            phase: self.phase.map(str::to_owned),
            addition: self.addition.clone(),
            context: place.context.clone(),
            declared: None,
        };
        frontend.observer(&new.log, &new.id).observe(&started)?;
        Ok(new.into_session(system))
    }

    /// The rules of this run, with the tools of its servers.
    fn policy(&self, place: &AgentWorkplace) -> Result<Policy, Error> {
        let policy = place.work.policy(self.settings)?;
        // Where each change is asked about anyway, or the user said yes to all, no second question.
        let is_asked = place.work.placement() == Placement::Sandbox && !self.is_yes;
        let served = place.servers().map(Servers::definitions);
        let served = served
            .unwrap_or_default()
            .into_iter()
            .map(|tool| ServerTool {
                is_asked: is_asked && !tool.is_read_only,
                is_read_only: tool.is_read_only,
                name: tool.name,
            });
        Ok(policy.with_served(served.collect()))
    }

    /// Names of the tools of this run.
    fn tool_names(&self, place: &AgentWorkplace) -> Result<Vec<String>, Error> {
        let policy = self.policy(place)?;
        let own = policy.toolset().tools().map(|tool| tool.name.to_owned());
        let served = place.servers().map(Servers::definitions);
        let served = served.unwrap_or_default().into_iter().map(|tool| tool.name);
        let served = served.filter(|name| policy.has(name));
        Ok(own.chain(served).collect())
    }

    /// What the model is told about where it is.
    ///
    /// # Errors
    /// When the sandbox is lost.
    pub fn system(
        &self,
        place: &AgentWorkplace,
        frontend: &dyn AgentFrontend,
    ) -> Result<String, Error> {
        let start_dir = self.host.start_dir(self.project);
        let mut facts = place.facts(self.settings, self.project, &start_dir)?;
        facts.today = Date::from_unix_ms(now_unix_ms());
        facts.questions = match (frontend.has_user(), self.is_asked) {
            (false, _) => Questions::Nobody,
            (true, true) => Questions::EachChange,
            (true, false) => Questions::Rules,
        };
        facts.instructions.clone_from(&self.instructions);
        facts.can_run_scripts = self.policy(place)?.toolset().has("RunJS");
        let instruction = self.phase.and_then(phase_instruction).map(str::to_owned);
        let additions: Vec<String> = instruction
            .into_iter()
            .chain(self.addition.clone())
            .collect();
        facts.addition = (!additions.is_empty()).then(|| additions.join("\n\n"));
        Ok(self.model.secrets.clean(system_prompt(&facts)))
    }

    /// Works until the end, and ends the MCP servers. What keeps it from working is how the run ended.
    ///
    /// # Errors
    /// When the session's state cannot be written.
    pub fn perform(
        &self,
        place: &mut AgentWorkplace,
        frontend: &dyn AgentFrontend,
        session: &mut AgentSession,
    ) -> Result<RunOutcome, Error> {
        session.log.set_state(&session.id, SessionState::Running)?;
        let verdict = self.work(place, frontend, session);
        place.end_servers(frontend);
        Ok(verdict.unwrap_or_else(|error| {
            let _ = session.log.set_state(&session.id, SessionState::Failed);
            frontend.notify(&Notice::RunFailed(&error));
            let fault = error.into_fault();
            RunOutcome {
                ending: Ending::Failed,
                message: fault.message.clone(),
                fault: Some(fault),
                remedy: None,
            }
        }))
    }

    /// The loop, as often as the user has something to add.
    fn work(
        &self,
        place: &AgentWorkplace,
        frontend: &dyn AgentFrontend,
        session: &mut AgentSession,
    ) -> Result<RunOutcome, Error> {
        let secrets = &self.model.secrets;
        let servers = place.servers().map(Servers::labels).unwrap_or_default();
        let user = frontend.user(secrets, servers);
        let policy = self.policy(place)?;
        let mut gate = place.work.gate(policy.clone());
        if let Some(user) = &user {
            gate = gate.asking(Arc::<dyn AgentUser>::clone(user));
        }
        let gate = Arc::new(gate);
        let (permit, approve): (Arc<dyn Permit>, &dyn Approve) = match &user {
            _ if !self.is_asked => (Arc::<PolicyGate>::clone(&gate), &NoApproval),
            Some(user) => {
                let asked = AskedGate {
                    gate: Arc::clone(&gate),
                    user: Arc::clone(user),
                };
                (Arc::new(asked), user.as_ref())
            }
            None => {
                return Err(Error::usage(
                    "there is nobody to ask before each change",
                    Remedy::advice([
                        "let the agent work in a sandbox with ".into(),
                        Setting::Sandbox.into(),
                        ", or pass ".into(),
                        Setting::Yes.into(),
                    ]),
                ));
            }
        };
        let mut tools = place.tools().with_permit(permit);
        if let Some(user) = &user {
            let user = Arc::<dyn AgentUser>::clone(user);
            tools = tools.with_hosts(Arc::new(HostConsent::new(user)));
        }
        let mut toolbox = Toolbox::default().with(Arc::new(tools));
        if let Some(servers) = place.servers() {
            toolbox = toolbox.with(Arc::new(servers.with_permit(gate)));
        }
        let tools = ToolsetFilter {
            tools: toolbox,
            policy,
            is_local: place.work.placement() == Placement::Local,
        };
        let stop = StopSignal::default();
        let head = AgentLoop {
            model: self.model.model.as_ref(),
            tools: &tools,
            approve,
            system: &session.system,
            limits: self.settings.agent_limits(),
            price: self.model.price,
            budget: self.model.budget,
            secrets,
            stop: stop.clone(),
        };
        let mut observer = frontend.observer(&session.log, &session.id);
        loop {
            frontend.watch_stop(&session.id, on_stop(place, &stop));
            let verdict = head.run(&mut session.conversation, observer.as_mut());
            let stops = frontend.unwatch_stop();
            if verdict.ending != Ending::Aborted || stops >= LAST_STOP {
                return Ok(verdict);
            }
            let more = frontend.ask_for_more().filter(|text| !text.is_empty());
            let Some(text) = more else {
                return Ok(verdict);
            };
            stop.clear();
            let text = secrets.clean(text);
            observer.observe(&Event::Said { text: text.clone() })?;
            session.conversation.messages.push(Message::User { text });
        }
    }
}

/// The first wish stops the loop; the one after the last ends this process, so the sandbox is stopped in time.
fn on_stop(place: &AgentWorkplace, stop: &StopSignal) -> OnStop {
    let (stop, stoppable) = (stop.clone(), place.work.stoppable());
    Box::new(move |wish| {
        let count = match wish {
            StopWish::Limit(why) => return stop.ask_at_limit(why),
            StopWish::Asked(count) => count,
        };
        stop.ask();
        if count > LAST_STOP
            && let Some(sandbox) = &stoppable
        {
            sandbox.begin_stop("the agent was ended at once");
        }
    })
}

/// The gate where the user is asked before each change: the loop asks about what the model calls, this about what a
/// script calls.
#[derive(Debug)]
struct AskedGate {
    gate: Arc<PolicyGate>,
    user: Arc<dyn AgentUser>,
}

impl Permit for AskedGate {
    fn permit(&self, asked: &PermitRequest<'_>) -> Result<(), Fault> {
        self.gate.permit(asked)?;
        let is_read_only = glovebox_tools::find(asked.tool).is_ok_and(|tool| tool.is_read_only);
        if !asked.is_nested || is_read_only {
            return Ok(());
        }
        if asked.cancel.load(Ordering::Relaxed) {
            return Approval::No(UNANSWERED.to_owned()).permit();
        }
        let approval = self.user.approve_nested(asked.tool, asked.arguments);
        approval.permit()
    }

    fn has_tool(&self, tool: &str) -> bool {
        self.gate.has_tool(tool)
    }
}

/// What the model is told of a question that got no answer.
pub const UNANSWERED: &str = "the user left the question unanswered";
