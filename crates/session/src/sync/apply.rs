//! Applies changes to a directory on the host: plan, review, stage, commit.
//!
//! Only the last step changes the user's files. A separate process performs it ([`super::commit`]),
//! so killing this one leaves a directory that is either untouched or complete.

use super::{SandboxChanges, commit};
use crate::Error;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Name, Supervisor, note_applied};
use glovebox_workspace::apply as workspace_apply;
use glovebox_workspace::apply::{
    BaseFile, Destination, DestinationDigests, PutBack, discard_earlier,
};
use glovebox_workspace::patch::Selection;
use glovebox_workspace::{
    AppliedChange, CollectedChanges, Conflict, ConflictReason, EarlierVersions, Flag, Options,
    Outcome, Plan, RefusalReason, RelPath, Resolution, Stage, SyncError, Watch,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Answer to a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReviewAnswer {
    /// Apply the plan.
    Yes,
    /// Discard the changes.
    No,
    /// Keep the changes in the sandbox for later.
    Later,
    /// The user gave no answer.
    None,
    /// Resolve conflicts as given, and ask again.
    Choose(BTreeMap<RelPath, Resolution>),
    /// Apply only this selection.
    Select(Selection),
}

/// Plan for review.
#[derive(Debug, Clone, Copy)]
pub struct Review<'a> {
    /// Changes of the sandbox.
    pub taken: &'a SandboxChanges,
    /// Outcome that the plan would have.
    pub outcome: &'a Outcome,
    destination: &'a Destination,
    plan: &'a Plan,
}

impl Review<'_> {
    /// Returns the plan as changes relative to the present content of the destination.
    ///
    /// # Errors
    /// The destination cannot be read.
    pub fn view(&self) -> Result<CollectedChanges, SyncError> {
        self.destination.view(self.plan, &self.taken.collected)
    }

    /// Digests the present content of the destination at the changed paths.
    ///
    /// # Errors
    /// The destination cannot be read.
    pub fn digest_destination(&self) -> Result<DestinationDigests, SyncError> {
        self.destination.digest_paths(&self.taken.collected.set)
    }

    /// Returns the conflicts that the user can resolve.
    pub fn open_conflicts(&self) -> impl Iterator<Item = &Conflict> {
        self.outcome.conflicts.iter().filter(|one| is_open(one))
    }

    /// Returns true if there are conflicts that the user can resolve.
    pub fn has_open_conflicts(&self) -> bool {
        self.open_conflicts().next().is_some()
    }
}

fn is_open(conflict: &Conflict) -> bool {
    !conflict.is_marked
        && matches!(
            conflict.reason,
            ConflictReason::ChangedOnHost
                | ConflictReason::AddedOnHost
                | ConflictReason::DeletedOnHost
                | ConflictReason::DeletedInSandbox
                | ConflictReason::RenamedInSandbox
        )
}

/// Result of [`apply`].
#[derive(Debug)]
pub enum ApplyOutcome {
    /// All changes were applied, except as the outcome says.
    Done(Outcome),
    /// The selection was applied; the rest stays in the sandbox.
    Part(Outcome),
    /// Nothing was applied, because of this answer.
    Declined(ReviewAnswer),
}

/// Target directory of an apply, with its options.
#[derive(Debug, Clone, Copy)]
pub struct ApplyTarget<'a> {
    /// The directory.
    pub to: &'a Path,
    /// Default resolution of conflicts that cannot be merged.
    pub conflicts: Resolution,
    /// Resolution of conflicts at these paths.
    pub choices: &'a BTreeMap<RelPath, Resolution>,
    /// Store that keeps replaced or removed files of the user for a day; `None` keeps none.
    pub undo: Option<UndoStore<'a>>,
    /// Other sandboxes to inform; `None` informs none.
    pub told: Option<ToldSandboxes<'a>>,
}

/// Sandboxes that are informed of an apply to their project.
#[derive(Debug, Clone, Copy)]
pub struct ToldSandboxes<'a> {
    /// State directory with the sandboxes.
    pub state_dir: &'a Path,
    /// Sandbox whose changes are applied; it is not informed.
    pub by: Option<&'a Name>,
}

/// Store for earlier versions of files that git does not have.
#[derive(Debug, Clone, Copy)]
pub struct UndoStore<'a> {
    /// The state directory.
    pub state_dir: &'a Path,
    /// True if nothing may be applied unless every version is kept.
    pub is_required: bool,
}

/// Empty map of choices.
static NO_CHOICES: BTreeMap<RelPath, Resolution> = BTreeMap::new();

