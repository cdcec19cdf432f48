//! `glovebox agent --workflow NAME`: phases one after the other, on the same files.
//!
//! ```text
//! phase -> its answer and the files it leaves -> the task of the next phase, and files in its sandbox
//! ```
//!
//! There is one sandbox. Between two phases it is stopped and started again as the next one wants it, on
//! the files as they are, so that a phase that may write nothing is walled in as if it were alone. Each
//! phase is a session of its own. The first that does not end well, or does not leave what it should, is
//! the end of the workflow: its ending is the workflow's, and what was changed by then is settled as ever.

use super::settle::{PhaseStep, load, refuse_unasked, settle};
use super::{AgentTerminal, Work, dry_run, load_context, task, workplace};
use crate::args::AgentArgs;
use crate::cmd::{Cx, TerminalFrontend};
use crate::exit::{CommandError, CommandResult};
use crate::render;
use crate::streams::Signals;
use glovebox_agent::{Conversation, Ending, Instructions, Placement, RunOutcome, SessionState};
use glovebox_session::agent::{
    AgentRun, AgentSession, AgentWorkplace, ContextFile, ModelConfig, PhaseResult, check_phase,
    find_model, load_instructions,
};
use glovebox_settings::BackendKind;
use glovebox_settings::{Phase, Settings};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;

/// A phase with all its settings.
struct PlannedPhase<'a> {
    phase: &'a Phase,
    settings: Settings,
}

/// Runs it.
pub(super) fn run(cx: &Cx, args: &AgentArgs, name: &str) -> CommandResult {
    let keep = args.keep.as_deref().map(crate::cmd::name).transpose()?;
    let (project, loaded) = load(cx)?;
    let (base, placement) = settle(cx, args, None, loaded.clone())?;
    let found = base.workflow(name)?;
    let mut planned = Vec::new();
    for phase in &found.value.phases {
        let step = PhaseStep {
            phase,
            origin: &found.origin,
        };
        let (settings, _) = settle(cx, args, Some(step), loaded.clone())?;
        check_phase(placement, phase, &settings)?;
        planned.push(PlannedPhase { phase, settings });
    }
    refuse_unasked(args, placement)?;
    let task = task(&args.task)?;
    let mut model = find_model(&cx.host, &base, None)?;
    if args.dry_run {
        return tell_plan(cx, args, &project, &planned, placement, &model);
    }
    model.learn_window();
    let given = load_context(cx, args)?;
    let instructions = load_instructions(&cx.host, &TerminalFrontend::new(cx), &base, &project)?;
    let signals = Signals::take_over()?;
    let chain = Chain {
        cx,
        args,
        project: &project,
        planned: &planned,
        model: &model,
        given,
        instructions,
        is_kept: keep.is_some(),
        signals: &signals,
    };
    let first = planned.first().map_or(&base, |planned| &planned.settings);
    let place = workplace::open(cx, first, &project, placement, keep.as_ref(), &signals)?;
    chain.work(place, &task)
}

fn tell_plan(
    cx: &Cx,
    args: &AgentArgs,
    project: &Path,
    planned: &[PlannedPhase<'_>],
    placement: Placement,
    model: &ModelConfig,
) -> CommandResult {
    let mut phases = Vec::new();
    for one in planned {
        let mut data = dry_run::facts(cx, args, project, &one.settings, placement, model)?;
        let settings = &one.settings;
        data.insert("phase".to_owned(), one.phase.name.as_str().into());
        data.insert("leaves".to_owned(), json!(one.phase.leaves));
        data.insert(
            "memory".to_owned(),
            settings.memory.value.to_string().into(),
        );
        phases.push(data);
    }
    if args.json {
        let data = json!({ "workflow": args.workflow, "phases": phases });
        render::print(render::envelope(true, "nothing was done", &data))?;
        return Ok(0);
    }
    let mut text = String::from("nothing was done; this would be:\n");
    for (at, data) in phases.iter().enumerate() {
        let _ = writeln!(text, " phase {} of {}", at + 1, phases.len());
        text.push_str(&dry_run::lines(data));
    }
    render::print(text)?;
    Ok(0)
}

/// All that the phases share.
struct Chain<'a> {
    cx: &'a Cx,
    args: &'a AgentArgs,
    project: &'a Path,
    planned: &'a [PlannedPhase<'a>],
    model: &'a ModelConfig,
    given: Option<ContextFile>,
    instructions: Vec<Instructions>,
    is_kept: bool,
    signals: &'a Signals,
}

