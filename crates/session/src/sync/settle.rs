//! What becomes of a sandbox's changes when the work in it has ended.
//!
//! Whatever goes wrong here, the work is not lost: the caller keeps a sandbox whose changes were wanted and could not
//! be taken over.

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

/// When changes are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyWhen {
    /// When the user says so.
    Ask,
    /// In any case.
    Always,
    /// If the command succeeds.
    OnSuccess,
    /// Not now: the sandbox stays if something changed.
    Later,
    /// Nobody said: what changed is parked.
    Park,
    /// Not at all: they go with the sandbox.
    Discard,
}

/// What became of the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleOutcome {
    /// What was wanted.
    Done,
    /// Some paths were changed on both sides.
    Conflicts,
    /// The user wants the sandbox to stay.
    Keep,
    /// Part of the changes was taken over, and the sandbox stays with the rest.
    KeepRest,
    /// The patch lacks so many changes, which conflict with the user's own.
    LeftOut(usize),
    /// Nobody has decided about so many changes; `None` when they could not be counted.
    Undecided(Option<usize>),
    /// The sandbox's versions of so many paths have no place on the host, and are only in the sandbox.
    Unplaced(usize),
    /// Git work stays in the sandbox because it cannot come by itself.
    GitStays {
        /// True if it was to come and was refused.
        is_refused: bool,
    },
}

/// What is asked for at the end of a piece of work.
#[derive(Debug, Clone, Copy)]
pub struct SettleOptions<'a> {
    /// When changes are taken over.
    pub when: ApplyWhen,
    /// Whether they are wanted as a patch ([`Reviewer::write_patch`]).
    pub has_patch: bool,
    /// Whether the user sees changes that are not taken over.
    pub is_shown: bool,
    /// Name the sandbox stays under in any case.
    pub kept_as: Option<&'a str>,
    /// Whether nothing can change any more, because nobody else can get at the sandbox.
    pub is_still: bool,
    /// Whether the sandbox can be kept for later.
    pub can_stay: bool,
    /// Whether what the project ignores is taken too.
    pub takes_ignored: bool,
    /// Whether the work ended well.
    pub is_success: bool,
}

/// Who decides about changes.
pub trait Reviewer {
    /// What keeps it from deciding.
    type Error: From<Error>;

    /// Agrees to a plan for the directory `to`, or not. `can_keep`: the sandbox can stay for later.
    ///
    /// # Errors
    /// When there is nobody to ask.
    fn agree(
        &mut self,
        review: &Review<'_>,
        to: &Path,
        can_keep: bool,
    ) -> Result<ReviewAnswer, Self::Error>;

    /// Writes the changes down as a patch.
    ///
    /// # Errors
    /// When it cannot be written.
    fn write_patch(&mut self, view: &ChangesView) -> Result<(), Self::Error>;
}

/// What settling needs besides the sandbox.
#[derive(Debug, Clone, Copy)]
pub struct SettleContext<'a> {
    /// What this machine and this user are like.
    pub host: &'a Surroundings,
    /// What was asked for.
    pub settings: &'a Settings,
    /// The program that commits.
    pub supervisor: &'a Supervisor,
    /// Who is told.
    pub frontend: &'a dyn Frontend,
}

/// Collects the changes and does what was asked for with them.
///
/// # Errors
/// Whatever keeps them from being collected or applied; those of `reviewer`.
pub fn settle<R: Reviewer>(
    context: &SettleContext<'_>,
    sandbox: &Sandbox,
    options: SettleOptions<'_>,
    reviewer: &mut R,
) -> Result<SettleOutcome, R::Error> {
    let frontend = context.frontend;
    // Before the sandbox is held still: git inside is asked.
    let work = git_state::find_git_work(sandbox);
    // Where git inside did not say, nobody can tell what goes.
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
        // To be parked they need not be read; what is wrong with them is said to the one who takes them over.
        Err(error) if options.when == ApplyWhen::Park && options.kept_as.is_none() => {
            frontend.notify(&Notice::NotCollected(&error));
            return Ok(SettleOutcome::Undecided(None));
        }
        collected => collected?,
    };
    let mut taken = taken;
    // What of the sandbox's own repository stays is told as git work.
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
        // What a stash holds is missing from the files: applied, they would take it from the user.
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
    // A patch is a way of taking changes.
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

/// Says how many changes go with the sandbox. What takes too long to count is only said to go.
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

/// Applies the changes to the project, if that is agreed to.
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
    // Nobody is asked: what could not be put back afterwards stays in the sandbox.
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
        // Who has chosen has agreed.
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
                    // The rest can still be wanted.
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

/// Result of applying changes, before the git work is looked at.
enum TakeOver {
    /// They were applied, all or a part.
    Taken(SettleOutcome),
    /// The user did not decide, or not yet.
    Left(SettleOutcome),
    /// The user does not want them.
    Discarded,
}

/// The git work of a sandbox at the end of a piece of work.
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

    /// Returns true if a stash was made inside, or if nobody knows whether one was.
    fn has_stash(&self) -> bool {
        self.work.as_ref().map_or(true, |work| work.stashes > 0)
    }

    /// Says what of git stays in the sandbox.
    fn tell(&self) {
        let name = &self.sandbox.info().name;
        let frontend = self.context.frontend;
        match &self.work {
            Ok(work) if work.is_empty() => {}
            Ok(work) => frontend.notify(&Notice::GitStays { name, work }),
            Err(error) => frontend.notify(&Notice::GitUnknown { name, error }),
        }
    }

    /// Takes the commits to a branch after the files were settled. What stays keeps the sandbox.
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
            let taken = project.map(|project| take_to_free_branch(self.sandbox, project));
            match taken {
                Some(Ok(taken)) => frontend.notify(&Notice::CommitsTaken(&taken)),
                Some(Err(error)) => {
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
            // It stays anyway, or a conflict is told by the exit code.
            SettleOutcome::Conflicts => SettleOutcome::GitStays { is_refused: true },
            settled => settled,
        }
    }
}

/// Whether some of what the project ignores is kept for the next sandbox.
fn keeps_build_output(sandbox: &Sandbox) -> bool {
    sandbox.report().is_ok_and(|report| {
        let mut caches = report.caches.iter();
        caches
            .any(|cache| cache.keeping == CacheKeeping::Kept && cache.target.starts_with(WORKSPACE))
    })
}