impl<'a> ApplyTarget<'a> {
    /// Creates a target where conflicting files of the project stay and the sandbox's versions are
    /// put beside them.
    pub const fn new(to: &'a Path) -> Self {
        Self::with_conflicts(to, Resolution::Beside)
    }

    /// Creates a target where all conflicts are resolved the same way.
    pub const fn with_conflicts(to: &'a Path, conflicts: Resolution) -> Self {
        Self {
            to,
            conflicts,
            choices: &NO_CHOICES,
            undo: None,
            told: None,
        }
    }

    /// Keeps replaced or removed files of the user that git does not have. With `is_required`,
    /// nothing is applied if one cannot be kept.
    #[must_use]
    pub const fn keeping_earlier(self, state_dir: &'a Path, is_required: bool) -> Self {
        Self {
            undo: Some(UndoStore {
                state_dir,
                is_required,
            }),
            ..self
        }
    }

    /// Informs the other sandboxes of the state directory that work on this project.
    #[must_use]
    pub const fn telling(self, state_dir: &'a Path, by: Option<&'a Name>) -> Self {
        Self {
            told: Some(ToldSandboxes { state_dir, by }),
            ..self
        }
    }

    /// Informs other sandboxes that an interrupted apply to this directory has been finished or
    /// undone.
    pub(super) fn tell_recovered(self) {
        if let Some(told) = self.told {
            // A sandbox that misses this sees the new files with a delay.
            let _ = note_applied(told.state_dir, self.to, None, std::iter::empty());
        }
    }

    fn options(self) -> Options {
        Options {
            conflicts: self.conflicts,
            choices: self.choices.clone(),
        }
    }
}

/// Changes relative to the present content of a directory, and the outcome of applying them.
#[derive(Debug)]
pub struct ChangesView {
    /// Changes of the sandbox, without those that the user has made meanwhile.
    pub collected: CollectedChanges,
    /// Outcome of applying them.
    pub outcome: Outcome,
}

/// Compares the changes with the directory `to`. Without one, returns them as collected.
///
/// # Errors
/// The directory cannot be read.
pub fn view(taken: &SandboxChanges, to: Option<&Path>) -> Result<ChangesView, SyncError> {
    let Some(to) = to else {
        return Ok(ChangesView {
            collected: taken.collected.share(),
            outcome: Outcome::default(),
        });
    };
    let mut destination = Destination::look(to, base(taken, to))?;
    let plan = destination.plan(&taken.collected, Options::default())?;
    Ok(ChangesView {
        collected: destination.view(&plan, &taken.collected)?,
        outcome: plan.outcome,
    })
}

/// Plans an apply and returns its outcome, without writing anything.
///
/// # Errors
/// The directory cannot be read.
pub fn preview(taken: &SandboxChanges, goal: ApplyTarget<'_>) -> Result<Outcome, SyncError> {
    let mut destination = Destination::look(goal.to, base(taken, goal.to))?;
    Ok(destination.plan(&taken.collected, goal.options())?.outcome)
}

/// Finishes or undoes an interrupted apply in a project, and informs the sandboxes of `state_dir`
/// that see it.
///
/// Must be called before changes for the project are collected. A change that the interrupted apply
/// has already made, such as a removed name, is none in comparison with the half-applied project,
/// and would be missing once that is undone.
pub fn recover_project(project: &Path, state_dir: &Path) {
    let goal = ApplyTarget::new(project).telling(state_dir, None);
    // If recovery fails now, the apply tries it again and reports the error.
    let _ = Destination::open_telling(project, None, &mut || goal.tell_recovered());
}

