//! `glovebox agent`: a task, a model outside, tools in one place, and the change back.
//!
//! ```text
//! settle where the tools work -> find the model -> start the place -> tell the model about it
//! -> the loop (glovebox_agent) -> collect what changed, whatever the ending -> take it over or keep it
//! ```
//!
//! Nothing of the work is lost by how a run ends: a sandbox whose changes were not taken over stays
//! under its name unless the user said they may go.

mod approve;
mod dry_run;
mod ending;
mod settle;
mod view;
mod workflow;
pub(crate) mod workplace;

pub(crate) use settle::lay_phase;
pub(crate) use view::{View, placed, summary};

use crate::args::{AgentArgs, Apply};
use crate::cmd::{Cx, TerminalFrontend};
use crate::exit::{CONFLICT, CommandError, CommandResult, Kind};
use crate::render;
use crate::session::{OnWish, Signals};
use crate::sync::question;
use crate::sync::settle::SettleOutcome;
use approve::{AskedGate, AtTerminal};
use dry_run::dry_run;
use ending::state_of;
use glovebox_agent::{
    Approve, Conversation, Date, Ending, Event, Head, Instructions, Log, Message, NoApproval,
    Observe, Placement, Questions, SessionInfo, SessionState, Stop, Toolbox, Tools as _, Verdict,
    system_prompt,
};
use glovebox_mcp::client::Servers;
use glovebox_proto::Class;
use glovebox_sandbox::Name;
use glovebox_session::agent::{
    AgentWorkplace, ContextFile, ModelConfig, ToolsetFilter, find_model, load_instructions,
    phase_instruction,
};
use glovebox_settings::Settings;
use glovebox_settings::WorkspaceMode;
use glovebox_tools::policy::{Gate, Permit, Policy, Served};
use serde_json::json;
use settle::{load, refuse_unasked, settle};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// More than any task that is written by hand.
const MAX_TASK_BYTES: u64 = 1 << 20;
/// The wish after which nobody is asked any more.
const SECOND_WISH: u32 = 2;

/// Runs it.
pub(crate) fn run(cx: &Cx, args: &AgentArgs) -> CommandResult {
    if let Some(name) = &args.workflow {
        return workflow::run(cx, args, name);
    }
    let keep = args.keep.as_deref().map(super::name).transpose()?;
    let (project, settings) = load(cx)?;
    let (settings, placement) = settle(cx, args, None, settings)?;
    refuse_unasked(args, placement)?;
    let task = task(&args.task)?;
    let mut thinker = find_model(&cx.host, &settings, None)?;
    if args.dry_run {
        return dry_run(cx, args, &project, &settings, placement, &thinker);
    }
    thinker.learn_window();
    let given = load_context(cx, args)?;
    let instructions =
        load_instructions(&cx.host, &TerminalFrontend::new(cx), &settings, &project)?;
    let signals = Signals::take_over()?;
    let mut place = workplace::open(cx, &settings, &project, placement, keep.as_ref(), &signals)?;
    let work = Work {
        cx,
        settings: &settings,
        project: &project,
        thinker: &thinker,
        phase: args.phase.as_deref(),
        addition: None,
        instructions,
        apply: args.apply,
        is_asked: placement == Placement::Local && !args.yes,
        is_yes: args.yes,
        is_json: args.json,
        is_kept: keep.is_some(),
        signals: &signals,
    };
    let begun = (|| {
        if let Some(given) = &given {
            place.bring(given)?;
        }
        signals.check()?;
        workplace::start_servers(cx, &mut place, &settings, &project, &signals)?;
        work.begin(&place, task)
    })();
    match begun {
        Ok(session) => work.carry_out(place, session),
        Err(error) => {
            place.end(&TerminalFrontend::new(cx));
            Err(error)
        }
    }
}

/// The file that comes along with the task, if there is to be one.
fn load_context(cx: &Cx, args: &AgentArgs) -> Result<Option<ContextFile>, CommandError> {
    let read = |file| ContextFile::read(&cx.host, file);
    Ok(args.context.as_deref().map(read).transpose()?)
}

