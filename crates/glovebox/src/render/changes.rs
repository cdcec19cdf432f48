//! What a sandbox changed, and what taking it over comes to: lists for people, objects for programs.

use super::{escape, output_fields, plural};
use glovebox_workspace::collect::why_executed;
use glovebox_workspace::{
    Change, ChangeKind, ChangeSet, Effect, Flag, Flagged, Node, Outcome, Refusal, RelPath,
};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Lines of one list before the rest is only counted.
const MAX_LINES: usize = 40;

/// A path on its way to a terminal.
fn shown(path: &RelPath) -> String {
    // TRUST: the sandbox chose these names.
    escape(path.as_bytes())
}

/// `2 added, 1 deleted`.
pub(crate) fn summary(set: &ChangeSet) -> String {
    counts(&set.changes.iter().map(|change| mark(&change.kind)))
}

/// The changes, one per line with a letter for what happened, in the order of their paths.
pub(crate) fn changes(set: &ChangeSet) -> String {
    lines(set.changes.iter().map(|change| match &change.kind {
        ChangeKind::Renamed { source, .. } => {
            format!("R {} -> {}", shown(source), shown(&change.path))
        }
        kind => format!("{} {}", mark(kind), shown(&change.path)),
    }))
}

/// What stays in the sandbox, one per line with its reason.
pub(crate) fn refused(refused: &[Refusal]) -> String {
    lines(
        refused
            .iter()
            .map(|refusal| format!("{}: {}", escape(&refusal.path), refusal.reason)),
    )
}

/// What is applied, one per line.
pub(crate) fn applied(outcome: &Outcome) -> String {
    lines(outcome.applied.iter().map(|applied| {
        let kept = applied
            .kept
            .as_ref()
            .map_or_else(String::new, |kept| format!(" (yours is {})", shown(kept)));
        let merged = if applied.is_merged {
            " (merged with yours)"
        } else {
            ""
        };
        let kept = format!("{kept}{merged}");
        match &applied.effect {
            Effect::Renamed { source } => {
                format!("R {} -> {}{kept}", shown(source), shown(&applied.path))
            }
            effect => format!("{} {}{kept}", effect_mark(effect), shown(&applied.path)),
        }
    }))
}

/// `2 added, 1 deleted` of what is applied.
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

/// Paths, one per line.
pub(crate) fn paths(paths: &[RelPath]) -> String {
    lines(paths.iter().map(shown))
}

/// What both sides changed and was merged, one per line.
pub(crate) fn merged(outcome: &Outcome) -> String {
    let merged: Vec<String> = outcome
        .applied
        .iter()
        .filter(|applied| applied.is_merged)
        .map(|applied| shown(&applied.path))
        .collect();
    lines(merged.into_iter())
}

/// What both sides changed, one per line.
pub(crate) fn conflicts(outcome: &Outcome) -> String {
    lines(outcome.conflicts.iter().map(|conflict| {
        let theirs = conflict.theirs.as_ref().map_or_else(String::new, |theirs| {
            format!("; the sandbox's is {}", shown(theirs))
        });
        let marked = if conflict.is_marked {
            "; both are in it, between markers"
        } else {
            ""
        };
        format!(
            "{}: {}{theirs}{marked}",
            shown(&conflict.path),
            conflict.reason
        )
    }))
}

