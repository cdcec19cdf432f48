//! Applies, parks or discards a sandbox's changes after its work has ended.
//!
//! No error loses work: the caller keeps a sandbox whose changes could not be applied.

use super::apply::{self, ApplyOutcome, ApplyTarget, ChangesView, Review, ReviewAnswer};
use super::discard::count_deadline;
use super::git_commits::take_to_free_branch;
use super::git_state;
use super::{SandboxChanges, collect_own, destination, ignore_rules, project_of};
use crate::frontend::{Frontend, Notice};
use crate::{Error, GitWork};
use glovebox_sandbox::{CacheKeeping, Sandbox, Supervisor};
use glovebox_settings::{Settings, Surroundings, texts};
use glovebox_spec::WORKSPACE;
use glovebox_workspace::{Filter, RefusalReason, RefusedPath, Watch};
use std::path::{Path, PathBuf};

/// When changes are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyWhen {
    /// After the user has agreed.
    Ask,
    /// Always.
    Always,
    /// Only if the command succeeds.
    OnSuccess,
    /// Not now: the sandbox is kept if there are changes.
    Later,
    /// No choice was made: changes are parked.
    Park,
    /// Never: they are discarded with the sandbox.
    Discard,
}

/// Result of settling the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleOutcome {
    /// The request was carried out.
    Done,
    /// Some paths were changed on both sides.
    Conflicts,
    /// The user wants to keep the sandbox.
    Keep,
    /// Part of the changes was applied, and the sandbox is kept with the rest.
    KeepRest,
    /// The patch lacks this many changes, which conflict with the user's own.
    LeftOut(usize),
    /// The user has not decided about this many changes; `None` if they could not be counted.
    Undecided(Option<usize>),
    /// The sandbox's versions of this many paths could not be placed on the host, and exist only in
    /// the sandbox.
    Unplaced(usize),
    /// Git work stays in the sandbox because it cannot be taken automatically.
    GitStays {
        /// True if it was requested and refused.
        is_refused: bool,
    },
}

/// Options for the end of an operation.
#[derive(Debug, Clone, Copy)]
pub struct SettleOptions<'a> {
    /// When changes are applied.
    pub when: ApplyWhen,
    /// True if the changes are written as a patch ([`Reviewer::write_patch`]).
    pub has_patch: bool,
    /// True if the user sees changes that are not applied.
    pub is_shown: bool,
    /// Name under which the sandbox is kept in any case.
    pub kept_as: Option<&'a str>,
    /// True if the sandbox cannot change any more because no other process has access.
    pub is_still: bool,
    /// True if the sandbox can be kept for later.
    pub can_stay: bool,
    /// True if files that the project ignores are taken too.
    pub takes_ignored: bool,
    /// True if the work succeeded.
    pub is_success: bool,
}

/// Reviewer of changes.
pub trait Reviewer {
    /// Error of the reviewer.
    type Error: From<Error>;

    /// Reviews a plan for the directory `to`. `can_keep` is true if the sandbox can be kept for
    /// later.
    ///
    /// # Errors
    /// There is no user to ask.
    fn agree(
        &mut self,
        review: &Review<'_>,
        to: &Path,
        can_keep: bool,
    ) -> Result<ReviewAnswer, Self::Error>;

    /// Writes the changes as a patch.
    ///
    /// # Errors
    /// The patch cannot be written.
    fn write_patch(&mut self, view: &ChangesView) -> Result<(), Self::Error>;
}

/// Context of settling, besides the sandbox.
#[derive(Debug, Clone, Copy)]
pub struct SettleContext<'a> {
    /// Facts about this machine and the user's environment.
    pub host: &'a Surroundings,
    /// Resolved settings.
    pub settings: &'a Settings,
    /// Program that commits.
    pub supervisor: &'a Supervisor,
    /// User interface.
    pub frontend: &'a dyn Frontend,
}