impl Chain<'_> {
    fn work(&self, place: AgentWorkplace, task: &str) -> CommandResult {
        let mut place = place;
        let mut left: Vec<PhaseResult> = Vec::new();
        let mut before = Conversation::default();
        for (at, one) in self.planned.iter().enumerate() {
            if at > 0 {
                let name = place.work.name().cloned();
                place = workplace::renew(self.cx, place, &one.settings, self.project)
                    .inspect_err(|_| self.tell_kept(name.as_ref().map(AsRef::as_ref)))?;
            }
            self.cx.talk.note(format_args!(
                "phase {} ({} of {})",
                one.phase.name,
                at + 1,
                self.planned.len()
            ));
            let work = self.on(one);
            let begun = self.begin(&work, &mut place, task, &left);
            let mut session = match begun {
                Ok(session) => session,
                Err(error) if at == 0 => {
                    place.end(&TerminalFrontend::new(self.cx));
                    return Err(error);
                }
                Err(error) => {
                    self.tell_kept(place.work.name().map(AsRef::as_ref));
                    return Err(error);
                }
            };
            session.conversation.count(&before);
            let mut verdict = work.perform(&mut place, &mut session)?;
            if verdict.ending == Ending::Completed {
                match PhaseResult::collect(&place, self.project, one.phase, &verdict) {
                    Ok(done) => left.push(done),
                    Err(fault) => {
                        verdict = RunOutcome {
                            ending: Ending::Failed,
                            message: fault.message.clone(),
                            fault: Some(fault),
                            remedy: None,
                        };
                    }
                }
            }
            if verdict.ending != Ending::Completed || at + 1 == self.planned.len() {
                return work.finish(place, session, &verdict);
            }
            session
                .log
                .set_state(&session.id, SessionState::Completed)?;
            // The sandbox is the next session's.
            session.log.set_sandbox(&session.id, None)?;
            before = session.conversation;
        }
        Err(CommandError::usage("the workflow has no phases", "add one"))
    }

    fn on<'b>(&'b self, one: &'b PlannedPhase<'_>) -> Work<'b> {
        let mut addition = one.phase.prompt.clone().unwrap_or_default();
        if !one.phase.leaves.is_empty() {
            let _ = write!(
                addition,
                "\nBefore you are done, write what is to be kept for the next phase to: {}",
                one.phase.leaves.join(", ")
            );
        }
        let addition = addition.trim().to_owned();
        Work {
            cx: self.cx,
            run: AgentRun {
                host: &self.cx.host,
                settings: &one.settings,
                project: self.project,
                model: self.model,
                phase: Some(&one.settings.tools.toolset.value),
                addition: (!addition.is_empty()).then_some(addition),
                instructions: self.instructions.clone(),
                is_asked: one.settings.backend.value == BackendKind::Host && !self.args.yes,
                is_yes: self.args.yes,
                is_kept: self.is_kept,
            },
            terminal: AgentTerminal::new(self.cx, self.signals, self.args.json),
            apply: self.args.apply,
            is_json: self.args.json,
            signals: self.signals,
        }
    }

    /// Begins the session of a phase: the task, and what came before.
    fn begin(
        &self,
        work: &Work<'_>,
        place: &mut AgentWorkplace,
        task: &str,
        left: &[PhaseResult],
    ) -> Result<AgentSession, CommandError> {
        let mut text = task.to_owned();
        if let Some(given) = &self.given {
            place.bring(given)?;
        }
        for done in left {
            done.hand_over(place, &mut text)?;
        }
        self.signals.check()?;
        workplace::start_servers(
            self.cx,
            place,
            work.run.settings,
            self.project,
            self.signals,
        )?;
        work.begin(place, text)
    }

    fn tell_kept(&self, name: Option<&str>) {
        if let Some(name) = name {
            self.cx.talk.warning(format_args!(
                "the sandbox is kept: `glovebox diff {name}`, `glovebox pull {name}`, `glovebox kill {name}`"
            ));
        }
    }
}
