//! End of an operation: its sandbox is removed, or kept because it contains work.

use super::{Kind, WorkSession};
use crate::Error;
use crate::LeaveOutcome;
use crate::frontend::{Frontend, Notice};
use crate::sync::git_state::find_git_work;
use crate::sync::{apply, collect_own, copied, ignore_rules, patch_error, project_of};
use glovebox_proto::{Fault, JobInfo, JobState};
use glovebox_sandbox::Sandbox;
use glovebox_tools::is_script_session;
use glovebox_workspace::patch::{self, Style};
use glovebox_workspace::{Filter, RefusalReason, RefusedPath};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

impl WorkSession {
    /// Ends the sandbox if it was created for this operation, and keeps its changes. With
    /// `keeps_jobs`, a sandbox with a running job continues.
    ///
    /// # Errors
    /// The sandbox cannot be stopped or removed.
    pub fn leave(&self, keeps_jobs: bool) -> Result<LeaveOutcome, Fault> {
        let keeps_files = match self.kind {
            Kind::Running => return Ok(LeaveOutcome::Untouched),
            Kind::Local => return Ok(LeaveOutcome::Removed),
            Kind::Supervised { keeps_files } => keeps_files,
        };
        if keeps_jobs && let Some(reason) = self.running_work() {
            return Ok(LeaveOutcome::Running(reason.to_owned()));
        }
        // Read-only and empty workspaces have no changes. If changes cannot be collected now, the
        // sandbox may contain work.
        match self.count_changes() {
            Ok(0) => {
                copied::clean(&self.sandbox);
                self.registry.kill(&self.sandbox.info().name)?;
                Ok(LeaveOutcome::Removed)
            }
            Ok(_) | Err(_) if !keeps_files => Ok(LeaveOutcome::Running(
                "what was changed in it cannot be kept otherwise".to_owned(),
            )),
            Ok(count) => {
                self.sandbox
                    .stop("its changes are kept for `glovebox pull`")?;
                Ok(LeaveOutcome::Stopped(count))
            }
            Err(_) => {
                self.sandbox.stop("its changes could not be looked at")?;
                Ok(LeaveOutcome::Stopped(0))
            }
        }
    }

    /// Reports the git work that stays in the sandbox, if it was created for this operation.
    pub fn tell_git_work(&self, frontend: &dyn Frontend) {
        if !matches!(self.kind, Kind::Supervised { .. }) {
            return;
        }
        let name = &self.sandbox.info().name;
        match find_git_work(&self.sandbox) {
            Ok(work) if work.is_empty() => {}
            Ok(work) => frontend.notify(&Notice::GitStays { name, work: &work }),
            Err(error) => frontend.notify(&Notice::GitUnknown {
                name,
                error: &error,
            }),
        }
    }

    /// Returns what is still running in or beside the sandbox; `None` if nothing is.
    fn running_work(&self) -> Option<&'static str> {
        let is_running = |jobs: Vec<JobInfo>| {
            // An abandoned session of scripts is not work.
            let mut jobs = jobs.iter().filter(|job| !is_script_session(job));
            jobs.any(|job| !matches!(job.state, JobState::Ended(_)))
        };
        if self.sandbox.jobs().is_ok_and(is_running) {
            return Some("a job runs in it");
        }
        let children = self.children.as_ref()?;
        let has_child = children.count(&self.sandbox).is_ok_and(|count| count > 0);
        has_child.then_some("sandboxes were made beside it")
    }

    /// Counts the changes that `diff` shows; git work counts as one more.
    ///
    /// # Errors
    /// The changes cannot be collected.
    pub fn count_changes(&self) -> Result<usize, Error> {
        let work = find_git_work(&self.sandbox)?;
        let mut filter = Filter::default();
        if let Some(project) = project_of(&self.sandbox) {
            filter = filter.without_ignored(ignore_rules(&self.host, &project, &[])?);
        }
        let watch = &mut |_| ControlFlow::Continue(());
        let taken = collect_own(&self.sandbox, &filter, false, watch)?;
        let set = &taken.collected.set;
        let is_git = |refused: &&RefusedPath| refused.reason == RefusalReason::Git;
        let refused = set.refused.iter().filter(|path| !is_git(path)).count();
        Ok(set.changes.len() + refused + usize::from(!work.is_empty()))
    }
}

/// Ends a sandbox that this process owns.
pub fn take_down(frontend: &dyn Frontend, sandbox: Arc<Sandbox>) {
    // A signal handler may still hold a handle for a moment; dropping the last one also ends the
    // sandbox.
    let Some(sandbox) = Arc::into_inner(sandbox) else {
        return;
    };
    match sandbox.finish() {
        Ok(finished) => {
            if let Some(fault) = &finished.lost_caches {
                frontend.notify(&Notice::CachesLost(fault));
            }
        }
        Err(fault) => frontend.notify(&Notice::TakeDownIncomplete(&fault)),
    }
}

/// Returns the changes of a sandbox as a patch for `git apply`.
///
/// # Errors
/// The changes cannot be collected, or the patch exceeds `max_bytes`.
pub fn changes_as_patch(sandbox: &Sandbox, max_bytes: usize) -> Result<Vec<u8>, Error> {
    let watch = &mut |_| ControlFlow::Continue(());
    let taken = collect_own(sandbox, &Filter::new(&[], &[])?, false, watch)?;
    let mut text = BoundedBuffer {
        bytes: Vec::new(),
        max_bytes,
    };
    let view = apply::view(&taken, taken.project.as_deref())?;
    patch::write(&view.collected, Style::Exact, &mut text)
        .map_err(|error| patch_error(error, "the client"))?;
    Ok(text.bytes)
}

/// Buffer that fails to grow beyond `max_bytes`.
struct BoundedBuffer {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl io::Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max_bytes {
            return Err(io::Error::other(format!(
                "it has more than {} bytes; use `glovebox diff`",
                self.max_bytes
            )));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