/// Collects the changes and settles them as requested. Blocks.
///
/// # Errors
/// The changes cannot be collected or applied; errors of `reviewer`.
pub fn settle<R: Reviewer>(
    context: &SettleContext<'_>,
    sandbox: &Sandbox,
    options: SettleOptions<'_>,
    reviewer: &mut R,
) -> Result<SettleOutcome, R::Error> {
    let frontend = context.frontend;
    // Before the sandbox is frozen, because git inside must answer.
    let work = git_state::find_git_work(sandbox);
    // If git inside did not answer, it is unknown what is discarded.
    let going = work.as_ref().map_or_else(
        |_| GitWork {
            is_uncounted: true,
            ..GitWork::default()
        },
        GitWork::clone,
    );
    if options.when == ApplyWhen::Discard && !options.has_patch && !options.is_shown {
        if options.kept_as.is_none() {
            notify_discarded(context, sandbox, options, &going);
        }
        return Ok(SettleOutcome::Done);
    }
    let mut watch = frontend.watch_progress();
    let collected = collect(context, sandbox, options, &mut *watch);
    drop(watch);
    let taken = match collected {
        // Parking does not require reading the changes; their errors are reported when they are
        // pulled.
        Err(error) if options.when == ApplyWhen::Park && options.kept_as.is_none() => {
            frontend.notify(&Notice::NotCollected(&error));
            return Ok(SettleOutcome::Undecided(None));
        }
        collected => collected?,
    };
    let mut taken = taken;
    // The sandbox's own repository is reported as git work, not as a refused path.
    if work.is_ok() && git_state::has_own_repository(sandbox) {
        let is_own =
            |refused: &RefusedPath| refused.reason == RefusalReason::Git && refused.path == b".git";
        taken.collected.set.refused.retain(|path| !is_own(path));
    }
    if let Some(reason) = taken.unheld() {
        frontend.notify(&Notice::Unheld { reason });
    }
    frontend.notify(&Notice::Ignored {
        ignored: &taken.collected.ignored,
        is_kept: options.kept_as.is_some() || keeps_build_output(sandbox),
    });
    let mut without_apply = SettleOutcome::Done;
    if options.has_patch {
        let view = apply::view(&taken, taken.project.as_deref()).map_err(Error::from)?;
        reviewer.write_patch(&view)?;
        if !view.outcome.conflicts.is_empty() {
            without_apply = SettleOutcome::LeftOut(view.outcome.conflicts.len());
        }
    }
    let set = &taken.collected.set;
    let is_wanted = match options.when {
        ApplyWhen::Ask | ApplyWhen::Always => true,
        ApplyWhen::OnSuccess => options.is_success,
        ApplyWhen::Later | ApplyWhen::Park | ApplyWhen::Discard => false,
    };
    let has_changes = !set.changes.is_empty();
    if !has_changes {
        frontend.notify(&Notice::Refused(&set.refused));
    }
    let git = GitEnd {
        context,
        sandbox,
        work,
        project: taken.project.clone(),
    };
    if is_wanted {
        // The content of a stash is missing from the files: applying them would remove it from the
        // user's files.
        if git.has_stash() {
            git.tell();
            return Ok(SettleOutcome::GitStays { is_refused: true });
        }
        if !has_changes {
            return Ok(git.take(SettleOutcome::Done));
        }
        let settled = take_over(context, sandbox, taken, options, &going, reviewer)?;
        return Ok(match settled {
            TakeOver::Taken(settled) => git.take(settled),
            TakeOver::Left(settled) => {
                git.tell();
                settled
            }
            TakeOver::Discarded => SettleOutcome::Done,
        });
    }
    if options.when != ApplyWhen::Discard {
        git.tell();
    }
    if !has_changes {
        return Ok(match options.when {
            ApplyWhen::Discard => {
                if !going.is_empty() && options.kept_as.is_none() && !options.has_patch {
                    frontend.notify(&Notice::Discarded {
                        changes: Some(0),
                        git: &going,
                    });
                }
                SettleOutcome::Done
            }
            _ if git.is_empty() => SettleOutcome::Done,
            ApplyWhen::Later => SettleOutcome::Keep,
            _ => SettleOutcome::GitStays { is_refused: false },
        });
    }
    if options.when == ApplyWhen::Later {
        frontend.notify(&Notice::Changed(set));
        return Ok(SettleOutcome::Keep);
    }
    let is_dropped = options.when == ApplyWhen::Discard;
    if options.is_shown {
        frontend.notify(&Notice::Changed(set));
        frontend.notify(&Notice::NotApplied {
            kept_as: options.kept_as,
            has_patch: options.has_patch,
        });
    }
    // With a patch the changes are not lost.
    if is_dropped && options.kept_as.is_none() && !options.has_patch {
        frontend.notify(&Notice::Discarded {
            changes: Some(set.changes.len()),
            git: &going,
        });
    }
    Ok(match without_apply {
        SettleOutcome::Done if is_dropped || options.kept_as.is_some() => SettleOutcome::Done,
        SettleOutcome::Done => SettleOutcome::Undecided(Some(set.changes.len())),
        outcome => outcome,
    })
}

