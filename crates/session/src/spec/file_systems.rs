//! Projects on file systems that cannot be a layer of a sandbox: they come in as a copy. That is told, and is not done
//! against an explicit setting.

use super::mounted::lay_mounts;
use crate::Error;
use crate::note::Note;
use glovebox_proto::{Remedy, Setting};
use glovebox_sandbox::{CopyReason, Files, WorkspaceMode, find_copy_reason, name_file_system};
use glovebox_settings::Settings;
use std::path::Path;

/// File systems from which nothing has to be copied, for remedies.
const ORDINARY: &str = "ext4, xfs or btrfs";

/// Fits the settings to the file systems of a project, and returns what to tell of that: the workspace is a copy where
/// the project cannot be shown as it is or has others mounted below it.
///
/// # Errors
/// A usage error if a setting asks for what these file systems cannot do.
pub fn fit_file_systems(
    settings: &mut Settings,
    project: &Path,
    state_dir: &Path,
) -> Result<Vec<Note>, Error> {
    if settings.backend.value.capabilities().files != Files::Layers {
        return Ok(Vec::new());
    }
    let mut notes = lay_mounts(settings, project)?;
    let is_shown = matches!(
        settings.workspace_mode(),
        WorkspaceMode::Overlay | WorkspaceMode::ReadOnly
    );
    if is_shown && let Some(reason) = find_copy_reason(project, state_dir) {
        let kind = name_file_system(project);
        let cannot = match reason {
            CopyReason::Owners => "cannot translate owners",
            CopyReason::Overlay => "cannot be a layer of a sandbox",
        };
        copy_project(settings, project, cannot)?;
        notes.push(Note {
            what: format!(
                "the project lies on {kind}, which {cannot}: it is copied, and changes come back by comparison"
            ),
            remedy: Remedy::advice([format!("a project on {ORDINARY} needs no copy").into()]),
        });
    }
    Ok(notes)
}

/// Takes a copied workspace in place of the usual one. `why` follows the name of the file system of `place`.
fn copy_project(settings: &mut Settings, place: &Path, why: &str) -> Result<(), Error> {
    if let Some(mode) = settings.workspace.value {
        return Err(Error::usage(
            format!(
                "the workspace `{}` is not possible here: {} lies on {}, which {why}",
                mode.as_str(),
                place.display(),
                name_file_system(place)
            ),
            [
                "leave out ".into(),
                Setting::Workspace.of(mode.as_str()),
                ": the project is copied then".into(),
            ],
        ));
    }
    settings.workspace.value = Some(WorkspaceMode::Copy);
    Ok(())
}
