//! Questions about files that both sides changed, one by one.

use super::apply::Review;
use super::{question, screen};
use crate::cmd::Cx;
use crate::exit::CommandError;
use crate::render;
use crate::streams::Signals;
use glovebox_workspace::{RelPath, Resolution};
use std::collections::BTreeMap;

const HELP: &str = "  t  take the sandbox's version, and keep yours as FILE.orig
  k  keep yours, and do not offer the sandbox's again until it changes
  m  put both into the file, between markers
  b  keep yours, and put the sandbox's beside it as FILE.theirs
  d  show what taking the sandbox's would change
  q  stop here: nothing is changed";

/// Asks for the resolution of each conflict. None if the user leaves.
pub(super) fn ask(
    cx: &Cx,
    review: &Review<'_>,
    signals: &Signals,
) -> Result<Option<BTreeMap<RelPath, Resolution>>, CommandError> {
    let mut choices = BTreeMap::new();
    for conflict in review.open_conflicts() {
        let text = format!(
            "{}: {}. [t]ake the sandbox's, [k]eep mine, [m]erge, [b]oth, [d]iff, [q]uit, [?]",
            render::escape(conflict.path.as_bytes()),
            conflict.reason
        );
        let resolution = loop {
            match question::ask(&text, &['t', 'k', 'm', 'b', 'd', 'q', '?'], signals) {
                Some('t') => break Resolution::Theirs,
                Some('k') => break Resolution::Ours,
                Some('m') => break Resolution::Markers,
                Some('b') => break Resolution::Beside,
                Some('d') => show(cx, review, &conflict.path, signals)?,
                Some('?') => render::say(HELP),
                _ => return Ok(None),
            }
        };
        choices.insert(conflict.path.clone(), resolution);
    }
    Ok(Some(choices))
}

/// Displays the difference between the user's version and the sandbox's.
fn show(
    cx: &Cx,
    review: &Review<'_>,
    path: &RelPath,
    signals: &Signals,
) -> Result<(), CommandError> {
    let mut one = review.taken.collected.share();
    one.set.changes.retain(|change| change.path == *path);
    screen::show(cx, &one, signals)
}
