//! Questions about changes, hunk by hunk, as `git add --patch` asks them.

use super::question;
use crate::cmd::Cx;
use crate::exit::CommandError;
use crate::render;
use crate::streams::Signals;
use glovebox_workspace::patch::{self, Hunks, Selection};
use glovebox_workspace::{Change, ChangeKind, CollectedChanges, Node};

const HELP: &str = "  y  take this
  n  leave this in the sandbox; the next pull offers it again
  a  take this and everything further in the file
  d  leave this and everything further in the file
  s  split it into smaller ones
  q  leave this and everything after it";

/// Answer for the remaining hunks of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RestAnswer {
    Ask,
    Take,
    Leave,
}

/// Asks about every change of `view`.
pub(super) fn ask(
    cx: &Cx,
    view: &CollectedChanges,
    signals: &Signals,
) -> Result<Selection, CommandError> {
    let mut selection = Selection::default();
    let mut is_over = false;
    for change in &view.set.changes {
        // A directory is taken with its content.
        let is_dir = |node: Option<&Node>| node.is_none_or(|node| *node == Node::Dir);
        if is_dir(change.from()) && is_dir(change.to()) {
            continue;
        }
        if is_over {
            selection.leave(change);
            continue;
        }
        is_over = match Hunks::of(view, change)? {
            Some(hunks) => ask_hunks(cx, change, hunks, &mut selection, signals)?,
            None => ask_whole(cx, view, change, &mut selection, signals)?,
        };
    }
    Ok(selection)
}

/// Asks about a change that is taken or left as a whole. Returns true if the user leaves all
/// further changes.
fn ask_whole(
    cx: &Cx,
    view: &CollectedChanges,
    change: &Change,
    selection: &mut Selection,
    signals: &Signals,
) -> Result<bool, CommandError> {
    super::screen::show_with(cx, signals, |style, out| {
        patch::write_change(view, change, style, out)
    })?;
    let what = match change.kind {
        ChangeKind::Added { .. } => "add",
        ChangeKind::Deleted { .. } => "delete",
        ChangeKind::Renamed { .. } => "rename to",
        ChangeKind::Modified { .. } => "change",
    };
    let text = format!(
        "{what} {}? [y]es, [n]o, [q]uit, [?]",
        render::escape(change.path.as_bytes())
    );
    loop {
        match question::ask(&text, &['y', 'n', 'a', 'd', 'q', '?'], signals) {
            Some('y' | 'a') => return Ok(false),
            Some('n' | 'd') => {
                selection.leave(change);
                return Ok(false);
            }
            Some('?') => render::say(HELP),
            Some(_) => {
                selection.leave(change);
                return Ok(true);
            }
            None => return Err(CommandError::interrupted()),
        }
    }
}

/// Asks about each hunk of a text file. Returns true if the user leaves all further changes.
fn ask_hunks(
    cx: &Cx,
    change: &Change,
    mut hunks: Hunks,
    selection: &mut Selection,
    signals: &Signals,
) -> Result<bool, CommandError> {
    let name = render::escape(change.path.as_bytes());
    let mut picks = Vec::new();
    let mut rest = RestAnswer::Ask;
    let mut is_over = false;
    while picks.len() < hunks.count() {
        if rest != RestAnswer::Ask {
            picks.push(rest == RestAnswer::Take);
            continue;
        }
        let number = picks.len();
        super::screen::show_with(cx, signals, |style, out| {
            Ok(hunks.write(number, style, out)?)
        })?;
        let can_split = hunks.can_split(number);
        let text = format!(
            "{name} ({}/{}): take this? [y]es, [n]o, [a]ll of the file, [d]one with the file,{} [q]uit, [?]",
            number + 1,
            hunks.count(),
            if can_split { " [s]plit," } else { "" }
        );
        match question::ask(&text, &['y', 'n', 'a', 'd', 's', 'q', '?'], signals) {
            Some('y') => picks.push(true),
            Some('n') => picks.push(false),
            Some('a') => rest = RestAnswer::Take,
            Some('d') => rest = RestAnswer::Leave,
            Some('s') if can_split => hunks.split(number),
            Some('s') => render::say("it cannot be split further"),
            Some('?') => render::say(HELP),
            Some(_) => {
                rest = RestAnswer::Leave;
                is_over = true;
            }
            None => return Err(CommandError::interrupted()),
        }
    }
    selection.pick(change, &hunks, &picks);
    Ok(is_over)
}
