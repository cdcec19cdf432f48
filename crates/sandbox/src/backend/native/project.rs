//! Visibility of applied changes in a native sandbox: see [`crate::applied`].

use super::Native;
use crate::applied::follow::{FollowedSandbox, follow};
use crate::backend::CreateCx;
use crate::state::layout::WORKSPACE_UPPER;
use glovebox_spec::{Layers, WORKSPACE, WorkspaceAccess};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;

/// Follows the project of a sandbox whose workspace is an overlay.
pub(super) fn follow_project(cx: &CreateCx<'_>, native: &Native) {
    let spec = &native.ground.spec;
    let Some(project) = &spec.workspace else {
        return;
    };
    if spec.workspace_access == WorkspaceAccess::Live {
        return;
    }
    // Without a descriptor the sandbox runs on, and sees applied changes late.
    let Ok(program) = cx.image.as_fd().try_clone_to_owned() else {
        return;
    };
    let replaced = spec.replaced_in_workspace().map(|file| file.path.clone());
    let caches = spec.caches.iter().map(|cache| cache.target.clone());
    let caches = caches.filter(|target| target.starts_with(WORKSPACE));
    follow(FollowedSandbox {
        watched: Arc::downgrade(&native.watched),
        program,
        state_dir: cx.state_dir.to_owned(),
        dir: cx.dir.to_owned(),
        name: cx.name.to_string(),
        project: project.clone(),
        overlays: [PathBuf::from(WORKSPACE)]
            .into_iter()
            .chain(caches)
            .collect(),
        hidden: spec.hidden.iter().cloned().chain(replaced).collect(),
        upper: (spec.layers == Layers::Disk).then(|| cx.dir.join(WORKSPACE_UPPER)),
    });
}