fn task(given: &str) -> Result<String, CommandError> {
    let mut text = given.to_owned();
    if given == "-" {
        text.clear();
        std::io::stdin()
            .take(MAX_TASK_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|error| CommandError::io("read the task from standard input", &error))?;
    }
    if text.len() as u64 > MAX_TASK_BYTES {
        return Err(CommandError::usage(
            "the task has more than 1 MiB",
            "put it into a file and give it with --context FILE",
        ));
    }
    if text.trim().is_empty() {
        return Err(CommandError::usage(
            "there is no task",
            "say what is to be done: glovebox agent --sandbox \"make the tests pass\"",
        ));
    }
    Ok(text)
}

pub(crate) fn now_unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// The sessions of this user.
pub(crate) fn open_log(cx: &Cx, settings: &Settings) -> Result<Log, CommandError> {
    Ok(Log::open(
        &cx.state_dir(settings)?.join("sessions"),
        now_unix_ms,
    )?)
}

/// One run of an agent, new or taken up again.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    pub cx: &'a Cx,
    pub settings: &'a Settings,
    pub project: &'a Path,
    pub thinker: &'a ModelConfig,
    pub phase: Option<&'a str>,
    /// What the model is told in addition.
    pub addition: Option<String>,
    /// What files of the user's and of the project tell it.
    pub instructions: Vec<Instructions>,
    pub apply: Option<Apply>,
    pub is_asked: bool,
    pub is_yes: bool,
    pub is_json: bool,
    pub is_kept: bool,
    pub signals: &'a Signals,
}

/// A session that is open.
#[derive(Debug)]
pub(crate) struct Session {
    pub log: Log,
    pub id: String,
    pub lock: glovebox_agent::SessionLock,
    pub system: String,
    pub conversation: Conversation,
}