fn collect(
    context: &SettleContext<'_>,
    sandbox: &Sandbox,
    options: SettleOptions<'_>,
    watch: &mut Watch<'_>,
) -> Result<SandboxChanges, Error> {
    let patterns = &context.settings.sync;
    let mut filter = Filter::new(
        &texts(&patterns.pull_exclude),
        &texts(&patterns.pull_include),
    )?;
    if let Some(project) = project_of(sandbox) {
        if matches!(
            options.when,
            ApplyWhen::Ask | ApplyWhen::Always | ApplyWhen::OnSuccess
        ) {
            apply::recover_project(&project, sandbox.state_dir());
        }
        if !options.takes_ignored {
            filter = filter.without_ignored(ignore_rules(context.host, &project, &[])?);
        }
    }
    collect_own(sandbox, &filter, options.is_still, watch)
}

/// Reports the number of changes that are discarded with the sandbox; no number if counting takes
/// too long.
fn notify_discarded(
    context: &SettleContext<'_>,
    sandbox: &Sandbox,
    options: SettleOptions<'_>,
    git: &GitWork,
) {
    let counted = collect(context, sandbox, options, &mut *count_deadline());
    let changes = match counted {
        Ok(taken) => Some(taken.collected.set.changes.len()),
        Err(_) => None,
    };
    if changes != Some(0) || !git.is_empty() {
        context.frontend.notify(&Notice::Discarded { changes, git });
    }
}

/// Applies the changes to the project if the reviewer agrees.
fn take_over<R: Reviewer>(
    context: &SettleContext<'_>,
    sandbox: &Sandbox,
    taken: SandboxChanges,
    options: SettleOptions<'_>,
    git: &GitWork,
    reviewer: &mut R,
) -> Result<TakeOver, R::Error> {
    let count = taken.collected.set.changes.len();
    let to = destination(&taken)?;
    // Without a question, nothing that cannot be undone afterwards may be replaced.
    let is_unasked = options.when != ApplyWhen::Ask;
    let name = &sandbox.info().name;
    let goal = ApplyTarget::new(&to)
        .keeping_earlier(sandbox.state_dir(), is_unasked)
        .telling(sandbox.state_dir(), Some(name));
    let is_asked = options.when == ApplyWhen::Ask;
    let can_keep = options.can_stay && options.kept_as.is_none();
    let mut is_agreed = !is_asked;
    let mut agree = |review: &Review<'_>| -> Result<ReviewAnswer, R::Error> {
        if is_agreed {
            return Ok(ReviewAnswer::Yes);
        }
        let answer = reviewer.agree(review, &to, can_keep)?;
        // A choice for conflicts implies agreement.
        is_agreed = matches!(answer, ReviewAnswer::Choose(_));
        Ok(answer)
    };
    let mut watch = context.frontend.watch_progress();
    let applied = apply::apply(taken, goal, context.supervisor, &mut *watch, &mut agree)?;
    drop(watch);
    let is_part = matches!(applied, ApplyOutcome::Part(_));
    match applied {
        ApplyOutcome::Done(outcome) | ApplyOutcome::Part(outcome) => {
            context.frontend.notify(&Notice::Applied {
                name,
                to: &to,
                outcome: &outcome,
                is_reviewed: is_asked,
            });
            let unplaced = outcome.unplaced().count();
            if unplaced > 0 {
                context.frontend.notify(&Notice::Unplaced {
                    name,
                    outcome: &outcome,
                });
            }
            Ok(TakeOver::Taken(
                if unplaced > 0 && options.kept_as.is_none() {
                    SettleOutcome::Unplaced(unplaced)
                } else if is_part && options.can_stay {
                    // The user may still want the rest.
                    SettleOutcome::KeepRest
                } else if outcome.conflicts.is_empty() {
                    SettleOutcome::Done
                } else {
                    SettleOutcome::Conflicts
                },
            ))
        }
        ApplyOutcome::Declined(ReviewAnswer::Later) => Ok(TakeOver::Left(SettleOutcome::Keep)),
        ApplyOutcome::Declined(ReviewAnswer::None) => {
            Ok(TakeOver::Left(SettleOutcome::Undecided(Some(count))))
        }
        ApplyOutcome::Declined(_) => {
            if options.kept_as.is_none() {
                let changes = Some(count);
                context.frontend.notify(&Notice::Discarded { changes, git });
            }
            Ok(TakeOver::Discarded)
        }
    }
}

