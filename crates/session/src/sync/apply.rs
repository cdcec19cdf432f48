//! Changes into a directory on the host: planned, agreed to, staged, committed.
//!
//! The last step, the only one that changes the user's files, is done by a process of its own ([`super::commit`]):
//! killing this one leaves a directory that is either untouched or complete.

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

/// What is answered to a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReviewAnswer {
    /// Do it.
    Yes,
    /// Do not.
    No,
    /// Not now.
    Later,
    /// There was none.
    None,
    /// Solve conflicts like this, and ask again.
    Choose(BTreeMap<RelPath, Resolution>),
    /// Do only this.
    Select(Selection),
}

/// A plan that is to be agreed to.
#[derive(Debug, Clone, Copy)]
pub struct Review<'a> {
    /// The changes.
    pub taken: &'a SandboxChanges,
    /// What the plan comes to.
    pub outcome: &'a Outcome,
    destination: &'a Destination,
    plan: &'a Plan,
}

impl Review<'_> {
    /// The plan as changes of what the destination has now.
    ///
    /// # Errors
    /// When the destination cannot be read.
    pub fn view(&self) -> Result<CollectedChanges, SyncError> {
        self.destination.view(self.plan, &self.taken.collected)
    }

    /// Reads what the destination has now at the paths of the changes.
    ///
    /// # Errors
    /// When the destination cannot be read.
    pub fn digest_destination(&self) -> Result<DestinationDigests, SyncError> {
        self.destination.digest_paths(&self.taken.collected.set)
    }

    /// Conflicts about which there is something to choose.
    pub fn open_conflicts(&self) -> impl Iterator<Item = &Conflict> {
        self.outcome.conflicts.iter().filter(|one| is_open(one))
    }

    /// Whether there are any.
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

/// How it ended.
#[derive(Debug)]
pub enum ApplyOutcome {
    /// It was done.
    Done(Outcome),
    /// What was selected was done; the rest is in the sandbox.
    Part(Outcome),
    /// It was not wanted.
    Declined(ReviewAnswer),
}

/// What to do where.
#[derive(Debug, Clone, Copy)]
pub struct ApplyTarget<'a> {
    /// The directory.
    pub to: &'a Path,
    /// What becomes of files that both sides changed in a way that cannot be merged.
    pub conflicts: Resolution,
    /// What becomes of those of these paths.
    pub choices: &'a BTreeMap<RelPath, Resolution>,
    /// Where the user's files that are replaced or removed are kept for a day; `None` keeps none.
    pub undo: Option<UndoStore<'a>>,
    /// Other sandboxes that are told; `None` tells none.
    pub told: Option<ToldSandboxes<'a>>,
}

/// The sandboxes that are told of an apply to their project.
#[derive(Debug, Clone, Copy)]
pub struct ToldSandboxes<'a> {
    /// The state directory that has them.
    pub state_dir: &'a Path,
    /// The sandbox whose changes are applied.
    pub by: Option<&'a Name>,
}

/// The place for earlier versions of files that git does not have.
#[derive(Debug, Clone, Copy)]
pub struct UndoStore<'a> {
    /// The state directory.
    pub state_dir: &'a Path,
    /// True if nothing is applied where a version cannot be kept.
    pub is_required: bool,
}

/// Choices for no path.
static NO_CHOICES: BTreeMap<RelPath, Resolution> = BTreeMap::new();

impl<'a> ApplyTarget<'a> {
    /// A directory where the project's versions stay, and the sandbox's are put beside them.
    pub const fn new(to: &'a Path) -> Self {
        Self::with_conflicts(to, Resolution::Beside)
    }

    /// A directory where all conflicts are solved the same way.
    pub const fn with_conflicts(to: &'a Path, conflicts: Resolution) -> Self {
        Self {
            to,
            conflicts,
            choices: &NO_CHOICES,
            undo: None,
            told: None,
        }
    }

    /// Keeps the user's files that are replaced or removed and that git does not have. With `is_required` nothing is
    /// applied where that cannot be.
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

    /// Tells the other sandboxes of a state directory whose project this is.
    #[must_use]
    pub const fn telling(self, state_dir: &'a Path, by: Option<&'a Name>) -> Self {
        Self {
            told: Some(ToldSandboxes { state_dir, by }),
            ..self
        }
    }

    /// Tells other sandboxes that an apply to this directory was interrupted, and finished or undone since.
    pub(super) fn tell_recovered(self) {
        if let Some(told) = self.told {
            // A sandbox that does not hear of it sees the files as they are a while later.
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

/// The sandbox's changes as changes of what a directory has now, and what taking them over comes to.
#[derive(Debug)]
pub struct ChangesView {
    /// The changes: those of the sandbox and nothing that the user did meanwhile.
    pub collected: CollectedChanges,
    /// What they come to.
    pub outcome: Outcome,
}

/// Looks at the changes from a directory that they go to; from nowhere they are what was collected.
///
/// # Errors
/// When the directory cannot be read.
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

/// What would be done; nothing is written.
///
/// # Errors
/// When the directory cannot be read.
pub fn preview(taken: &SandboxChanges, goal: ApplyTarget<'_>) -> Result<Outcome, SyncError> {
    let mut destination = Destination::look(goal.to, base(taken, goal.to))?;
    Ok(destination.plan(&taken.collected, goal.options())?.outcome)
}

/// Finishes or undoes what an interrupted apply has left in a project, and tells the sandboxes of `state_dir` that see it.
///
/// Must come before the changes that go to the project are collected: what it has taken over already, such as a name that
/// was removed, is no change of the half state, and would be missing in the whole one.
pub fn recover_project(project: &Path, state_dir: &Path) {
    let goal = ApplyTarget::new(project).telling(state_dir, None);
    // What cannot be recovered now is met again, and told, when the changes are applied.
    let _ = Destination::open_telling(project, None, &mut || goal.tell_recovered());
}

/// Does it, if `agree` says so to the plan. `supervisor` is the program that commits.
///
/// # Errors
/// Those of `agree`; whatever keeps the changes from being applied, after which the directory is as it was.
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
    // On the disk before the first file changes. It stays when the commit fails: one that was killed at its end may
    // have changed everything, and the next pull finishes it.
    if let Some(undo) = goal.undo {
        plan.outcome.earlier = keep_earlier(&destination, &plan, undo)?;
    }
    // The sandbox is not needed any more.
    drop(taken);
    commit::commit(supervisor, &destination, staged, goal)?;
    Ok(if is_everything {
        ApplyOutcome::Done(plan.outcome)
    } else {
        ApplyOutcome::Part(plan.outcome)
    })
}

/// Puts back what an apply replaced or removed: what is kept as `id`, or the newest of a project. It is an apply too,
/// so that it can be put back itself. Returns where that was, and what it came to.
///
/// # Errors
/// When nothing is kept; whatever keeps it from being applied, after which the project is as it was.
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

/// What the host looked like when the sandbox started, if it started from there.
pub fn base(taken: &SandboxChanges, to: &Path) -> Option<BaseFile> {
    let project = taken.project.as_deref()?.canonicalize().ok()?;
    let is_project = taken.is_whole && to.canonicalize().ok()? == project;
    taken.base.clone().filter(|_| is_project)
}

/// Whether something of it is executed or obeyed by the host.
pub fn runs_here(outcome: &Outcome) -> bool {
    outcome
        .flagged
        .iter()
        .any(|flagged| flagged.flags.contains(&Flag::Executes))
}
