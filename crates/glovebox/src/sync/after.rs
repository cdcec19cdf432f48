//! What `run` does with the changes when its command has ended.
//!
//! Whatever goes wrong here, the work is not lost: a sandbox whose changes were wanted and could not
//! be taken over is kept.

use super::apply::{self, Answer, Applied, Goal, Review, View};
use super::{Taken, collect_own, patch_file, question};
use crate::args::{Apply, RunArgs};
use crate::cmd::Cx;
use crate::exit::{CommandError, Kind};
use crate::render::{self, Meter};
use crate::session::Signals;
use glovebox_sandbox::jail::spec::WORKSPACE;
use glovebox_sandbox::{CacheKeeping, Sandbox};
use glovebox_settings::{Settings, texts};
use glovebox_workspace::{Filter, Resolution};
use std::path::Path;

/// When changes are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
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
    /// Not at all.
    Never,
}

impl When {
    /// What flags and configuration come to; flags win, and who wants a patch is not asked.
    pub(crate) fn of(args: &RunArgs, settings: &Settings) -> Self {
        match args.apply {
            Some(Apply::Ask) => Self::Ask,
            Some(Apply::Auto) => Self::Always,
            None if args.sync_on_success || settings.sync.on_success.value => Self::OnSuccess,
            None if args.patch.is_none() && !args.json && question::is_possible() => Self::Ask,
            // The patch is how they are taken.
            None if args.patch.is_some() => Self::Never,
            None => Self::Park,
            Some(Apply::Never) => Self::Never,
        }
    }
}

/// What became of the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// What was wanted.
    Done,
    /// Some paths were changed on both sides.
    Conflicts,
    /// The user wants the sandbox to stay.
    Keep,
    /// The patch lacks so many changes, which conflict with the user's own.
    LeftOut(usize),
    /// Nobody has decided about so many changes; `None` when they could not be counted.
    Undecided(Option<usize>),
}

/// The end of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct After<'a> {
    /// When changes are taken over.
    pub when: When,
    /// File for the patch.
    pub patch: Option<&'a Path>,
    /// Name the sandbox stays under in any case.
    pub kept_as: Option<&'a str>,
    /// Whether nothing can change any more, because nobody else can get at the sandbox.
    pub is_still: bool,
    /// Whether the sandbox can be kept for later.
    pub can_stay: bool,
    /// Whether what the project ignores is taken too.
    pub takes_ignored: bool,
    /// Whether the command ended with 0.
    pub is_success: bool,
}

/// Collects the changes and does what was asked for with them.
pub(crate) fn settle(
    cx: &Cx,
    sandbox: &Sandbox,
    settings: &Settings,
    after: After<'_>,
    signals: &Signals,
) -> Result<Settled, CommandError> {
    let is_shown = cx.talk.is_terminal || cx.talk.is_verbose;
    if after.when == When::Never && after.patch.is_none() && !is_shown {
        return Ok(Settled::Done);
    }
    let mut filter = Filter::new(
        &texts(&settings.sync.pull_exclude),
        &texts(&settings.sync.pull_include),
    )?;
    if !after.takes_ignored
        && let Some(project) = super::project_of(sandbox)
    {
        filter = filter.without_ignored(super::ignore_rules(cx, &project, &[])?);
    }
    let mut meter = Meter::new(cx.talk, false, signals);
    let collected = collect_own(sandbox, &filter, after.is_still, &mut |progress| {
        meter.tick(progress)
    });
    meter.clear();
    let taken = match collected {
        // To be parked they need not be read; what is wrong with them is said to whoever takes them over.
        Err(error) if after.when == When::Park && after.kept_as.is_none() => {
            let message = CommandError::from(error).fault.message;
            cx.talk.detail(render::escape_text(&message));
            return Ok(Settled::Undecided(None));
        }
        collected => collected?,
    };
    super::tell_unheld(cx.talk, &taken);
    let mut without_apply = Settled::Done;
    let ends = after.kept_as.is_none() && !keeps_build_output(sandbox);
    super::tell_ignored(cx.talk, &taken.collected.ignored, ends);
    if let Some(file) = after.patch {
        let view = apply::view(&taken, taken.project.as_deref())?;
        patch_file::write(&view.collected, file, &cx.host)?;
        tell_patch(cx, &view, file);
        if !view.outcome.conflicts.is_empty() {
            without_apply = Settled::LeftOut(view.outcome.conflicts.len());
        }
    }
    let is_wanted = match after.when {
        When::Ask | When::Always => true,
        When::OnSuccess => after.is_success,
        When::Later | When::Park | When::Never => false,
    };
    if taken.collected.set.changes.is_empty() {
        super::tell_refused(cx.talk, &taken.collected.set.refused);
        return Ok(Settled::Done);
    }
    if !is_wanted {
        if after.when == When::Later {
            show_changes(cx, &taken);
            return Ok(Settled::Keep);
        }
        let is_dropped = after.when == When::Never;
        leave(cx, &taken, after, is_shown);
        return Ok(match without_apply {
            Settled::Done if is_dropped || after.kept_as.is_some() => Settled::Done,
            Settled::Done => Settled::Undecided(Some(taken.collected.set.changes.len())),
            settled => settled,
        });
    }
    let count = taken.collected.set.changes.len();
    let to = super::destination(&taken)?;
    let goal = Goal {
        to: &to,
        conflicts: Resolution::Beside,
    };
    let mut is_agreed = false;
    let applied = apply::apply(taken, goal, &mut meter, &mut |review| {
        if is_agreed {
            Ok(Answer::Yes)
        } else if after.when == When::Ask {
            let is_offered = after.can_stay && after.kept_as.is_none();
            let answer = agree(cx, review, &to, is_offered, signals)?;
            // Who has chosen has agreed.
            is_agreed = matches!(answer, Answer::Choose(_));
            Ok(answer)
        } else {
            Ok(Answer::Yes)
        }
    })?;
    drop(meter);
    let is_part = matches!(applied, Applied::Part(_));
    match applied {
        Applied::Done(outcome) | Applied::Part(outcome) => {
            let text = format!(
                "applied to {}: {}\n{}",
                cx.short(&to),
                render::applied_summary(&outcome),
                render::applied(&outcome)
            );
            cx.talk.note(text.trim_end());
            // Who was asked has seen these.
            if after.when != When::Ask {
                apply::tell(cx.talk, &outcome, true);
            }
            Ok(if is_part && after.can_stay {
                // The rest can still be wanted.
                Settled::Keep
            } else if outcome.conflicts.is_empty() {
                Settled::Done
            } else {
                Settled::Conflicts
            })
        }
        Applied::Declined(Answer::Later) => Ok(Settled::Keep),
        Applied::Declined(Answer::None) => Ok(Settled::Undecided(Some(count))),
        Applied::Declined(_) => Ok(Settled::Done),
    }
}

