//! A sandbox's changes as changes of a directory on the host.

use super::Taken;
use glovebox_workspace::apply::{BaseFile, Destination};
use glovebox_workspace::{Collected, Options, Outcome, SyncError};
use std::path::Path;

/// The sandbox's changes as changes of what a directory has now, and what taking them over comes to.
#[derive(Debug)]
pub struct View {
    /// The changes: those of the sandbox and nothing that the user did meanwhile.
    pub collected: Collected,
    /// What they come to.
    pub outcome: Outcome,
}

/// Looks at the changes from a directory that they go to; from nowhere they are what was collected.
///
/// # Errors
/// When the directory cannot be read.
pub fn view(taken: &Taken, to: Option<&Path>) -> Result<View, SyncError> {
    let Some(to) = to else {
        return Ok(View {
            collected: taken.collected.share(),
            outcome: Outcome::default(),
        });
    };
    let mut destination = Destination::look(to, base(taken, to))?;
    let plan = destination.plan(&taken.collected, Options::default())?;
    Ok(View {
        collected: destination.view(&plan, &taken.collected)?,
        outcome: plan.outcome,
    })
}

/// What the host looked like when the sandbox started, if it started from there.
pub fn base(taken: &Taken, to: &Path) -> Option<BaseFile> {
    let project = taken.project.as_deref()?.canonicalize().ok()?;
    let is_project = taken.is_whole && to.canonicalize().ok()? == project;
    taken.base.clone().filter(|_| is_project)
}
