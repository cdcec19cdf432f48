//! A sandbox's changes and the result of applying them, as lists for people.

use super::{escape, plural};
use glovebox_session::sync::changes_json::why_flagged;
use glovebox_workspace::{
    ChangeKind, ChangeSet, Effect, Flag, FlaggedChange, Outcome, RefusedPath, RelPath, TakenPart,
};
use std::fmt::Write;

/// Lines of one list before the rest is only counted.
const MAX_LINES: usize = 40;

/// Escapes a path for a terminal.
fn shown(path: &RelPath) -> String {
    // TRUST: the sandbox chose these names.
    escape(path.as_bytes())
}

/// Counts the changes by kind: `2 added, 1 deleted`.
pub(crate) fn summary(set: &ChangeSet) -> String {
    counts(&set.changes.iter().map(|change| mark(&change.kind)))
}

/// Lists the changes in the order of their paths, one per line, each after the letter of its kind.
pub(crate) fn changes(set: &ChangeSet) -> String {
    lines(set.changes.iter().map(|change| match &change.kind {
        ChangeKind::Renamed { source, .. } => {
            format!("R {} -> {}", shown(source), shown(&change.path))
        }
        kind => format!("{} {}", mark(kind), shown(&change.path)),
    }))
}

/// Lists the paths that stay in the sandbox, one per line with the reason.
pub(crate) fn refused(refused: &[RefusedPath]) -> String {
    lines(
        refused
            .iter()
            .map(|refusal| format!("{}: {}", escape(&refusal.path), refusal.reason)),
    )
}

/// Lists the applied changes, one per line.
pub(crate) fn applied(outcome: &Outcome) -> String {
    lines(outcome.applied.iter().map(|applied| {
        let kept = applied
            .kept
            .as_ref()
            .map_or_else(String::new, |kept| format!(" (yours is {})", shown(kept)));
        let merged = match &applied.effect {
            _ if !applied.is_merged => String::new(),
            Effect::Renamed { source } => format!(" (your edit of {} is in it)", shown(source)),
            _ => " (merged with yours)".to_owned(),
        };
        let part = applied.part.map_or_else(String::new, |part| {
            let TakenPart { taken, total } = part;
            format!(" ({taken} of {total} hunks taken; the rest stays in the sandbox)")
        });
        let kept = format!("{kept}{merged}{part}");
        match &applied.effect {
            Effect::Renamed { source } => {
                format!("R {} -> {}{kept}", shown(source), shown(&applied.path))
            }
            effect => format!("{} {}{kept}", effect_mark(effect), shown(&applied.path)),
        }
    }))
}

/// Counts the applied changes by kind: `2 added, 1 deleted`.
pub(crate) fn applied_summary(outcome: &Outcome) -> String {
    if outcome.applied.is_empty() {
        return "nothing".to_owned();
    }
    counts(
        &outcome
            .applied
            .iter()
            .map(|applied| effect_mark(&applied.effect)),
    )
}

/// Lists paths, one per line.
pub(crate) fn paths(paths: &[RelPath]) -> String {
    lines(paths.iter().map(shown))
}

/// Lists the paths that both sides changed and that were merged, one per line.
pub(crate) fn merged(outcome: &Outcome) -> String {
    let merged: Vec<String> = outcome
        .applied
        .iter()
        .filter(|applied| applied.is_merged)
        .map(|applied| shown(&applied.path))
        .collect();
    lines(merged.into_iter())
}

/// Lists the conflicts, one per line.
pub(crate) fn conflicts(outcome: &Outcome) -> String {
    lines(outcome.conflicts.iter().map(|conflict| {
        let theirs = conflict.theirs.as_ref().map_or_else(String::new, |theirs| {
            format!("; the sandbox's is {}", shown(theirs))
        });
        let unplaced = conflict.unplaced.map_or_else(String::new, |reason| {
            format!("; the sandbox's stays there ({reason})")
        });
        let marked = if conflict.is_marked {
            "; both are in it, between markers"
        } else {
            ""
        };
        format!(
            "{}: {}{theirs}{unplaced}{marked}",
            shown(&conflict.path),
            conflict.reason
        )
    }))
}

/// Lists the changes that a reviewer should look at, one per line with the reasons.
pub(crate) fn flagged(flagged: &[FlaggedChange]) -> String {
    lines(flagged.iter().map(|flagged| {
        let why: Vec<String> = flagged
            .flags
            .iter()
            .map(|flag| match why_flagged(flagged) {
                Some(why) if *flag == Flag::Executes => format!("{flag} ({why})"),
                _ => flag.to_string(),
            })
            .collect();
        format!("{}: {}", shown(&flagged.path), why.join(", "))
    }))
}

fn lines(items: impl ExactSizeIterator<Item = String>) -> String {
    let count = items.len();
    let mut text = String::new();
    for item in items.take(MAX_LINES) {
        let _ = writeln!(text, "  {item}");
    }
    if count > MAX_LINES {
        let _ = writeln!(text, "  and {} more; --json lists all", count - MAX_LINES);
    }
    text
}

const fn mark(kind: &ChangeKind) -> char {
    match kind {
        ChangeKind::Added { .. } => 'A',
        ChangeKind::Modified { .. } => 'M',
        ChangeKind::Deleted { .. } => 'D',
        ChangeKind::Renamed { .. } => 'R',
    }
}

const fn effect_mark(effect: &Effect) -> char {
    match effect {
        Effect::Added => 'A',
        Effect::Modified => 'M',
        Effect::Deleted => 'D',
        Effect::Renamed { .. } => 'R',
    }
}

fn counts(marks: &(impl Iterator<Item = char> + Clone)) -> String {
    [
        ('A', "added"),
        ('M', "modified"),
        ('D', "deleted"),
        ('R', "renamed"),
    ]
    .iter()
    .map(|(mark, word)| (marks.clone().filter(|found| found == mark).count(), word))
    .filter(|(count, _)| *count > 0)
    .map(|(count, word)| format!("{count} {word}"))
    .collect::<Vec<_>>()
    .join(", ")
}

/// Counts the changes: `3 changes`.
pub(crate) fn change_count(set: &ChangeSet) -> String {
    plural(set.changes.len(), "change", "changes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_workspace::{Change, Node, RefusalReason};

    fn added(path: &[u8]) -> Change {
        Change {
            path: RelPath::new(path).unwrap(),
            kind: ChangeKind::Added { to: Node::Dir },
            flags: Vec::new(),
        }
    }

    #[test]
    fn lists_are_bounded_and_say_what_they_leave_out() {
        let set = ChangeSet {
            changes: (0..50)
                .map(|number| added(format!("f{number:02}").as_bytes()))
                .collect(),
            ..ChangeSet::default()
        };
        let text = changes(&set);
        assert_eq!(text.lines().count(), MAX_LINES + 1);
        assert!(text.ends_with("  and 10 more; --json lists all\n"));
        assert_eq!(summary(&set), "50 added");
    }

    #[test]
    fn names_are_escaped() {
        let set = ChangeSet {
            changes: vec![added(b"\x1b[2J\xff")],
            refused: vec![RefusedPath {
                path: b"evil\n".to_vec(),
                reason: RefusalReason::LinkLeadsOut,
            }],
        };
        assert_eq!(changes(&set), "  A \\x1b[2J\\xff\n");
        assert!(refused(&set.refused).starts_with("  evil\\n: a link"));
    }
}
