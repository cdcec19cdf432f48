//! Workflows: phases one after the other, on the same files; and what one leaves for the next, its answer and files.
//!
//! ```text
//! phase -> its answer and the files it leaves -> the task of the next phase, and files in its sandbox
//! ```
//!
//! There is one sandbox. Between two phases it is stopped and started again as the next one wants it, on
//! the files as they are, so that a phase that may write nothing is walled in as if it were alone. Each
//! phase is a session of its own. The first that does not end well, or does not leave what it should, is
//! the end of the workflow.

use super::{AgentSession, AgentWorkplace, ContextFile};
use crate::Error;
use glovebox_agent::{Conversation, Ending, Placement, RunOutcome, SessionState};
use glovebox_proto::{Code, Fault, Remedy, Setting, WriteMode};
use glovebox_sandbox::WorkspaceMode;
use glovebox_settings::{Phase, Settings};
use glovebox_spec::WORKSPACE;
use std::fmt::Write as _;
use std::path::Path;

/// Of one file that is left.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Of an answer, in the task of what follows.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Where files of earlier phases are, in a sandbox.
const ARTEFACTS: &str = "/tmp/artefacts";

/// A phase with all its settings.
#[derive(Debug)]
pub struct PlannedPhase<'a> {
    /// The phase.
    pub phase: &'a Phase,
    /// What it works with.
    pub settings: Settings,
}

impl PlannedPhase<'_> {
    /// What its model is told in addition: its own words, and what it has to leave.
    pub fn addition(&self) -> Option<String> {
        let mut addition = self.phase.prompt.clone().unwrap_or_default();
        if !self.phase.leaves.is_empty() {
            let _ = write!(
                addition,
                "\nBefore you are done, write what is to be kept for the next phase to: {}",
                self.phase.leaves.join(", ")
            );
        }
        let addition = addition.trim();
        (!addition.is_empty()).then(|| addition.to_owned())
    }
}

/// What a user interface does for the phases of a workflow.
pub trait PhaseDriver {
    /// Its own failures, and those from here.
    type Error: From<Error> + From<Fault>;

    /// A phase begins: which, and how many there are. The first is 1.
    fn phase_begins(&self, phase: &PlannedPhase<'_>, number: usize, count: usize);

    /// Starts the sandbox again as a phase wants it.
    ///
    /// # Errors
    /// When it does not start.
    fn renew(
        &self,
        phase: &PlannedPhase<'_>,
        place: AgentWorkplace,
    ) -> Result<AgentWorkplace, Self::Error>;

    /// Begins the session of a phase, with its servers.
    ///
    /// # Errors
    /// When it cannot begin, or the user has stopped it.
    fn begin(
        &self,
        phase: &PlannedPhase<'_>,
        place: &mut AgentWorkplace,
        task: String,
    ) -> Result<AgentSession, Self::Error>;

    /// Works until the end of the phase.
    ///
    /// # Errors
    /// When its events cannot be kept.
    fn perform(
        &self,
        phase: &PlannedPhase<'_>,
        place: &mut AgentWorkplace,
        session: &mut AgentSession,
    ) -> Result<RunOutcome, Self::Error>;

    /// Tells the user that a phase could not begin, and that the sandbox stays under its name with what it has.
    fn tell_kept(&self, name: Option<&str>);

    /// Nothing was done: the place is ended.
    fn abandon(&self, place: AgentWorkplace);
}

/// The last phase that was worked on, before its changes are settled.
#[derive(Debug)]
pub struct WorkflowEnd<'a> {
    /// The phase.
    pub phase: &'a PlannedPhase<'a>,
    /// Where it worked.
    pub place: AgentWorkplace,
    /// Its session, still open.
    pub session: AgentSession,
    /// How it ended, and so how the workflow did.
    pub outcome: RunOutcome,
}