/// What a reviewer should look at, one per line.
pub(crate) fn flagged(flagged: &[Flagged]) -> String {
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

/// What executes or obeys a flagged file, if its name tells.
fn why_flagged(flagged: &Flagged) -> Option<&'static str> {
    let executes = flagged.flags.contains(&Flag::Executes);
    executes.then(|| why_executed(&flagged.path))?
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

/// `3 changes`.
pub(crate) fn change_count(set: &ChangeSet) -> String {
    plural(set.changes.len(), "change", "changes")
}

/// A change set for programs.
pub(crate) fn changes_json(set: &ChangeSet) -> Value {
    json!({
        "changes": set.changes.iter().map(change_json).collect::<Vec<_>>(),
        "refused": refused_json(&set.refused),
    })
}

/// Paths that stay where they are, for programs.
pub(crate) fn refused_json(refused: &[Refusal]) -> Value {
    refused.iter().map(refusal_json).collect()
}

/// What taking changes over comes to, for programs.
pub(crate) fn outcome_json(outcome: &Outcome) -> Value {
    let applied = outcome.applied.iter().map(|applied| {
        let mut object = Map::new();
        path_fields(&mut object, "path", &applied.path);
        let effect = match &applied.effect {
            Effect::Added => "added",
            Effect::Modified => "modified",
            Effect::Deleted => "deleted",
            Effect::Renamed { source } => {
                path_fields(&mut object, "source", source);
                "renamed"
            }
        };
        object.insert("effect".to_owned(), effect.into());
        if let Some(kept) = &applied.kept {
            path_fields(&mut object, "kept", kept);
        }
        if applied.is_merged {
            object.insert("merged".to_owned(), true.into());
        }
        Value::Object(object)
    });
    let paths = |paths: &mut dyn Iterator<Item = &RelPath>| {
        let objects = paths.map(|path| {
            let mut object = Map::new();
            path_fields(&mut object, "path", path);
            Value::Object(object)
        });
        objects.collect::<Vec<_>>()
    };
    let merged = outcome.applied.iter().filter(|applied| applied.is_merged);
    let merged = paths(&mut merged.map(|applied| &applied.path));
    let conflicts = outcome.conflicts.iter().map(|conflict| {
        let mut object = Map::new();
        path_fields(&mut object, "path", &conflict.path);
        object.insert("reason".to_owned(), word(&conflict.reason));
        if let Some(theirs) = &conflict.theirs {
            path_fields(&mut object, "theirs", theirs);
        }
        if conflict.is_marked {
            object.insert("marked".to_owned(), true.into());
        }
        Value::Object(object)
    });
    let flagged = outcome.flagged.iter().map(|flagged| {
        let mut object = Map::new();
        path_fields(&mut object, "path", &flagged.path);
        let flags: Vec<Value> = flagged.flags.iter().map(word).collect();
        object.insert("flags".to_owned(), flags.into());
        if let Some(why) = why_flagged(flagged) {
            object.insert("why".to_owned(), why.into());
        }
        Value::Object(object)
    });
    json!({
        "applied": applied.collect::<Vec<_>>(),
        "already_there": paths(&mut outcome.already_there.iter()),
        "merged": merged,
        "conflicts": conflicts.collect::<Vec<_>>(),
        "declined": paths(&mut outcome.declined.iter()),
        "resolved": paths(&mut outcome.resolved.iter()),
        "flagged": flagged.collect::<Vec<_>>(),
        "refused": refused_json(&outcome.refused),
    })
}

/// One change for programs.
fn change_json(change: &Change) -> Value {
    let mut object = Map::new();
    path_fields(&mut object, "path", &change.path);
    let kind = match &change.kind {
        ChangeKind::Added { .. } => "added",
        ChangeKind::Modified { .. } => "modified",
        ChangeKind::Deleted { .. } => "deleted",
        ChangeKind::Renamed { source, .. } => {
            path_fields(&mut object, "source", source);
            "renamed"
        }
    };
    object.insert("kind".to_owned(), kind.into());
    object.insert("from".to_owned(), node_json(change.from()));
    object.insert("to".to_owned(), node_json(change.to()));
    let flags: Vec<Value> = change.flags.iter().map(word).collect();
    object.insert("flags".to_owned(), flags.into());
    Value::Object(object)
}

fn refusal_json(refusal: &Refusal) -> Value {
    let mut object = Map::new();
    output_fields(&mut object, "path", &refusal.path);
    object.insert("reason".to_owned(), word(&refusal.reason));
    Value::Object(object)
}

fn node_json(node: Option<&Node>) -> Value {
    match node {
        None => Value::Null,
        Some(Node::Dir) => json!({ "type": "directory" }),
        Some(Node::Link { target }) => {
            let mut object = Map::new();
            object.insert("type".to_owned(), "link".into());
            output_fields(&mut object, "target", target);
            Value::Object(object)
        }
        Some(Node::File {
            size,
            is_executable,
            digest,
        }) => json!({
            "type": "file",
            "size": size,
            "executable": is_executable,
            "blake3": digest.map(|digest| blake3::Hash::from(digest).to_hex().to_string()),
        }),
    }
}

fn path_fields(object: &mut Map<String, Value>, name: &str, path: &RelPath) {
    output_fields(object, name, path.as_bytes());
}

/// The stable word of one of the workspace's own enums.
fn word(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_workspace::RefusalReason;

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
    fn names_are_escaped_for_people_and_exact_for_programs() {
        let set = ChangeSet {
            changes: vec![added(b"\x1b[2J\xff")],
            refused: vec![Refusal {
                path: b"evil\n".to_vec(),
                reason: RefusalReason::LinkLeadsOut,
            }],
        };
        assert_eq!(changes(&set), "  A \\x1b[2J\\xff\n");
        assert!(refused(&set.refused).starts_with("  evil\\n: a link"));
        let object = changes_json(&set);
        assert_eq!(object["changes"][0]["path_b64"], "G1sySv8=");
        assert_eq!(object["refused"][0]["reason"], "link-leads-out");
    }
}
