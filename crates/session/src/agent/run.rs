//! Run of an agent: records its session and runs the loop to its end.

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

/// Number of stop requests from which on the user is no longer asked for another message.
const LAST_STOP: u32 = 2;

/// Request to stop an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopWish {
    /// The user has asked this many times.
    Asked(u32),
    /// A limit of the operator was reached. Holds a sentence that names it.
    Limit(String),
}

/// Callback for each request to stop.
pub type OnStop = Box<dyn Fn(StopWish) + Send + Sync>;

/// User interface of an agent's run.
pub trait AgentFrontend: Frontend {
    /// Returns an observer that writes the events of a session to its log and shows them.
    fn observer<'a>(&'a self, log: &'a Log, id: &'a str) -> Box<dyn Observe + 'a>;

    /// Returns the user to ask; `None` if there is none. `servers` are those whose tools may be
    /// called; `secrets` must not be shown.
    fn user(&self, secrets: &Secrets, servers: Vec<ToolServer>) -> Option<Arc<dyn AgentUser>>;

    /// Returns true if there is a user to ask.
    fn has_user(&self) -> bool;

    /// Registers `on_stop`, which is called for each request to stop the session `id`.
    fn watch_stop(&self, id: &str, on_stop: OnStop);

    /// Ends [`Self::watch_stop`]. Returns how many times the user has asked to stop.
    fn unwatch_stop(&self) -> u32;

    /// Asks the user for a message to the stopped agent; `None` ends the run.
    fn ask_for_more(&self) -> Option<String>;
}

/// Questions to the user: about calls that a rule, the model or a script makes, and about hosts
/// that a command could not reach.
pub trait AgentUser: Ask + Approve + AskHost {
    /// Asks before a script calls a tool that is not read-only.
    fn approve_nested(&self, tool: &str, arguments: &Value) -> Approval;
}

/// Run of an agent, in a new or a resumed session.
#[derive(Debug)]
pub struct AgentRun<'a> {
    /// Facts about this machine and the user's environment.
    pub host: &'a Surroundings,
    /// Resolved settings.
    pub settings: &'a Settings,
    /// Project directory.
    pub project: &'a Path,
    /// Model to use.
    pub model: &'a ModelConfig,
    /// Name of the phase, if any.
    pub phase: Option<&'a str>,
    /// Additional text for the system prompt.
    pub addition: Option<String>,
    /// Instructions from files of the user and the project.
    pub instructions: Vec<Instructions>,
    /// True if the user is asked before each change.
    pub is_asked: bool,
    /// True if the user has agreed to all changes in advance.
    pub is_yes: bool,
    /// True if the user has named the sandbox, so that it outlives the run.
    pub is_kept: bool,
}

/// Open session.
#[derive(Debug)]
pub struct AgentSession {
    /// Log that contains the session.
    pub log: Log,
    /// Id of the session.
    pub id: String,
    /// Lock held while the session is open.
    pub lock: SessionLock,
    /// System prompt.
    pub system: String,
    /// Conversation so far.
    pub conversation: Conversation,
}

/// Session that is recorded and has no workplace yet.
#[derive(Debug)]
pub struct NewSession {
    /// Log that contains the session.
    pub log: Log,
    /// Id of the session.
    pub id: String,
    lock: SessionLock,
    task: String,
}

impl NewSession {
    /// Returns a random id for a new session.
    pub fn random_id() -> String {
        Name::random("s").to_string()
    }

    /// Records the session `id` with its `task`, from which secrets are removed.
    ///
    /// # Errors
    /// The log cannot be written or locked.
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

    /// Returns the task.
    pub(crate) fn task(&self) -> &str {
        &self.task
    }

    /// Converts to an open session with this system prompt.
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
    /// Begins a recorded session in its workplace.
    ///
    /// # Errors
    /// The log cannot be written, or the sandbox is lost.
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

    /// Returns the policy of this run, with the tools of its MCP servers.
    fn policy(&self, place: &AgentWorkplace) -> Result<Policy, Error> {
        let policy = place.work.policy(self.settings)?;
        // No second question if every change is asked about anyway, or the user agreed to all of
        // them.
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

    /// Returns the names of the tools of this run.
    fn tool_names(&self, place: &AgentWorkplace) -> Result<Vec<String>, Error> {
        let policy = self.policy(place)?;
        let own = policy.toolset().tools().map(|tool| tool.name.to_owned());
        let served = place.servers().map(Servers::definitions);
        let served = served.unwrap_or_default().into_iter().map(|tool| tool.name);
        let served = served.filter(|name| policy.has(name));
        Ok(own.chain(served).collect())
    }

    /// Returns the system prompt.
    ///
    /// # Errors
    /// The sandbox is lost, or the settings name an unknown toolset.
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

    /// Runs the loop to its end, then ends the MCP servers. An error of the run becomes its
    /// outcome: the caller has changes to settle in any case.
    pub fn perform(
        &self,
        place: &mut AgentWorkplace,
        frontend: &dyn AgentFrontend,
        session: &mut AgentSession,
    ) -> RunOutcome {
        let marked = session.log.set_state(&session.id, SessionState::Running);
        let verdict = match marked {
            Ok(()) => self.work(place, frontend, session),
            Err(fault) => Err(fault.into()),
        };
        place.end_servers(frontend);
        verdict.unwrap_or_else(|error| {
            let _ = session.log.set_state(&session.id, SessionState::Failed);
            frontend.notify(&Notice::RunFailed(&error));
            let fault = error.into_fault();
            RunOutcome {
                ending: Ending::Failed,
                message: fault.message.clone(),
                fault: Some(fault),
                remedy: None,
            }
        })
    }

    /// Runs the loop, again for each message that the user adds after a stop.
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

/// Returns the stop callback. The first request stops the loop; one after `LAST_STOP` also stops
/// the sandbox, because this process is about to be ended.
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

/// Gate for runs in which the user is asked before each change. The loop asks about calls of the
/// model, this gate about calls of scripts.
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

/// Answer to the model for a question that the user left unanswered.
pub const UNANSWERED: &str = "the user left the question unanswered";
