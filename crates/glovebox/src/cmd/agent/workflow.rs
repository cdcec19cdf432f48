//! `glovebox agent --workflow NAME`: phases one after the other, on the same files.
//!
//! [`run_phases`] decides how one phase leads to the next; this module adds the terminal. The
//! ending of the last phase that ran is the workflow's ending, and the changes up to it are
//! processed as for a single run.

use super::settle::{PhaseStep, load, refuse_unasked, settle};
use super::{AgentTerminal, Work, dry_run, load_context, task, workplace};
use crate::args::AgentArgs;
use crate::cmd::{Cx, TerminalFrontend};
use crate::exit::{CommandError, CommandResult};
use crate::render;
use crate::streams::Signals;
use glovebox_agent::{Instructions, Placement, RunOutcome};
use glovebox_session::agent::{
    AgentRun, AgentSession, AgentWorkplace, ModelConfig, PhaseDriver, PlannedPhase, check_phase,
    find_model, load_instructions, run_phases,
};
use glovebox_spec::LimitKind;
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;

/// Runs the workflow.
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
    let driver = TerminalPhases {
        cx,
        args,
        project: &project,
        model: &model,
        instructions,
        is_kept: keep.is_some(),
        signals: &signals,
    };
    let first = planned.first().map_or(&base, |planned| &planned.settings);
    let place = workplace::open(cx, first, &project, placement, keep.as_ref(), &signals)?;
    let end = run_phases(&driver, &planned, &project, given.as_ref(), place, &task)?;
    driver
        .on(end.phase)
        .finish(end.place, end.session, &end.outcome)
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
            settings.limits.text(LimitKind::Memory).into(),
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

/// State that the phases share at a terminal.
struct TerminalPhases<'a> {
    cx: &'a Cx,
    args: &'a AgentArgs,
    project: &'a Path,
    model: &'a ModelConfig,
    instructions: Vec<Instructions>,
    is_kept: bool,
    signals: &'a Signals,
}

impl PhaseDriver for TerminalPhases<'_> {
    type Error = CommandError;

    fn phase_begins(&self, one: &PlannedPhase<'_>, number: usize, count: usize) {
        self.cx.talk.note(format_args!(
            "phase {} ({number} of {count})",
            one.phase.name
        ));
    }

    fn renew(
        &self,
        one: &PlannedPhase<'_>,
        place: AgentWorkplace,
    ) -> Result<AgentWorkplace, CommandError> {
        workplace::renew(self.cx, place, &one.settings, self.project)
    }

    fn begin(
        &self,
        one: &PlannedPhase<'_>,
        place: &mut AgentWorkplace,
        task: String,
    ) -> Result<AgentSession, CommandError> {
        self.signals.check()?;
        workplace::start_servers(self.cx, place, &one.settings, self.project, self.signals)?;
        self.on(one).begin(place, task)
    }

    fn perform(
        &self,
        one: &PlannedPhase<'_>,
        place: &mut AgentWorkplace,
        session: &mut AgentSession,
    ) -> RunOutcome {
        self.on(one).perform(place, session)
    }

    fn tell_kept(&self, name: Option<&str>) {
        if let Some(name) = name {
            self.cx.talk.warning(format_args!(
                "the sandbox is kept: `glovebox diff {name}`, `glovebox pull {name}`, `glovebox kill {name}`"
            ));
        }
    }

    fn abandon(&self, place: AgentWorkplace) {
        place.end(&TerminalFrontend::new(self.cx));
    }
}

impl TerminalPhases<'_> {
    fn on<'b>(&'b self, one: &'b PlannedPhase<'_>) -> Work<'b> {
        Work {
            cx: self.cx,
            run: AgentRun {
                host: &self.cx.host,
                settings: &one.settings,
                project: self.project,
                model: self.model,
                phase: Some(&one.settings.tools.toolset.value),
                addition: one.addition(),
                instructions: self.instructions.clone(),
                is_asked: one.settings.backend.value.is_unwalled_here() && !self.args.yes,
                is_yes: self.args.yes,
                is_kept: self.is_kept,
            },
            terminal: AgentTerminal::new(self.cx, self.signals, self.args.json),
            apply: self.args.apply,
            is_json: self.args.json,
            signals: self.signals,
        }
    }
}
