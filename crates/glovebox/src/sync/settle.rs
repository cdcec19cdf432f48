//! The end of a piece of work at a terminal: applies its changes or not, asks the user, and reports
//! the result.

pub(crate) use glovebox_session::sync::settle::{ApplyWhen, SettleOptions, SettleOutcome};

use super::apply::{self, ChangesView, Review, ReviewAnswer};
use super::{patch_file, question};
use crate::args::{Apply, RunArgs};
use crate::cmd::run::supervisor;
use crate::cmd::{Cx, TerminalFrontend};
use crate::exit::{CommandError, Kind};
use crate::render::{self, Messages};
use crate::streams::Signals;
use glovebox_sandbox::{Name, Sandbox};
use glovebox_session::sync::settle::{self, Reviewer, SettleContext};
use glovebox_session::sync::viewers;
use glovebox_settings::Settings;
use glovebox_workspace::{ChangeSet, Outcome};
use std::path::Path;

/// Decides from flags and configuration when changes are applied. Flags win; with a patch the user
/// is not asked.
pub(crate) fn when_of(args: &RunArgs, settings: &Settings) -> ApplyWhen {
    match args.apply {
        Some(Apply::Ask) => ApplyWhen::Ask,
        Some(Apply::Auto) => ApplyWhen::Always,
        None if args.sync_on_success || settings.sync.on_success.value => ApplyWhen::OnSuccess,
        None if args.patch.is_none() && !args.json && question::is_possible() => ApplyWhen::Ask,
        // The user takes the changes from the patch.
        None if args.patch.is_some() => ApplyWhen::Discard,
        None => ApplyWhen::Park,
        Some(Apply::Discard) => ApplyWhen::Discard,
    }
}

/// Collects the changes and applies, parks or discards them. `patch` is the file they are written
/// to if `options.has_patch` is set.
pub(crate) fn settle(
    cx: &Cx,
    sandbox: &Sandbox,
    settings: &Settings,
    options: SettleOptions<'_>,
    patch: Option<&Path>,
    signals: &Signals,
) -> Result<SettleOutcome, CommandError> {
    let context = SettleContext {
        host: &cx.host,
        settings,
        supervisor: &supervisor()?,
        frontend: &TerminalFrontend::stoppable(cx, signals, false),
    };
    let mut reviewer = TerminalReviewer { cx, signals, patch };
    settle::settle(&context, sandbox, options, &mut reviewer)
}

/// Reviewer that asks a user at a terminal.
pub(crate) struct TerminalReviewer<'a> {
    pub cx: &'a Cx,
    pub signals: &'a Signals,
    /// File that a patch is written to.
    pub patch: Option<&'a Path>,
}

impl Reviewer for TerminalReviewer<'_> {
    type Error = CommandError;

    fn agree(
        &mut self,
        review: &Review<'_>,
        to: &Path,
        can_keep: bool,
    ) -> Result<ReviewAnswer, CommandError> {
        agree(self.cx, review, to, can_keep, self.signals)
    }

    fn write_patch(&mut self, view: &ChangesView) -> Result<(), CommandError> {
        if let Some(file) = self.patch {
            patch_file::write(&view.collected, file, &self.cx.host)?;
            tell_patch(self.cx, view, file);
        }
        Ok(())
    }
}

/// Reports the content of a patch, its path, and the command that applies it.
fn tell_patch(cx: &Cx, view: &ChangesView, file: &Path) {
    let set = &view.collected.set;
    apply::tell_patch(cx.talk, &view.outcome);
    // The reader of standard output decides what happens to the patch.
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

/// Reports changes that are not applied now.
pub(crate) fn tell_changed(talk: Messages, set: &ChangeSet) {
    list_changes(talk, set);
    super::tell_refused(talk, &set.refused);
}

fn list_changes(talk: Messages, set: &ChangeSet) {
    talk.note(format_args!(
        "{} in /workspace: {}\n{}",
        render::change_count(set),
        render::summary(set),
        render::changes(set).trim_end()
    ));
}

/// Reports that the user's files are unchanged, and the command that fetches the changes.
pub(crate) fn tell_not_applied(talk: Messages, kept_as: Option<&str>, has_patch: bool) {
    match kept_as {
        Some(name) => talk.note(format_args!(
            "your files are as before; `glovebox pull {name}` brings these changes back"
        )),
        // How to apply the patch has been printed already.
        None if has_patch => talk.note("your files are as before"),
        // Another message says later where the changes are, or that they are discarded.
        None => {}
    }
}

/// Reports what was applied.
pub(crate) fn tell_applied(cx: &Cx, name: &Name, to: &Path, outcome: &Outcome, is_reviewed: bool) {
    let text = format!(
        "applied to {}: {}\n{}",
        cx.short(to),
        render::applied_summary(outcome),
        render::applied(outcome)
    );
    cx.talk.note(text.trim_end());
    if !is_reviewed {
        apply::tell(cx.talk, outcome, true);
    }
    if let Ok(registry) = cx.user_registry() {
        apply::tell_viewers(cx.talk, &viewers::find_viewers(&registry, to, Some(name)));
    }
}

fn agree(
    cx: &Cx,
    review: &Review<'_>,
    to: &Path,
    can_keep: bool,
    signals: &Signals,
) -> Result<ReviewAnswer, CommandError> {
    if !question::is_possible() {
        return Err(CommandError::new(
            Kind::Usage,
            glovebox_proto::Fault::failed(
                glovebox_proto::Code::InvalidArgument,
                "there is no terminal to ask on whether the changes are wanted",
            )
            .remedy("say so with --apply auto or --apply discard"),
        ));
    }
    list_changes(cx.talk, &review.taken.collected.set);
    apply::tell(cx.talk, review.outcome, false);
    super::screen::tell_hidden(cx.talk, &review.view()?)?;
    let text = format!(
        "apply to {}? [y]es, [n]o, [d]iff, [s]elect{}",
        cx.short(to),
        if can_keep {
            ", [k]eep the sandbox for later"
        } else {
            ""
        }
    );
    loop {
        match question::ask(&text, &['y', 'n', 'd', 's', 'k'], signals) {
            Some('y') if review.has_open_conflicts() => {
                return Ok(apply::choose(cx, review, signals)?.unwrap_or(ReviewAnswer::Later));
            }
            Some('y') => return Ok(ReviewAnswer::Yes),
            Some('n') => return Ok(ReviewAnswer::No),
            Some('s') => return apply::select(cx, review, signals),
            Some('d') => apply::show(cx, review, signals)?,
            Some(_) => return Ok(ReviewAnswer::Later),
            // Leaving without an answer does not permit discarding the work.
            None => return Ok(ReviewAnswer::None),
        }
    }
}
