//! Other sandboxes that see the changes applied to a project.

use glovebox_sandbox::{Name, Registry, SandboxState};
use std::path::Path;

/// Returns the running sandboxes whose workspace is the project, or a directory above or below it,
/// except for the one whose changes were applied.
pub fn find_viewers(registry: &Registry, project: &Path, except: Option<&Name>) -> Vec<Name> {
    let entries = registry.list().unwrap_or_default();
    let entries = entries.into_iter().filter(|entry| {
        entry.state == SandboxState::Ready && except.is_none_or(|except| *except != entry.name)
    });
    let sees = |name: &Name| {
        let workspace = registry.spec(name).ok()?.jail.workspace?;
        let workspace = workspace.canonicalize().ok()?;
        Some(workspace.starts_with(project) || project.starts_with(&workspace))
    };
    let names = entries.map(|entry| entry.name);
    names.filter(|name| sees(name) == Some(true)).collect()
}
