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

use super::settle::{Step, load, refuse_unasked, settle};
use super::{AgentTerminal, Work, dry_run, load_context, task, workplace};
use crate::args::AgentArgs;
use crate::cmd::{Cx, TerminalFrontend};
use crate::exit::{CommandError, CommandResult};
use crate::render;
use crate::session::Signals;
use glovebox_agent::{Conversation, Ending, Instructions, Placement, SessionState, Verdict};
use glovebox_proto::{Code, Fault, WriteMode};
use glovebox_sandbox::jail::spec::WORKSPACE;
use glovebox_session::agent::{
    AgentRun, AgentSession, AgentWorkplace, ContextFile, ModelConfig, find_model, load_instructions,
};
use glovebox_settings::{BackendKind, WorkspaceMode};
use glovebox_settings::{Phase, Settings};
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Of one file that is left.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Of an answer, in the task of what follows.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Where files of earlier phases are, in a sandbox.
const ARTEFACTS: &str = "/tmp/artefacts";

/// A phase with all its settings.
struct Planned<'a> {
    phase: &'a Phase,
    settings: Settings,
}

/// What a phase left.
struct Left {
    phase: String,
    answer: String,
    /// Path as it was written, and content.
    files: Vec<(String, Vec<u8>)>,
}

/// Runs it.
pub(super) fn run(cx: &Cx, args: &AgentArgs, name: &str) -> CommandResult {
    let keep = args.keep.as_deref().map(crate::cmd::name).transpose()?;
    let (project, loaded) = load(cx)?;
    let (base, placement) = settle(cx, args, None, loaded.clone())?;
    let found = base.workflow(name)?;
    let mut planned = Vec::new();
    for phase in &found.value.phases {
        let step = Step {
            phase,
            origin: &found.origin,
        };
        let (settings, _) = settle(cx, args, Some(step), loaded.clone())?;
        check(placement, phase, &settings)?;
        planned.push(Planned { phase, settings });
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

/// Between phases a sandbox is stopped and started again with its files.
fn check(placement: Placement, phase: &Phase, settings: &Settings) -> Result<(), CommandError> {
    let has_layers =
        settings.has_layers_on_disk() && settings.workspace_mode() != WorkspaceMode::Copy;
    if placement == Placement::Sandbox && !has_layers {
        return Err(CommandError::usage(
            format!(
                "the phase `{}` is in a sandbox that does not outlive the one before it",
                phase.name
            ),
            "a workflow needs the native backend, its layers on disk and a workspace that is no copy; or use \
             --local",
        ));
    }
    Ok(())
}

fn tell_plan(
    cx: &Cx,
    args: &AgentArgs,
    project: &Path,
    planned: &[Planned<'_>],
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
    planned: &'a [Planned<'a>],
    model: &'a ModelConfig,
    given: Option<ContextFile>,
    instructions: Vec<Instructions>,
    is_kept: bool,
    signals: &'a Signals,
}

impl Chain<'_> {
    fn work(&self, place: AgentWorkplace, task: &str) -> CommandResult {
        let mut place = place;
        let mut left: Vec<Left> = Vec::new();
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
                match self.take_what_is_left(&place, one.phase, &verdict) {
                    Ok(done) => left.push(done),
                    Err(fault) => {
                        verdict = Verdict {
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

    fn on<'b>(&'b self, one: &'b Planned<'_>) -> Work<'b> {
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
        left: &[Left],
    ) -> Result<AgentSession, CommandError> {
        let mut text = task.to_owned();
        if let Some(given) = &self.given {
            place.bring(given)?;
        }
        for done in left {
            let _ = write!(
                text,
                "\n\n[The phase `{}` came before this one. It ended with:]\n{}",
                done.phase, done.answer
            );
            for (path, content) in &done.files {
                let path = put(place, &done.phase, path, content)?;
                let _ = write!(
                    text,
                    "\n[It left the file {path} ({} bytes).]",
                    content.len()
                );
            }
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

    /// The answer of a phase and the files it was to leave.
    // TRUST: both come from the model and the sandbox; they are bounded, and go back to where they are from.
    fn take_what_is_left(
        &self,
        place: &AgentWorkplace,
        phase: &Phase,
        verdict: &Verdict,
    ) -> Result<Left, Fault> {
        let mut files = Vec::new();
        for path in &phase.leaves {
            let inside = self.inside(place, path);
            let content = place
                .work
                .sandbox()
                .read_file(inside.as_os_str().as_encoded_bytes(), MAX_FILE_BYTES)
                .map_err(|fault| match fault.code {
                    Code::NotFound => Fault::failed(
                        Code::NotFound,
                        format!("the phase `{}` did not leave {path}", phase.name),
                    ),
                    _ => fault,
                })?;
            files.push((path.clone(), content));
        }
        let end = verdict.message.floor_char_boundary(MAX_ANSWER_BYTES);
        Ok(Left {
            phase: phase.name.clone(),
            answer: verdict.message[..end].to_owned(),
            files,
        })
    }

    fn inside(&self, place: &AgentWorkplace, path: &str) -> PathBuf {
        match place.work.placement() {
            Placement::Local => self.project.join(path),
            Placement::Sandbox => Path::new(WORKSPACE).join(path),
        }
    }

    fn tell_kept(&self, name: Option<&str>) {
        if let Some(name) = name {
            self.cx.talk.warning(format_args!(
                "the sandbox is kept: `glovebox diff {name}`, `glovebox pull {name}`, `glovebox kill {name}`"
            ));
        }
    }
}

/// Brings a file of an earlier phase to where the next one finds it; gives its path there.
fn put(
    place: &AgentWorkplace,
    phase: &str,
    path: &str,
    content: &[u8],
) -> Result<String, CommandError> {
    if place.work.placement() == Placement::Local {
        return Ok(path.to_owned());
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let inside = format!("{ARTEFACTS}/{phase}/{name}");
    place
        .work
        .sandbox()
        .write_file(inside.as_bytes(), WriteMode::Replace, content)?;
    Ok(inside)
}
