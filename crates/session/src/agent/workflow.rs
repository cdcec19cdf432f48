//! What one phase of a workflow leaves for the next: its answer, and files.

use super::AgentWorkplace;
use crate::Error;
use glovebox_agent::{Placement, RunOutcome};
use glovebox_proto::{Code, Fault, Remedy, Setting, WriteMode};
use glovebox_sandbox::jail::spec::WORKSPACE;
use glovebox_settings::{Phase, Settings, WorkspaceMode};
use std::fmt::Write as _;
use std::path::Path;

/// Of one file that is left.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Of an answer, in the task of what follows.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Where files of earlier phases are, in a sandbox.
const ARTEFACTS: &str = "/tmp/artefacts";

/// What a phase left.
#[derive(Debug)]
pub struct PhaseResult {
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
    pub fn collect(
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
    pub fn hand_over(&self, place: &AgentWorkplace, task: &mut String) -> Result<(), Error> {
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
