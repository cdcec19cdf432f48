//! What a command changed in the workspace, as a short list.

use super::{escape, plural};
use glovebox_sandbox::{Change, ChangeKind};
use std::fmt::Write;

/// Lines shown before the rest is only counted.
const MAX_LINES: usize = 10;

/// A summary line and the first changes, in the order of their paths.
pub(crate) fn changes(changes: &[Change]) -> String {
    let count = |kind| changes.iter().filter(|change| change.kind == kind).count();
    let parts: Vec<String> = [
        (count(ChangeKind::Added), "added"),
        (count(ChangeKind::Modified), "modified"),
        (count(ChangeKind::Deleted), "deleted"),
    ]
    .iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, word)| format!("{count} {word}"))
    .collect();
    let mut text = format!(
        "{} in /workspace: {}\n",
        plural(changes.len(), "change", "changes"),
        parts.join(", ")
    );
    for change in changes.iter().take(MAX_LINES) {
        let mark = match change.kind {
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
            ChangeKind::Deleted => 'D',
        };
        // TRUST: the command chose these names.
        let _ = writeln!(text, "  {mark} {}", escape(&change.path));
    }
    if changes.len() > MAX_LINES {
        let _ = writeln!(text, "  and {} more", changes.len() - MAX_LINES);
    }
    text
}