/// Result of applying changes, before git work is settled.
enum TakeOver {
    /// All or some changes were applied.
    Taken(SettleOutcome),
    /// The user did not decide, or not yet.
    Left(SettleOutcome),
    /// The user discards the changes.
    Discarded,
}

/// Git work of a sandbox at the end of an operation.
struct GitEnd<'a> {
    context: &'a SettleContext<'a>,
    sandbox: &'a Sandbox,
    work: Result<GitWork, Error>,
    project: Option<PathBuf>,
}

impl GitEnd<'_> {
    fn is_empty(&self) -> bool {
        self.work.as_ref().is_ok_and(GitWork::is_empty)
    }

    /// Returns true if there is a stash made inside, or if that is unknown.
    fn has_stash(&self) -> bool {
        self.work.as_ref().map_or(true, |work| work.stashes > 0)
    }

    /// Reports the git work that stays in the sandbox.
    fn tell(&self) {
        let name = &self.sandbox.info().name;
        let frontend = self.context.frontend;
        match &self.work {
            Ok(work) if work.is_empty() => {}
            Ok(work) => frontend.notify(&Notice::GitStays { name, work }),
            Err(error) => frontend.notify(&Notice::GitUnknown { name, error }),
        }
    }

    /// Takes the commits to a branch after the files were settled. The sandbox is kept if other
    /// work stays.
    fn take(&self, settled: SettleOutcome) -> SettleOutcome {
        let Ok(work) = &self.work else {
            self.tell();
            return SettleOutcome::GitStays { is_refused: true };
        };
        if work.is_empty() {
            return settled;
        }
        let frontend = self.context.frontend;
        let name = &self.sandbox.info().name;
        let mut left = GitWork {
            commits: 0,
            ..work.clone()
        };
        let mut is_refused = false;
        if work.commits > 0 {
            let project = self.project.as_deref();
            let taken = project.map(|project| {
                let taken = take_to_free_branch(self.sandbox, project);
                (project, taken)
            });
            match taken {
                Some((project, Ok(taken))) => frontend.notify(&Notice::CommitsTaken {
                    project,
                    taken: &taken,
                }),
                Some((_, Err(error))) => {
                    frontend.notify(&Notice::CommitsHeld { error: &error });
                    left.commits = work.commits;
                    is_refused = true;
                }
                None => left.commits = work.commits,
            }
        }
        if left.is_empty() {
            return settled;
        }
        frontend.notify(&Notice::GitStays { name, work: &left });
        match settled {
            SettleOutcome::Done => SettleOutcome::GitStays { is_refused },
            // The sandbox is kept for the git work; `is_refused` preserves the exit code of a
            // conflict.
            SettleOutcome::Conflicts => SettleOutcome::GitStays { is_refused: true },
            settled => settled,
        }
    }
}

/// Returns true if ignored build output is kept for the next sandbox.
fn keeps_build_output(sandbox: &Sandbox) -> bool {
    sandbox.report().is_ok_and(|report| {
        let mut caches = report.caches.iter();
        caches
            .any(|cache| cache.keeping == CacheKeeping::Kept && cache.target.starts_with(WORKSPACE))
    })
}
