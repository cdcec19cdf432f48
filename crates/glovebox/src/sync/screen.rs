//! Patches shown to the one who is asked about them.

use super::patch_error;
use crate::cmd::Cx;
use crate::exit::CommandError;
use crate::render::{Pager, Screen};
use crate::streams::Signals;
use glovebox_workspace::CollectedChanges;
use glovebox_workspace::patch::{self, PatchError, Style};
use std::io::Write;

/// Shows changes beside a question.
pub(crate) fn show(
    cx: &Cx,
    changes: &CollectedChanges,
    signals: &Signals,
) -> Result<(), CommandError> {
    show_with(cx, signals, |style, out| patch::write(changes, style, out))
}

/// Shows what `write` writes beside a question.
pub(super) fn show_with(
    cx: &Cx,
    signals: &Signals,
    write: impl FnOnce(Style, &mut dyn Write) -> Result<(), PatchError>,
) -> Result<(), CommandError> {
    let mut pager = Pager::new(&cx.host, Screen::Stderr, signals);
    write(cx.talk.screen_style(), &mut pager)
        .and_then(|()| Ok(pager.finish()?))
        .map_err(|error| patch_error(error, "the terminal"))
}
