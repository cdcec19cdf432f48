//! `glovebox agent`: a task, a model outside, tools in one place, and the changes back.
//!
//! ```text
//! decide where the tools work -> find the model -> start the workplace -> describe it to the model
//! -> the loop (glovebox_agent) -> collect the changes, however it ended -> apply or keep them
//! ```
//!
//! No ending loses work: a sandbox whose changes were not applied stays under its name unless the
//! user allowed discarding them.

mod approve;
mod dry_run;
mod ending;
mod settle;
mod shown_call;
mod terminal;
mod view;
mod workflow;
pub(crate) mod workplace;

pub(crate) use settle::lay_phase;
pub(crate) use terminal::AgentTerminal;
pub(crate) use view::{View, placed, summary};

use crate::args::{AgentArgs, Apply};
use crate::cmd::{Cx, TerminalFrontend};
use crate::exit::{CONFLICT, CommandError, CommandResult};
use crate::render;
use crate::streams::Signals;
use crate::sync::settle::SettleOutcome;
use dry_run::dry_run;
pub(crate) use ending::{code_of, state_of, tell};
use glovebox_agent::{Ending, Log, Placement, RunOutcome, SessionState};
use glovebox_sandbox::WorkspaceMode;
use glovebox_session::agent::{
    AgentRun, AgentSession, AgentWorkplace, ContextFile, NewSession, find_model, load_instructions,
};
use glovebox_session::host::now_unix_ms;
use glovebox_settings::Settings;
use glovebox_spec::WORKSPACE;
use serde_json::json;
use settle::{load, refuse_unasked, settle};
use std::io::Read;

/// Maximum length of a task in bytes.
const MAX_TASK_BYTES: u64 = 1 << 20;

/// Runs the command.
pub(crate) fn run(cx: &Cx, args: &AgentArgs) -> CommandResult {
    if let Some(name) = &args.workflow {
        return workflow::run(cx, args, name);
    }
    let keep = args.keep.as_deref().map(super::name).transpose()?;
    let (project, settings) = load(cx)?;
    let (settings, placement) = settle(cx, args, None, settings)?;
    refuse_unasked(args, placement)?;
    let task = task(&args.task)?;
    let mut model = find_model(&cx.host, &settings, None)?;
    if args.dry_run {
        return dry_run(cx, args, &project, &settings, placement, &model);
    }
    model.learn_window();
    let given = load_context(cx, args)?;
    let instructions =
        load_instructions(&cx.host, &TerminalFrontend::new(cx), &settings, &project)?;
    let signals = Signals::take_over()?;
    let mut place = workplace::open(cx, &settings, &project, placement, keep.as_ref(), &signals)?;
    let work = Work {
        cx,
        run: AgentRun {
            host: &cx.host,
            settings: &settings,
            project: &project,
            model: &model,
            phase: args.phase.as_deref(),
            addition: None,
            instructions,
            is_asked: placement == Placement::Local && !args.yes,
            is_yes: args.yes,
            is_kept: keep.is_some(),
        },
        terminal: AgentTerminal::new(cx, &signals, args.json),
        apply: args.apply,
        is_json: args.json,
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
            // Without a session nothing else removes the sandbox.
            place.end(&TerminalFrontend::new(cx));
            Err(error)
        }
    }
}

/// Reads the context file that accompanies the task. None if the command line names none.
fn load_context(cx: &Cx, args: &AgentArgs) -> Result<Option<ContextFile>, CommandError> {
    let read = |file| ContextFile::read(&cx.host, file);
    Ok(args.context.as_deref().map(read).transpose()?)
}

