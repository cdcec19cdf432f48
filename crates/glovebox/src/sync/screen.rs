//! Displays patches to a user who is asked about them.

use super::patch_error;
use crate::cmd::Cx;
use crate::exit::CommandError;
use crate::render::{Messages, Pager, Screen, escape, plural};
use crate::streams::Signals;
use glovebox_workspace::CollectedChanges;
use glovebox_workspace::patch::{self, HiddenSearch, PatchError, Style};
use std::fmt::Write as _;
use std::io::Write;

/// Displays changes next to a question.
pub(crate) fn show(
    cx: &Cx,
    changes: &CollectedChanges,
    signals: &Signals,
) -> Result<(), CommandError> {
    show_with(cx, signals, |style, out| patch::write(changes, style, out))
}

/// Displays the output of `write` next to a question, below a warning if it contains hidden
/// characters.
pub(super) fn show_with(
    cx: &Cx,
    signals: &Signals,
    write: impl Fn(Style, &mut dyn Write) -> Result<(), PatchError>,
) -> Result<(), CommandError> {
    let failed = |error| patch_error(error, "the terminal");
    let mut search = HiddenSearch::default();
    write(Style::Search, &mut search).map_err(failed)?;
    let hidden = search.finish();
    let mut pager = Pager::new(&cx.host, Screen::Stderr, signals);
    if !hidden.is_empty() {
        writeln!(pager, "{} {hidden}", cx.talk.warning_label())
            .map_err(|error| failed(error.into()))?;
    }
    write(cx.talk.screen_style(), &mut pager)
        .and_then(|()| Ok(pager.finish()?))
        .map_err(failed)
}

/// Warns of hidden characters in changes that the user sees or decides about.
pub(crate) fn tell_hidden(talk: Messages, changes: &CollectedChanges) -> Result<(), CommandError> {
    const MAX_FILES: usize = 20;
    let report = patch::find_hidden(changes).map_err(|error| patch_error(error, "the terminal"))?;
    let count = report.files.len();
    if count > 0 {
        let mut text = format!(
            "characters that hide or act in {}; a diff shows them as signs:",
            plural(count, "file", "files")
        );
        for (path, hidden) in report.files.iter().take(MAX_FILES) {
            let _ = write!(text, "\n  {}: {hidden}", escape(path.as_bytes()));
        }
        if count > MAX_FILES {
            let _ = write!(text, "\n  and {} more files", count - MAX_FILES);
        }
        talk.warning(text);
    }
    if report.is_partial {
        talk.warning("the changes are too long to be searched whole for characters that hide");
    }
    Ok(())
}
