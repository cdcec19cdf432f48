//! Application of changes to a directory on the host: questions and messages for a user at a
//! terminal.

pub(crate) use glovebox_session::sync::apply::{
    ApplyOutcome, ApplyTarget, ChangesView, Review, ReviewAnswer, apply, preview, put_back,
    runs_here, view,
};

use super::{choices, screen, select};
use crate::cmd::Cx;
use crate::exit::CommandError;
use crate::render::{self, Messages};
use crate::streams::Signals;
use glovebox_proto::{Code, Fault, Remedy};
use glovebox_sandbox::Name;
use glovebox_workspace::{EarlierVersions, Outcome};

/// Displays a plan before the user is asked about it.
pub(crate) fn show(cx: &Cx, review: &Review<'_>, signals: &Signals) -> Result<(), CommandError> {
    screen::show(cx, &review.view()?, signals)
}

/// Asks about each conflict. None if the user leaves.
pub(crate) fn choose(
    cx: &Cx,
    review: &Review<'_>,
    signals: &Signals,
) -> Result<Option<ReviewAnswer>, CommandError> {
    Ok(choices::ask(cx, review, signals)?.map(ReviewAnswer::Choose))
}

/// Asks about each hunk.
pub(crate) fn select(
    cx: &Cx,
    review: &Review<'_>,
    signals: &Signals,
) -> Result<ReviewAnswer, CommandError> {
    select::ask(cx, &review.view()?, signals).map(ReviewAnswer::Select)
}

/// Creates the failure of a command that left paths in conflict.
pub(crate) fn conflict(outcome: &Outcome, remedy: impl Into<Remedy>) -> CommandError {
    let count = outcome.conflicts.len();
    let paths = render::plural(count, "path", "paths");
    Fault::refused(Code::Conflict, format!("{paths} changed on both sides"))
        .remedy(remedy)
        .into()
}

/// Reports the merged files and the conflicts of a patch.
pub(crate) fn tell_patch(talk: Messages, outcome: &Outcome) {
    tell_merged(talk, outcome, "the patch");
}

/// Reports the merged files and the conflicts of a branch.
pub(crate) fn tell_branch(talk: Messages, outcome: &Outcome) {
    tell_merged(talk, outcome, "the branch");
}

/// Names the conflicts whose version from the sandbox could not be placed and stays in the sandbox
/// `name`. Printed with `--quiet` too: no other message says where that version is.
pub(crate) fn tell_unplaced(name: &str, outcome: &Outcome) {
    const MAX_PATHS: usize = 3;
    let mut unplaced = outcome.unplaced();
    for (conflict, reason) in unplaced.by_ref().take(MAX_PATHS) {
        render::say(format_args!(
            "glovebox: the sandbox's version of {} could not be put beside it ({reason}); it stays in {name}",
            render::escape(conflict.path.as_bytes())
        ));
    }
    let rest = unplaced.count();
    if rest > 0 {
        let paths = render::plural(rest, "further path", "further paths");
        render::say(format_args!("glovebox: so do those of {paths}"));
    }
}

/// Names the other sandboxes of the project that see the applied changes.
pub(crate) fn tell_viewers(talk: Messages, names: &[Name]) {
    if names.is_empty() {
        return;
    }
    let list: Vec<&str> = names.iter().map(Name::as_str).collect();
    talk.note(format_args!(
        "{} it: {}",
        render::plural(
            names.len(),
            "other sandbox of this project sees",
            "other sandboxes of this project see"
        ),
        list.join(", ")
    ));
}

fn tell_merged(talk: Messages, outcome: &Outcome, form: &str) {
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

/// Reports what the user should look at, before the question or after the application (`is_done`):
/// flagged paths, conflicts, and paths that stay in the sandbox.
pub(crate) fn tell(talk: Messages, outcome: &Outcome, is_done: bool) {
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
    if let Some(earlier) = &outcome.earlier {
        tell_earlier(talk, earlier);
    }
    if !outcome.lost_groups.is_empty() {
        talk.note(format_args!(
            "{} another group than before, since you are not in that one:\n{}",
            render::plural(outcome.lost_groups.len(), "file has", "files have"),
            render::paths(&outcome.lost_groups).trim_end()
        ));
    }
    super::tell_refused(talk, &outcome.refused);
}

/// Reports which of the user's overwritten files can be restored, and which cannot.
fn tell_earlier(talk: Messages, earlier: &EarlierVersions) {
    if earlier.files > 0 {
        talk.note(format_args!(
            "{} of your files that git does not have {} changed or removed; `glovebox pull --undo {}` puts {} back \
             for a day",
            earlier.files,
            if earlier.files == 1 { "was" } else { "were" },
            earlier.id,
            if earlier.files == 1 { "it" } else { "them" }
        ));
    }
    if !earlier.unkept.is_empty() {
        talk.warning(format_args!(
            "{} of your files that git does not have cannot be put back, too large to be kept:\n{}",
            earlier.unkept.len(),
            render::paths(&earlier.unkept).trim_end()
        ));
    }
}