/// Returns the text of a task, from the command line or standard input (`-`).
pub(crate) fn task(given: &str) -> Result<String, CommandError> {
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

/// Opens the session log of this user.
pub(crate) fn open_log(cx: &Cx, settings: &Settings) -> Result<Log, CommandError> {
    Ok(Log::open(
        &cx.state_dir(settings)?.join("sessions"),
        now_unix_ms,
    )?)
}

/// Run of an agent at a terminal, new or resumed.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    pub cx: &'a Cx,
    pub run: AgentRun<'a>,
    pub terminal: AgentTerminal<'a>,
    pub apply: Option<Apply>,
    pub is_json: bool,
    pub signals: &'a Signals,
}

impl Work<'_> {
    /// Creates a new session in the log.
    fn begin(&self, place: &AgentWorkplace, task: String) -> Result<AgentSession, CommandError> {
        let log = open_log(self.cx, self.run.settings)?;
        let (model, project) = (self.run.model, self.run.project);
        let placement = place.work.placement().as_str();
        let (id, state) = (NewSession::random_id(), SessionState::Running);
        let new = NewSession::create(log, id, state, task, model, placement, project)?;
        let session = self.run.begin(place, &self.terminal, new)?;
        self.banner(place, &session.id);
        Ok(session)
    }

    /// Prints where the tools work, before they start.
    pub(crate) fn banner(&self, place: &AgentWorkplace, id: &str) {
        let model = render::escape_text(&self.run.model.model.label());
        let project = self.cx.short(self.run.project);
        let place = match place.work.name() {
            Some(name) => {
                let backend = place.work.sandbox().info().backend;
                let net = self.run.settings.net.value;
                let net = if backend.capabilities().networks.contains(&net) {
                    glovebox_settings::net_word(net)
                } else {
                    "as it is there"
                };
                let dir = if backend.has_layers() {
                    WORKSPACE.to_owned()
                } else {
                    name.directory_elsewhere()
                };
                let what = match self.run.settings.workspace_mode() {
                    WorkspaceMode::None => "without a project".to_owned(),
                    mode => format!("{project} as {dir} ({})", mode.as_str()),
                };
                format!("sandbox {name}: {what}, network {net}")
            }
            None if self.run.is_asked => {
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
        if !self.run.instructions.is_empty() {
            let files: Vec<String> = self
                .run
                .instructions
                .iter()
                .map(ToString::to_string)
                .collect();
            self.cx
                .talk
                .note(format_args!("instructions: {}", files.join(", ")));
        }
    }

    /// Runs the agent until it ends, then processes the changes.
    pub(crate) fn carry_out(
        &self,
        mut place: AgentWorkplace,
        mut session: AgentSession,
    ) -> CommandResult {
        let verdict = self.perform(&mut place, &mut session);
        self.finish(place, session, &verdict)
    }

    /// Runs the agent until it ends.
    fn perform(&self, place: &mut AgentWorkplace, session: &mut AgentSession) -> RunOutcome {
        self.run.perform(place, &self.terminal, session)
    }

    /// Reports how the run ended, and processes the changes.
    fn finish(
        &self,
        place: AgentWorkplace,
        session: AgentSession,
        verdict: &RunOutcome,
    ) -> CommandResult {
        // Record the ending before the changes are processed: that may fail or wait for the user,
        // and the session would still read as running.
        // A full disk is no reason to leave them unsettled, so an error waits.
        let recorded = session.log.set_state(&session.id, state_of(verdict.ending));
        tell(self.cx, verdict);
        let sandbox = place.work.name().map(ToString::to_string);
        let settled = self.settle_changes(place, verdict.ending, &session);
        let code = match (&settled, verdict.ending) {
            (
                Ok(
                    SettleOutcome::Conflicts
                    | SettleOutcome::Unplaced(_)
                    | SettleOutcome::GitStays { is_refused: true },
                ),
                Ending::Completed,
            ) => CONFLICT,
            (Err(error), Ending::Completed) => error.exit_code(),
            _ => code_of(verdict),
        };
        if self.is_json {
            let data = json!({
                "session": session.id,
                "phase": self.run.phase,
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
        // Held until here: no other process may resume the session while its changes are processed.
        drop(session.lock);
        recorded?;
        Ok(code)
    }
}
