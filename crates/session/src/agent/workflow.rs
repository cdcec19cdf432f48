//! Workflows: phases one after another on the same files. Each passes its answer and files to the
//! next.
//!
//! ```text
//! phase -> its answer and its files -> the task of the next phase, and files in its sandbox
//! ```
//!
//! There is one sandbox. Between two phases it is stopped and started again with the settings of
//! the next one, on the same files, so that a read-only phase is isolated as if it were alone. Each
//! phase is a session of its own. The workflow ends at the first phase that does not complete or
//! does not leave the files that it should.

use super::{AgentSession, AgentWorkplace, ContextFile};
use crate::Error;
use glovebox_agent::{Conversation, Ending, Placement, RunOutcome, SessionState};
use glovebox_proto::{Code, Fault, Remedy, Setting, WriteMode};
use glovebox_sandbox::WorkspaceMode;
use glovebox_settings::{Phase, Settings};
use glovebox_spec::WORKSPACE;
use std::fmt::Write as _;
use std::path::Path;

/// Maximum size of one file that a phase leaves, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum size of an answer in the task of later phases, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Directory in the sandbox for files of earlier phases.
const ARTEFACTS: &str = "/tmp/artefacts";

/// Phase with its settings.
#[derive(Debug)]
pub struct PlannedPhase<'a> {
    /// The phase as configured.
    pub phase: &'a Phase,
    /// Settings of the phase.
    pub settings: Settings,
}

impl PlannedPhase<'_> {
    /// Returns the addition to the phase's prompt: its own text, and the files that it has to
    /// leave.
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

/// Steps of a workflow that the user interface performs.
pub trait PhaseDriver {
    /// Error of the steps, which also holds the errors of this crate.
    type Error: From<Error> + From<Fault>;

    /// Announces that phase `number` of `count` begins. The first is 1.
    fn phase_begins(&self, phase: &PlannedPhase<'_>, number: usize, count: usize);

    /// Restarts the sandbox with the settings of a phase.
    ///
    /// # Errors
    /// The sandbox does not start.
    fn renew(
        &self,
        phase: &PlannedPhase<'_>,
        place: AgentWorkplace,
    ) -> Result<AgentWorkplace, Self::Error>;

    /// Begins the session of a phase, with its MCP servers.
    ///
    /// # Errors
    /// The session cannot begin, or the user has stopped it.
    fn begin(
        &self,
        phase: &PlannedPhase<'_>,
        place: &mut AgentWorkplace,
        task: String,
    ) -> Result<AgentSession, Self::Error>;

    /// Runs a phase to its end. An error becomes its outcome.
    fn perform(
        &self,
        phase: &PlannedPhase<'_>,
        place: &mut AgentWorkplace,
        session: &mut AgentSession,
    ) -> RunOutcome;

    /// Tells the user that a phase could not begin and that the sandbox is kept under its name.
    fn tell_kept(&self, name: Option<&str>);

    /// Ends the workplace of a workflow in which nothing was done.
    fn abandon(&self, place: AgentWorkplace);
}

/// Last phase of a workflow, before its changes are settled.
#[derive(Debug)]
pub struct WorkflowEnd<'a> {
    /// The phase.
    pub phase: &'a PlannedPhase<'a>,
    /// Workplace of the phase.
    pub place: AgentWorkplace,
    /// Session of the phase, still open.
    pub session: AgentSession,
    /// Outcome of the phase, and so of the workflow.
    pub outcome: RunOutcome,
}

/// Runs `phases` on `task` one after another, up to the first that does not complete.
///
/// # Errors
/// A phase cannot begin, or its events cannot be written.
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
        let mut outcome = driver.perform(phase, &mut place, &mut session);
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
        // The sandbox now belongs to the next session.
        session.log.set_sandbox(&session.id, None)?;
        before = session.conversation;
    }
    driver.abandon(place);
    Err(Error::usage("the workflow has no phases", "add one").into())
}

/// Returns the task of a phase with the results of earlier ones, and copies their files to where
/// the phase finds them.
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

/// Result of a phase.
#[derive(Debug)]
struct PhaseResult {
    phase: String,
    answer: String,
    /// Path as configured, and content.
    files: Vec<(String, Vec<u8>)>,
}

/// Checks that a phase's sandbox can be restarted with its files, as between two phases.
///
/// # Errors
/// Usage error if the sandbox would lose its files.
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
    /// Collects the answer of a completed phase and the files that it had to leave.
    ///
    /// # Errors
    /// A file does not exist or is too large.
    // TRUST: both come from the model and the sandbox; they are bounded, and go back to where they
    // are from.
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

    /// Appends the result to the task of a later phase, and copies its files to where that phase
    /// finds them.
    ///
    /// # Errors
    /// A file cannot be written there.
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
