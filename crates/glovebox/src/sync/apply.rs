//! Changes into a directory on the host: planned, agreed to, staged, committed.
//!
//! The last step, the only one that changes the user's files, is done by a process of its own (see
//! [`crate::cmd::commit`]): whoever kills this one leaves a directory that is either untouched or
//! complete.

pub(crate) use glovebox_session::sync::apply::{View, base, view};

use super::{Taken, choices, screen, select};
use crate::cmd::Cx;
use crate::exit::CommandError;
use crate::render::{self, Meter, Talk};
use crate::session::Signals;
use glovebox_proto::{Code, Fault, Remedy};
use glovebox_workspace::apply::Destination;
use glovebox_workspace::patch::Selection;
use glovebox_workspace::{Collected, Flag, Options, Outcome, Plan, RelPath, Resolution, SyncError};
use std::collections::BTreeMap;
use std::path::Path;

/// What the one who is asked says to a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
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

/// A plan that somebody is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Review<'a> {
    /// The changes.
    pub taken: &'a Taken,
    /// What the plan comes to.
    pub outcome: &'a Outcome,
    destination: &'a Destination,
    plan: &'a Plan,
}

impl Review<'_> {
    /// The plan as changes of what the destination has now.
    pub(crate) fn view(&self) -> Result<Collected, SyncError> {
        self.destination.view(self.plan, &self.taken.collected)
    }

    /// Shows it to the one who is asked.
    pub(crate) fn show(&self, cx: &Cx, signals: &Signals) -> Result<(), CommandError> {
        screen::show(cx, &self.view()?, signals)
    }

    /// Whether there are conflicts about which there is something to choose.
    pub(crate) fn has_choices(&self) -> bool {
        self.outcome.conflicts.iter().any(choices::is_open)
    }

    /// Asks about each conflict; `None` when the user leaves.
    pub(crate) fn choose(
        &self,
        cx: &Cx,
        signals: &Signals,
    ) -> Result<Option<Answer>, CommandError> {
        Ok(choices::ask(cx, self, signals)?.map(Answer::Choose))
    }

    /// Asks about each hunk.
    pub(crate) fn select(&self, cx: &Cx, signals: &Signals) -> Result<Answer, CommandError> {
        select::ask(cx, &self.view()?, signals).map(Answer::Select)
    }
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum Applied {
    /// It was done.
    Done(Outcome),
    /// What was selected was done; the rest is in the sandbox.
    Part(Outcome),
    /// It was not wanted.
    Declined(Answer),
}

/// What to do where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal<'a> {
    /// The directory.
    pub to: &'a Path,
    /// What becomes of files that both sides changed in a way that cannot be merged.
    pub conflicts: Resolution,
}

/// The failure of a command after which some paths are in conflict.
pub(crate) fn conflict(outcome: &Outcome, remedy: impl Into<Remedy>) -> CommandError {
    let count = outcome.conflicts.len();
    let paths = render::plural(count, "path", "paths");
    Fault::refused(Code::Conflict, format!("{paths} changed on both sides"))
        .remedy(remedy)
        .into()
}

/// Says which files hold changes of both sides, and which could not be merged, in a patch.
pub(crate) fn tell_patch(talk: Talk, outcome: &Outcome) {
    tell_merged(talk, outcome, "the patch");
}

/// The same for a branch.
pub(crate) fn tell_branch(talk: Talk, outcome: &Outcome) {
    tell_merged(talk, outcome, "the branch");
}

fn tell_merged(talk: Talk, outcome: &Outcome, form: &str) {
    let merged = render::merged(outcome);
    if !merged.is_empty() {
        talk.note(format_args!(
            "you changed these too since the sandbox began; {form} merges:\n{}",
            merged.trim_end()
        ));
    }
    if !outcome.conflicts.is_empty() {
        talk.warning(format_args!(
            "{}; {form} leaves yours as it is:\n{}",
            render::plural(outcome.conflicts.len(), "conflict", "conflicts"),
            render::conflicts(outcome).trim_end()
        ));
    }
}

/// What would be done; nothing is written.
pub(crate) fn preview(taken: &Taken, goal: Goal<'_>) -> Result<Outcome, SyncError> {
    let mut destination = Destination::look(goal.to, base(taken, goal.to))?;
    Ok(destination.plan(&taken.collected, options(goal))?.outcome)
}

/// Does it, if `agree` says so to the plan.
pub(crate) fn apply(
    taken: Taken,
    goal: Goal<'_>,
    meter: &mut Meter,
    agree: &mut dyn FnMut(&Review<'_>) -> Result<Answer, CommandError>,
) -> Result<Applied, CommandError> {
    let mut destination = Destination::open(goal.to, base(&taken, goal.to))?;
    let mut options = options(goal);
    let (plan, is_everything) = loop {
        let mut plan = destination.plan(&taken.collected, options.clone())?;
        if plan.is_empty() {
            return Ok(Applied::Done(plan.outcome));
        }
        let review = Review {
            taken: &taken,
            outcome: &plan.outcome,
            destination: &destination,
            plan: &plan,
        };
        match agree(&review)? {
            Answer::Yes => break (plan, true),
            Answer::Choose(choices) => options.choices.extend(choices),
            Answer::Select(selection) => {
                plan.select(&selection);
                if plan.is_empty() {
                    return Ok(Applied::Declined(Answer::Later));
                }
                break (plan, selection.is_everything());
            }
            answer => return Ok(Applied::Declined(answer)),
        }
    };
    let staged = destination.stage(&plan, &taken.collected, &mut |progress| {
        meter.tick(progress)
    })?;
    // The sandbox is not needed any more.
    drop(taken);
    crate::cmd::commit::commit(destination, staged)?;
    Ok(if is_everything {
        Applied::Done(plan.outcome)
    } else {
        Applied::Part(plan.outcome)
    })
}

fn options(goal: Goal<'_>) -> Options {
    Options::all(goal.conflicts)
}

/// Whether something of it is executed or obeyed by the host.
pub(crate) fn runs_here(outcome: &Outcome) -> bool {
    outcome
        .flagged
        .iter()
        .any(|flagged| flagged.flags.contains(&Flag::Executes))
}

/// Says what deserves a look before or after: flagged paths, conflicts, what stays in the sandbox.
pub(crate) fn tell(talk: Talk, outcome: &Outcome, is_done: bool) {
    if !outcome.flagged.is_empty() {
        talk.warning(format_args!(
            "{}:\n{}",
            if is_done {
                "look at these before you use them"
            } else {
                "look at these first"
            },
            render::flagged(&outcome.flagged).trim_end()
        ));
    }
    if !outcome.conflicts.is_empty() {
        let yours = match (
            outcome.conflicts.iter().any(|conflict| conflict.is_marked),
            is_done,
        ) {
            (true, _) => "",
            (false, true) => "; yours stayed as it is",
            (false, false) => "; yours stays as it is",
        };
        talk.warning(format_args!(
            "{}{yours}:\n{}",
            render::plural(outcome.conflicts.len(), "conflict", "conflicts"),
            render::conflicts(outcome).trim_end()
        ));
    }
    if !outcome.resolved.is_empty() {
        talk.note(format_args!(
            "{}, since there is no conflict any more:\n{}",
            if is_done { "removed" } else { "to be removed" },
            render::paths(&outcome.resolved).trim_end()
        ));
    }
    super::tell_refused(talk, &outcome.refused);
}