impl Work<'_> {
    /// Writes down a new session.
    fn begin(&self, place: &AgentWorkplace, task: String) -> Result<Session, CommandError> {
        let system = self.system(place)?;
        let log = open_log(self.cx, self.settings)?;
        let id = Name::random("s").to_string();
        let task = self.thinker.secrets.clean(task);
        let lock = log.lock(&id)?;
        log.create(&SessionInfo {
            id: id.clone(),
            state: SessionState::Running,
            task: task.clone(),
            model: self.thinker.model.label(),
            placement: place.work.placement().to_string(),
            sandbox: place.work.name().map(ToString::to_string),
            project: self.project.to_owned(),
            created_unix_ms: 0,
            updated_unix_ms: 0,
            events: 0,
        })?;
        let started = Event::Started {
            task: task.clone(),
            model: self.thinker.model.label(),
            placement: place.work.placement().to_string(),
            sandbox: place.work.name().map(ToString::to_string),
            own_sandbox: place
                .work
                .name()
                .filter(|_| !self.is_kept)
                .map(ToString::to_string),
            system: system.clone(),
            tools: self.tools(place)?,
            phase: self.phase.map(str::to_owned),
            addition: self.addition.clone(),
            context: place.context.clone(),
        };
        View::new(self.cx, Some((&log, &id)), self.is_json).observe(&started)?;
        self.banner(place, &id);
        Ok(Session {
            log,
            id,
            lock,
            system,
            conversation: Conversation::new(task),
        })
    }

    /// The rules of this run, with the tools of its servers.
    fn policy(&self, place: &AgentWorkplace) -> Result<Policy, CommandError> {
        let policy = place.work.policy(self.settings)?;
        // Where each change is asked about anyway, or the user said yes to all, no second question.
        let is_asked = place.work.placement() == Placement::Sandbox && !self.is_yes;
        let served = place.servers().map(Servers::definitions);
        let served = served.unwrap_or_default().into_iter().map(|tool| Served {
            is_asked: is_asked && !tool.is_read_only,
            is_read_only: tool.is_read_only,
            name: tool.name,
        });
        Ok(policy.with_served(served.collect()))
    }

    /// Names of the tools of this run.
    fn tools(&self, place: &AgentWorkplace) -> Result<Vec<String>, CommandError> {
        let policy = self.policy(place)?;
        let own = policy.toolset().tools().map(|tool| tool.name.to_owned());
        let served = place.servers().map(Servers::definitions);
        let served = served.unwrap_or_default().into_iter().map(|tool| tool.name);
        let served = served.filter(|name| policy.has(name));
        Ok(own.chain(served).collect())
    }

    /// What the model is told about where it is.
    pub(crate) fn system(&self, place: &AgentWorkplace) -> Result<String, CommandError> {
        let mut facts = {
            let start_dir = self.cx.host.start_dir(self.project);
            place.facts(self.settings, self.project, &start_dir)?
        };
        facts.today = Date::from_unix_ms(now_unix_ms());
        facts.questions = match (question::is_possible(), self.is_asked) {
            (false, _) => Questions::Nobody,
            (true, true) => Questions::EachChange,
            (true, false) => Questions::Rules,
        };
        facts.instructions.clone_from(&self.instructions);
        facts.can_run_scripts = self.policy(place)?.toolset().has("RunJS");
        let words = self.phase.and_then(phase_instruction).map(str::to_owned);
        let additions: Vec<String> = words.into_iter().chain(self.addition.clone()).collect();
        facts.addition = (!additions.is_empty()).then(|| additions.join("\n\n"));
        Ok(self.thinker.secrets.clean(system_prompt(&facts)))
    }

    /// Says where the tools work, before they do.
    pub(crate) fn banner(&self, place: &AgentWorkplace, id: &str) {
        let model = render::escape_text(&self.thinker.model.label());
        let project = self.cx.short(self.project);
        let place = match place.work.name() {
            Some(name) => {
                let net = glovebox_settings::net_word(self.settings.net.value);
                let what = match self.settings.workspace_mode() {
                    WorkspaceMode::None => "without a project".to_owned(),
                    mode => format!("{project} as /workspace ({})", mode.as_str()),
                };
                format!("sandbox {name}: {what}, network {net}")
            }
            None if self.is_asked => {
                format!(
                    "local: the tools work on your files in {project}; you are asked before each change"
                )
            }
            None => format!("local: the tools work on your files in {project}, without asking"),
        };
        self.cx.talk.note(format_args!("{place}"));
        self.cx
            .talk
            .note(format_args!("model {model}, session {id}"));
        if !self.instructions.is_empty() {
            let files: Vec<String> = self.instructions.iter().map(ToString::to_string).collect();
            self.cx
                .talk
                .note(format_args!("instructions: {}", files.join(", ")));
        }
    }

    /// Works until the end, then settles what changed.
    pub(crate) fn carry_out(
        &self,
        mut place: AgentWorkplace,
        mut session: Session,
    ) -> CommandResult {
        let verdict = self.perform(&mut place, &mut session)?;
        self.finish(place, session, &verdict)
    }

    /// Works until the end.
    fn perform(
        &self,
        place: &mut AgentWorkplace,
        session: &mut Session,
    ) -> Result<Verdict, CommandError> {
        session.log.set_state(&session.id, SessionState::Running)?;
        let verdict = self.think(place, session);
        place.end_servers(&TerminalFrontend::new(self.cx));
        Ok(verdict.unwrap_or_else(|error| {
            let _ = session.log.set_state(&session.id, SessionState::Failed);
            self.cx.talk.error(&error);
            Verdict {
                ending: Ending::Failed,
                message: error.fault.message.clone(),
                fault: Some(error.fault),
                remedy: None,
            }
        }))
    }

    /// Says how it ended, and settles what changed.
    fn finish(&self, place: AgentWorkplace, session: Session, verdict: &Verdict) -> CommandResult {
        session
            .log
            .set_state(&session.id, state_of(verdict.ending))?;
        self.tell(verdict);
        let sandbox = place.work.name().map(ToString::to_string);
        let settled = self.settle_changes(place, verdict.ending, &session);
        let code = match (&settled, verdict.ending) {
            (Ok(SettleOutcome::Conflicts), Ending::Completed) => CONFLICT,
            (Err(error), Ending::Completed) => error.exit_code(),
            (_, Ending::Completed) => 0,
            (_, Ending::Failed) => match &verdict.fault {
                Some(fault) if fault.class == Class::Refused => Kind::Refused.exit_code(),
                _ => Kind::Failed.exit_code(),
            },
            (_, Ending::Aborted) => Kind::Interrupted.exit_code(),
            (_, Ending::Lost) => Kind::Lost.exit_code(),
            (_, Ending::StoppedByLimit) => Kind::Limit.exit_code(),
        };
        if self.is_json {
            let data = json!({
                "session": session.id,
                "phase": self.phase,
                "ending": verdict.ending,
                "sandbox": sandbox,
                "turns": session.conversation.turns,
                "usage": session.conversation.spent.usage(),
                "uncounted_answers": session.conversation.spent.uncounted_answers(),
                "cost_usd": session.conversation.spent.cost_usd(),
                "fault": verdict.fault.as_ref().map(|fault| fault.code.as_str()),
            });
            render::print(render::envelope(code == 0, &verdict.message, &data))?;
        } else if verdict.ending != Ending::Completed {
            self.cx.talk.note(format_args!(
                "`glovebox sessions resume {}` goes on from here",
                session.id
            ));
        }
        drop(session.lock);
        Ok(code)
    }

    /// The loop, as often as the user has something to add.
    fn think(
        &self,
        place: &AgentWorkplace,
        session: &mut Session,
    ) -> Result<Verdict, CommandError> {
        let stop = Stop::default();
        let policy = self.policy(place)?;
        let servers = place.servers().map(Servers::labels).unwrap_or_default();
        let user = AtTerminal::new(self.signals, &self.thinker.secrets, servers);
        let user = Arc::new(user);
        let gate = place.work.gate(policy.clone());
        let gate = if question::is_possible() {
            gate.asking(Arc::<AtTerminal>::clone(&user))
        } else {
            gate
        };
        let gate = Arc::new(gate);
        let permit: Arc<dyn Permit> = if self.is_asked {
            Arc::new(AskedGate {
                gate: Arc::clone(&gate),
                user: Arc::clone(&user),
            })
        } else {
            Arc::<Gate>::clone(&gate)
        };
        let hands = place.hands().with_permit(permit);
        let mut toolbox = Toolbox::default().with(Arc::new(hands));
        if let Some(servers) = place.servers() {
            toolbox = toolbox.with(Arc::new(servers.with_permit(gate)));
        }
        let tools = ToolsetFilter {
            tools: toolbox,
            policy,
            is_local: place.work.placement() == Placement::Local,
        };
        let approve: &dyn Approve = if self.is_asked {
            user.as_ref()
        } else {
            &NoApproval
        };
        let head = Head {
            model: self.thinker.model.as_ref(),
            tools: &tools,
            approve,
            system: &session.system,
            limits: self.settings.agent_limits(),
            price: self.thinker.price,
            budget: self.thinker.budget,
            secrets: &self.thinker.secrets,
            stop: stop.clone(),
        };
        let mut view = View::new(self.cx, Some((&session.log, &session.id)), self.is_json);
        let stoppable = place.work.stoppable();
        loop {
            let stoppable = stoppable.clone();
            let wish = stop.clone();
            let (id, is_quiet) = (session.id.clone(), self.cx.talk.is_quiet);
            self.signals.work(OnWish(Box::new(move |count| {
                wish.ask();
                if count == SECOND_WISH && !is_quiet {
                    render::say(format_args!(
                        "glovebox: once more ends the program at once; `glovebox sessions resume {id}` goes on then"
                    ));
                }
                if count > SECOND_WISH
                    && let Some(sandbox) = &stoppable
                {
                    sandbox.begin_stop("the agent was ended at once");
                }
            })));
            let verdict = head.run(&mut session.conversation, &mut view);
            let wishes = self.signals.rest();
            let is_over = verdict.ending != Ending::Aborted
                || wishes >= SECOND_WISH
                || self.is_json
                || !question::is_possible();
            if is_over {
                return Ok(verdict);
            }
            let more = question::words(
                "stopped. What should it do instead? (empty: leave it at that)",
                self.signals,
            );
            let Some(words) = more.filter(|words| !words.is_empty()) else {
                return Ok(verdict);
            };
            stop.clear();
            let text = self.thinker.secrets.clean(words);
            view.observe(&Event::Said { text: text.clone() })?;
            session.conversation.messages.push(Message::User { text });
        }
    }
}
