//! Projects and state directories on file systems that cannot be layers of a sandbox.
//!
//! A project that cannot be shown unchanged is copied. If the state directory cannot hold layers,
//! they are kept in memory, and so is the copy. A note tells the user, and neither is done against
//! an explicit setting.

use super::mounted::lay_mounts;
use crate::Error;
use crate::note::Note;
use glovebox_proto::{Remedy, Setting};
use glovebox_sandbox::{
    CopyReason, Files, WorkspaceMode, find_copy_reason, name_file_system, needs_memory_layers,
};
use glovebox_settings::{Origin, Settings};
use glovebox_spec::Layers;
use std::path::Path;

/// File systems without these restrictions, for hints.
const ORDINARY: &str = "ext4, xfs or btrfs";

/// Adapts the settings to the file systems of the project and the state directory: layers in memory
/// if `state_dir` cannot hold them, and a copied workspace if the project cannot be shown unchanged
/// or contains mounts. Returns notes for the user.
///
/// # Errors
/// Usage error if an explicit setting is impossible on these file systems; errors of opening the
/// state directory.
pub fn fit_file_systems(
    settings: &mut Settings,
    project: &Path,
    state_dir: &Path,
) -> Result<Vec<Note>, Error> {
    if settings.backend.value.capabilities().files != Files::Layers {
        return Ok(Vec::new());
    }
    let mut notes = Vec::new();
    let is_overlay = matches!(
        settings.workspace_mode(),
        WorkspaceMode::Overlay | WorkspaceMode::ReadOnly
    );
    let is_free = settings.layers.origin == Origin::Default;
    if is_free && settings.layers.value == Layers::Disk && needs_memory_layers(state_dir)? {
        settings.layers.value = Layers::Memory;
        // Hidden names and the seeded repository would be layers in the state directory.
        if is_overlay {
            copy_project(
                settings,
                state_dir,
                "needs layers on disk, where there are none",
            )?;
        }
        notes.push(memory_note(state_dir, is_overlay));
        return Ok(notes);
    }
    notes.extend(lay_mounts(settings, project)?);
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

/// Selects a copied workspace in place of the default. `why` completes the sentence after the name
/// of the file system of `place`.
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

fn memory_note(state_dir: &Path, is_copied: bool) -> Note {
    let kind = name_file_system(state_dir);
    let what = if is_copied {
        "the project is copied into memory, and what commands write stays there"
    } else {
        "what commands write stays in memory"
    };
    Note {
        what: format!("the state directory lies on {kind}, which cannot hold layers: {what}"),
        remedy: Remedy::advice([
            format!("GLOVEBOX_STATE on {ORDINARY} keeps it on disk; ").into(),
            Setting::Disk.into(),
            " says how much may be in memory (1GiB if it does not)".into(),
        ]),
    }
}