/// Works on `task` in all `phases`, one after the other, up to the first that does not end well.
///
/// # Errors
/// When a phase cannot begin, or its events cannot be kept.
pub fn run_phases<'a, D: PhaseDriver>(
    driver: &D,
    phases: &'a [PlannedPhase<'a>],
    project: &Path,
    given: Option<&ContextFile>,
    mut place: AgentWorkplace,
    task: &str,
) -> Result<WorkflowEnd<'a>, D::Error> {
    let mut left: Vec<PhaseResult> = Vec::new();
    let mut before = Conversation::default();
    for (at, phase) in phases.iter().enumerate() {
        if at > 0 {
            let name = place.work.name().cloned();
            place = driver
                .renew(phase, place)
                .inspect_err(|_| driver.tell_kept(name.as_ref().map(AsRef::as_ref)))?;
        }
        driver.phase_begins(phase, at + 1, phases.len());
        let begun = brief(&mut place, given, &left, task)
            .map_err(D::Error::from)
            .and_then(|text| driver.begin(phase, &mut place, text));
        let mut session = match begun {
            Ok(session) => session,
            Err(error) if at == 0 => {
                driver.abandon(place);
                return Err(error);
            }
            Err(error) => {
                driver.tell_kept(place.work.name().map(AsRef::as_ref));
                return Err(error);
            }
        };
        session.conversation.count(&before);
        let mut outcome = driver.perform(phase, &mut place, &mut session)?;
        if outcome.ending == Ending::Completed {
            match PhaseResult::collect(&place, project, phase.phase, &outcome) {
                Ok(done) => left.push(done),
                Err(fault) => {
                    outcome = RunOutcome {
                        ending: Ending::Failed,
                        message: fault.message.clone(),
                        fault: Some(fault),
                        remedy: None,
                    };
                }
            }
        }
        if outcome.ending != Ending::Completed || at + 1 == phases.len() {
            return Ok(WorkflowEnd {
                phase,
                place,
                session,
                outcome,
            });
        }
        session
            .log
            .set_state(&session.id, SessionState::Completed)?;
        // The sandbox is the next session's.
        session.log.set_sandbox(&session.id, None)?;
        before = session.conversation;
    }
    driver.abandon(place);
    Err(Error::usage("the workflow has no phases", "add one").into())
}

/// The task of a phase with what came before, whose files are brought to where it finds them.
fn brief(
    place: &mut AgentWorkplace,
    given: Option<&ContextFile>,
    left: &[PhaseResult],
    task: &str,
) -> Result<String, Error> {
    let mut text = task.to_owned();
    if let Some(given) = given {
        place.bring(given)?;
    }
    for done in left {
        done.hand_over(place, &mut text)?;
    }
    Ok(text)
}

/// What a phase left.
#[derive(Debug)]
struct PhaseResult {
    phase: String,
    answer: String,
    /// Path as it was written, and content.
    files: Vec<(String, Vec<u8>)>,
}

/// Checks that the sandbox of a phase can be stopped and started again with its files, as it is between two phases.
///
/// # Errors
/// Usage, when its files would go with it.
pub fn check_phase(placement: Placement, phase: &Phase, settings: &Settings) -> Result<(), Error> {
    let has_layers =
        settings.has_layers_on_disk() && settings.workspace_mode() != WorkspaceMode::Copy;
    if placement == Placement::Sandbox && !has_layers {
        return Err(Error::usage(
            format!(
                "the phase `{}` is in a sandbox that does not outlive the one before it",
                phase.name
            ),
            Remedy::advice([
                "a workflow needs the native backend, its layers on disk and a workspace that is no copy; or use "
                    .into(),
                Setting::Local.into(),
            ]),
        ));
    }
    Ok(())
}

impl PhaseResult {
    /// The answer of a phase that is done, and the files it was to leave.
    ///
    /// # Errors
    /// When a file is not there.
    // TRUST: both come from the model and the sandbox; they are bounded, and go back to where they are from.
    fn collect(
        place: &AgentWorkplace,
        project: &Path,
        phase: &Phase,
        verdict: &RunOutcome,
    ) -> Result<Self, Fault> {
        let top = match place.work.placement() {
            Placement::Local => project,
            Placement::Sandbox => Path::new(WORKSPACE),
        };
        let mut files = Vec::new();
        for path in &phase.leaves {
            let inside = top.join(path);
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
        Ok(Self {
            phase: phase.name.clone(),
            answer: verdict.message[..end].to_owned(),
            files,
        })
    }

    /// Adds it to the task of a later phase, and brings its files to where that one finds them.
    ///
    /// # Errors
    /// When a file cannot be written there.
    fn hand_over(&self, place: &AgentWorkplace, task: &mut String) -> Result<(), Error> {
        let _ = write!(
            task,
            "\n\n[The phase `{}` came before this one. It ended with:]\n{}",
            self.phase, self.answer
        );
        for (path, content) in &self.files {
            let path = self.bring(place, path, content)?;
            let _ = write!(
                task,
                "\n[It left the file {path} ({} bytes).]",
                content.len()
            );
        }
        Ok(())
    }

    fn bring(&self, place: &AgentWorkplace, path: &str, content: &[u8]) -> Result<String, Fault> {
        if place.work.placement() == Placement::Local {
            return Ok(path.to_owned());
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        let inside = format!("{ARTEFACTS}/{}/{name}", self.phase);
        let sandbox = place.work.sandbox();
        sandbox.write_file(inside.as_bytes(), WriteMode::Replace, content)?;
        Ok(inside)
    }
}