/// Says what is in a patch, where it is, and what to do with it.
fn tell_patch(cx: &Cx, view: &View, file: &Path) {
    let set = &view.collected.set;
    apply::tell_patch(cx.talk, &view.outcome);
    // What went to standard output is in the hands of whoever reads it.
    if file == Path::new("-") {
        return;
    }
    let count = render::change_count(set);
    let shown = super::shown_path(file);
    if set.changes.is_empty() {
        cx.talk
            .note(format_args!("{count}; the patch {shown} is empty"));
    } else {
        cx.talk.note(format_args!(
            "{count} in the patch {shown}; `git apply {shown}` takes them over"
        ));
    }
}

fn show_changes(cx: &Cx, taken: &Taken) {
    let set = &taken.collected.set;
    cx.talk.note(format_args!(
        "{} in /workspace: {}\n{}",
        render::change_count(set),
        render::summary(set),
        render::changes(set).trim_end()
    ));
    super::tell_refused(cx.talk, &set.refused);
}

/// Says what changed and is not taken over.
fn leave(cx: &Cx, taken: &Taken, after: After<'_>, is_shown: bool) {
    if !is_shown {
        return;
    }
    show_changes(cx, taken);
    match (after.kept_as, after.patch) {
        (Some(name), _) => cx.talk.note(format_args!(
            "your files are as before; `glovebox pull {name}` brings these changes back"
        )),
        // How to take over a patch has been said.
        (None, Some(_)) => cx.talk.note("your files are as before"),
        (None, None) if after.when == When::Never => cx.talk.note(
            "your files are as before and these changes are gone; `--apply ask` or `--keep NAME` saves them",
        ),
        // Where they are is said when they are there.
        (None, None) => {}
    }
}

fn agree(
    cx: &Cx,
    review: &Review<'_>,
    to: &Path,
    may_wait: bool,
    signals: &Signals,
) -> Result<Answer, CommandError> {
    if !question::is_possible() {
        return Err(CommandError::new(
            Kind::Usage,
            glovebox_proto::Fault::failed(
                glovebox_proto::Code::InvalidArgument,
                "there is no terminal to ask on whether the changes are wanted",
            )
            .remedy("say so with --apply auto or --apply never"),
        ));
    }
    let set = &review.taken.collected.set;
    cx.talk.note(format_args!(
        "{} in /workspace: {}\n{}",
        render::change_count(set),
        render::summary(set),
        render::changes(set).trim_end()
    ));
    apply::tell(cx.talk, review.outcome, false);
    let text = format!(
        "apply to {}? [y]es, [n]o, [d]iff, [s]elect{}",
        cx.short(to),
        if may_wait {
            ", [k]eep the sandbox for later"
        } else {
            ""
        }
    );
    loop {
        match question::ask(&text, &['y', 'n', 'd', 's', 'k'], signals) {
            Some('y') if review.has_choices() => {
                return Ok(review.choose(cx, signals)?.unwrap_or(Answer::Later));
            }
            Some('y') => return Ok(Answer::Yes),
            Some('n') => return Ok(Answer::No),
            Some('s') => return review.select(cx, signals),
            Some('d') => review.show(cx, signals)?,
            Some(_) => return Ok(Answer::Later),
            // Whoever leaves without an answer has not said that the work may go.
            None => return Ok(Answer::None),
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