/// Applies the changes if `agree` accepts the plan. `supervisor` is the program that commits.
/// Blocks.
///
/// # Errors
/// Those of `agree`; the changes cannot be applied, in which case the directory is unchanged.
pub fn apply<E: From<Error>>(
    taken: SandboxChanges,
    goal: ApplyTarget<'_>,
    supervisor: &Supervisor,
    watch: &mut Watch<'_>,
    agree: &mut dyn FnMut(&Review<'_>) -> Result<ReviewAnswer, E>,
) -> Result<ApplyOutcome, E> {
    let mut tell = || goal.tell_recovered();
    let mut destination = Destination::open_telling(goal.to, base(&taken, goal.to), &mut tell)
        .map_err(Error::from)?;
    let mut options = goal.options();
    let (mut plan, is_everything) = loop {
        let mut plan = destination
            .plan(&taken.collected, options.clone())
            .map_err(Error::from)?;
        if plan.is_empty() {
            return Ok(ApplyOutcome::Done(plan.outcome));
        }
        let review = Review {
            taken: &taken,
            outcome: &plan.outcome,
            destination: &destination,
            plan: &plan,
        };
        match agree(&review)? {
            ReviewAnswer::Yes => break (plan, true),
            ReviewAnswer::Choose(choices) => options.choices.extend(choices),
            ReviewAnswer::Select(selection) => {
                plan.select(&selection);
                if plan.is_empty() {
                    return Ok(ApplyOutcome::Declined(ReviewAnswer::Later));
                }
                break (plan, selection.is_everything());
            }
            answer => return Ok(ApplyOutcome::Declined(answer)),
        }
    };
    let staged = destination
        .stage(&plan, &taken.collected, watch)
        .map_err(Error::from)?;
    plan.outcome.lost_groups = staged.lost_groups().to_vec();
    for left in staged.unheld() {
        if left.reason == RefusalReason::NoLinks {
            let is_left = |done: &AppliedChange| done.path.as_bytes() == left.path;
            plan.outcome.applied.retain(|done| !is_left(done));
        }
        plan.outcome.refused.push(left.clone());
    }
    // On disk before the first file changes. It stays if the commit fails: a process killed at the
    // end of its commit may have changed everything, and the next pull finishes that.
    if let Some(undo) = goal.undo {
        plan.outcome.earlier = keep_earlier(&destination, &plan, undo)?;
    }
    // Everything is staged, so the sandbox may continue.
    drop(taken);
    commit::commit(supervisor, &destination, staged, goal)?;
    Ok(if is_everything {
        ApplyOutcome::Done(plan.outcome)
    } else {
        ApplyOutcome::Part(plan.outcome)
    })
}

/// Restores the files that an apply replaced or removed: the versions kept as `id`, or the newest
/// of a project. This is an apply too and can itself be undone. Returns the project and the
/// outcome.
///
/// # Errors
/// Nothing is kept; the files cannot be restored, in which case the project is unchanged.
pub fn put_back(
    state_dir: &Path,
    id: Option<&str>,
    project: &Path,
    supervisor: &Supervisor,
    watch: &mut Watch<'_>,
) -> Result<(PathBuf, Outcome), Error> {
    let earlier = PutBack::open(state_dir, id, project)?;
    let to = earlier.project.clone();
    let taken = SandboxChanges {
        collected: earlier.collected.share(),
        project: Some(to.clone()),
        base: None,
        is_whole: true,
        _frozen: None,
    };
    let goal = ApplyTarget::new(&to)
        .keeping_earlier(state_dir, false)
        .telling(state_dir, None);
    let mut agree = |_: &Review<'_>| Ok::<_, Error>(ReviewAnswer::Yes);
    let outcome = match apply(taken, goal, supervisor, watch, &mut agree)? {
        ApplyOutcome::Done(outcome) | ApplyOutcome::Part(outcome) => outcome,
        ApplyOutcome::Declined(_) => Outcome::default(),
    };
    earlier.restore_modes(outcome.applied.iter().map(|done| &done.path));
    Ok((to, outcome))
}

fn keep_earlier(
    destination: &Destination,
    plan: &Plan,
    undo: UndoStore<'_>,
) -> Result<Option<EarlierVersions>, Error> {
    let failed = |fault| Error::from(SyncError::pull(Stage::Apply, fault));
    let kept = workspace_apply::keep_earlier(destination, plan, undo.state_dir).map_err(failed)?;
    let unkept = kept.as_ref().and_then(|kept| kept.unkept.first());
    if let Some(path) = unkept.filter(|_| undo.is_required) {
        if let Some(kept) = &kept {
            discard_earlier(undo.state_dir, kept);
        }
        let fault = Fault::refused(
            Code::TooLarge,
            format!("git does not have your `{path}`, and it is too large to be kept"),
        );
        return Err(failed(fault.remedy(
            "nothing was changed; `glovebox pull` replaces it without keeping it",
        )));
    }
    Ok(kept)
}

/// Returns the recorded state of the project at the start of the sandbox; `None` if `to` is not
/// that project.
pub fn base(taken: &SandboxChanges, to: &Path) -> Option<BaseFile> {
    let project = taken.project.as_deref()?.canonicalize().ok()?;
    let is_project = taken.is_whole && to.canonicalize().ok()? == project;
    taken.base.clone().filter(|_| is_project)
}

/// Returns true if the host executes or obeys one of the changed files.
pub fn runs_here(outcome: &Outcome) -> bool {
    outcome
        .flagged
        .iter()
        .any(|flagged| flagged.flags.contains(&Flag::Executes))
}
