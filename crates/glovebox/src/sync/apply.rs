//! Changes into a directory on the host: planned, agreed to, staged, committed.
//!
//! The last step, the only one that changes the user's files, is done by a process of its own (see
//! [`crate::cmd::commit`]): whoever kills this one leaves a directory that is either untouched or
//! complete.

use super::Taken;
use crate::exit::CommandError;
use crate::render::{self, Meter, Talk};
use glovebox_workspace::apply::{BaseFile, Destination};
use glovebox_workspace::{Flag, Options, Outcome, SyncError};
use std::path::Path;

/// What the one who is asked says to a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Do it.
    Yes,
    /// Do not.
    No,
    /// Not now.
    Later,
    /// There was none.
    None,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum Applied {
    /// It was done.
    Done(Outcome),
    /// It was not wanted.
    Declined(Answer),
}

/// What to do where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal<'a> {
    /// The directory.
    pub to: &'a Path,
    /// Where both sides changed a file, take the sandbox's.
    pub force: bool,
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
    agree: &mut dyn FnMut(&Taken, &Outcome) -> Result<Answer, CommandError>,
) -> Result<Applied, CommandError> {
    let mut destination = Destination::open(goal.to, base(&taken, goal.to))?;
    let plan = destination.plan(&taken.collected, options(goal))?;
    if plan.steps.is_empty() {
        return Ok(Applied::Done(plan.outcome));
    }
    match agree(&taken, &plan.outcome)? {
        Answer::Yes => {}
        answer => return Ok(Applied::Declined(answer)),
    }
    let staged = destination.stage(&plan, &taken.collected, &mut |progress| {
        meter.tick(progress)
    })?;
    // The sandbox is not needed any more.
    drop(taken);
    crate::cmd::commit::commit(destination, staged)?;
    Ok(Applied::Done(plan.outcome))
}

fn options(goal: Goal<'_>) -> Options {
    Options { force: goal.force }
}

/// What the host looked like when the sandbox started, if it started from there.
fn base(taken: &Taken, to: &Path) -> Option<BaseFile> {
    let project = taken.project.as_deref()?.canonicalize().ok()?;
    let is_project = taken.is_whole && to.canonicalize().ok()? == project;
    taken.base.clone().filter(|_| is_project)
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
        talk.warning(format_args!(
            "{}; yours {} as it is:\n{}",
            render::plural(outcome.conflicts.len(), "conflict", "conflicts"),
            if is_done { "stayed" } else { "stays" },
            render::conflicts(outcome).trim_end()
        ));
    }
    super::tell_refused(talk, &outcome.refused);
}
