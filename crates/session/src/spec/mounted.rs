//! Projects that contain mounts of other file systems: an overlay shows only one file system.

use crate::Error;
use crate::note::Note;
use glovebox_proto::visible::line_of_text;
use glovebox_proto::{Remedy, Setting};
use glovebox_sandbox::{Files, WorkspaceMode, find_mounts_below, is_larger_than};
use glovebox_settings::{GrantArg, Origin, Settings, SourcedValue};
use std::path::{Path, PathBuf};

/// Maximum size of a mount that is copied, in bytes.
const MAX_COPIED_BYTES: u64 = 1 << 30;
/// Maximum number of mounts named in a note.
const SHOWN: usize = 3;

/// Selects a copied workspace for a project that contains mounts, and returns notes for the user. A
/// large mount is not copied, but shown read-only at its own path.
///
/// # Errors
/// Usage error if the user asked for an overlay, in which mounts would be empty directories.
pub(super) fn lay_mounts(settings: &mut Settings, project: &Path) -> Result<Vec<Note>, Error> {
    let is_overlay = matches!(
        settings.workspace_mode(),
        WorkspaceMode::Overlay | WorkspaceMode::ReadOnly
    );
    if !is_overlay || settings.backend.value.capabilities().files != Files::Layers {
        return Ok(Vec::new());
    }
    let mounts = find_mounts_below(project);
    if mounts.is_empty() {
        return Ok(Vec::new());
    }
    let names = list(&mounts);
    if let Some(mode) = settings.workspace.value {
        return Err(Error::usage(
            format!(
                "the workspace `{}` cannot show what is mounted below the project: {names}",
                mode.as_str()
            ),
            [
                "leave out ".into(),
                Setting::Workspace.of(mode.as_str()),
                ": the project is copied then".into(),
            ],
        ));
    }
    settings.workspace.value = Some(WorkspaceMode::Copy);
    let mut notes = vec![Note {
        what: format!("the project is copied, since other file systems are mounted in it: {names}"),
        remedy: Remedy::advice([
            "what changes there stays in the sandbox; the rest comes back as always".into(),
        ]),
    }];
    for mount in mounts {
        let source = project.join(&mount);
        if !is_larger_than(&source, MAX_COPIED_BYTES) {
            continue;
        }
        notes.push(Note {
            what: format!(
                "{} is too large to be copied; it is shown read-only at {}",
                line_of_text(&mount.to_string_lossy()),
                line_of_text(&source.to_string_lossy())
            ),
            remedy: Remedy::advice([
                Setting::Workspace.of("live"),
                " works in the project itself".into(),
            ]),
        });
        settings.sync.push_exclude.push(SourcedValue {
            value: format!("/{}", mount.to_string_lossy()),
            origin: Origin::Default,
        });
        settings.grants.push(SourcedValue {
            value: GrantArg {
                source,
                target: None,
            },
            origin: Origin::Default,
        });
    }
    Ok(notes)
}

fn list(mounts: &[PathBuf]) -> String {
    let shown = mounts.iter().take(SHOWN);
    let mut shown: Vec<String> = shown
        .map(|mount| line_of_text(&mount.to_string_lossy()))
        .collect();
    if mounts.len() > SHOWN {
        shown.push("...".to_owned());
    }
    shown.join(", ")
}
