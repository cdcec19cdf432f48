//! Push of the user's changes into an overlay, for programs that watch files inside.

use crate::Error;
use crate::spec::hide_rules;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Name, Registry, Sandbox, note_applied};
use glovebox_settings::Settings;
use glovebox_spec::WorkspaceAccess;
use glovebox_workspace::{
    OverlayPush, RelPath, Stage, SyncError, Watch, find_hidden, push_overlay,
};

/// Writes the changes of the project since the sandbox's base into the sandbox, then lets all
/// sandboxes of the project refresh their overlays. An `only` that is not empty restricts the push
/// to the paths at or below it.
///
/// # Errors
/// The workspace is not an overlay, or is read-only; otherwise same as [`push_overlay`].
pub fn push(
    registry: &Registry,
    name: &Name,
    sandbox: &Sandbox,
    settings: &Settings,
    only: &[RelPath],
    watch: &mut Watch<'_>,
) -> Result<OverlayPush, Error> {
    let failed = |fault| Error::from(SyncError::push(Stage::Collect, fault));
    let layers = registry.workspace_layers(name).map_err(failed)?;
    if registry.spec(name)?.jail.workspace_access == WorkspaceAccess::ReadOnly {
        let message = "the workspace is read-only: a push cannot notify programs inside";
        return Err(failed(Fault::failed(Code::Unsupported, message)));
    }
    let project = layers.project.clone();
    let mut hidden = layers.hidden.clone();
    if let Some(project) = &project {
        // Secrets that were added to the project since stay hidden too.
        let found = find_hidden(project, &hide_rules(settings)).map_err(failed)?;
        let replaced = found.replaced.into_iter().map(|(path, _)| path);
        hidden.extend(
            found
                .paths
                .into_iter()
                .map(|(path, _)| path)
                .chain(replaced),
        );
    }
    let pushed = push_overlay(sandbox, &layers, &hidden, only, watch)?;
    let paths: Vec<_> = pushed
        .files
        .iter()
        .chain(&pushed.deleted)
        .chain(&pushed.large)
        .collect();
    if let Some(project) = &project
        && only.is_empty()
        && (!paths.is_empty() || pushed.shown > 0)
    {
        // A file that the host replaced by a rename shows its old content until the overlays are
        // refreshed. This comes last: after a refresh, watches of a file that the host replaced raise
        // no events any more. For the same reason a push of some paths does not refresh.
        let paths = paths.into_iter().map(RelPath::as_path);
        let noted = note_applied(registry.state_dir(), project, None, paths);
        noted.map_err(|error| Error::io("note what was pushed", &error))?;
    }
    Ok(pushed)
}
