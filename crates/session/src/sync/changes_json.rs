//! Changes and outcomes as JSON, for the command line and the server.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use glovebox_workspace::collect::why_executed;
use glovebox_workspace::{
    Change, ChangeKind, ChangeSet, Effect, Flag, FlaggedChange, Node, Outcome, RefusedPath, RelPath,
};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Formats a change set.
pub fn changes_json(set: &ChangeSet) -> Value {
    json!({
        "changes": set.changes.iter().map(change_json).collect::<Vec<_>>(),
        "refused": refused_json(&set.refused),
    })
}

/// Formats the paths that cannot be applied.
pub fn refused_json(refused: &[RefusedPath]) -> Value {
    refused.iter().map(refusal_json).collect()
}

/// Formats the outcome of an apply.
pub fn outcome_json(outcome: &Outcome) -> Value {
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
        if let Some(part) = applied.part {
            object.insert(
                "hunks".to_owned(),
                json!({ "taken": part.taken, "total": part.total }),
            );
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
        if let Some(unplaced) = &conflict.unplaced {
            object.insert("unplaced".to_owned(), word(unplaced));
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
    let mut object = json!({
        "applied": applied.collect::<Vec<_>>(),
        "already_there": paths(&mut outcome.already_there.iter()),
        "merged": merged,
        "conflicts": conflicts.collect::<Vec<_>>(),
        "declined": paths(&mut outcome.declined.iter()),
        "resolved": paths(&mut outcome.resolved.iter()),
        "flagged": flagged.collect::<Vec<_>>(),
        "refused": refused_json(&outcome.refused),
    });
    if !outcome.lost_groups.is_empty() {
        object["lost_groups"] = paths(&mut outcome.lost_groups.iter()).into();
    }
    if let Some(earlier) = &outcome.earlier {
        object["undo"] = json!({
            "id": earlier.id,
            "files": earlier.files,
            "until_unix_s": earlier.until_unix_s,
            "unkept": paths(&mut earlier.unkept.iter()),
        });
    }
    object
}

/// Formats one change.
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

fn refusal_json(refusal: &RefusedPath) -> Value {
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

/// Returns the stable name of an enum value of the workspace crate.
fn word(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Inserts `name` as text, and if the bytes are not UTF-8, also `name_b64` with the exact bytes.
pub fn output_fields(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let is_exact = matches!(text, Cow::Borrowed(_));
    object.insert(name.to_owned(), text.into());
    if !is_exact {
        object.insert(format!("{name}_b64"), BASE64_STANDARD.encode(bytes).into());
    }
}

/// Returns the program that executes or obeys a flagged file, if its name reveals it.
pub fn why_flagged(flagged: &FlaggedChange) -> Option<&'static str> {
    let executes = flagged.flags.contains(&Flag::Executes);
    executes.then(|| why_executed(&flagged.path))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_workspace::RefusalReason;

    #[test]
    fn names_are_exact() {
        let set = ChangeSet {
            changes: vec![Change {
                path: RelPath::new(b"\x1b[2J\xff".as_slice()).unwrap(),
                kind: ChangeKind::Added { to: Node::Dir },
                flags: Vec::new(),
            }],
            refused: vec![RefusedPath {
                path: b"evil\n".to_vec(),
                reason: RefusalReason::LinkLeadsOut,
            }],
        };
        let object = changes_json(&set);
        assert_eq!(object["changes"][0]["path_b64"], "G1sySv8=");
        assert_eq!(object["refused"][0]["reason"], "link-leads-out");
    }

    #[test]
    fn bytes_that_are_no_text_come_along_exactly() {
        let mut object = Map::new();
        output_fields(&mut object, "stdout", b"ok");
        output_fields(&mut object, "stderr", b"\xff");
        assert_eq!(
            Value::Object(object),
            json!({"stdout": "ok", "stderr": "\u{fffd}", "stderr_b64": "/w=="})
        );
    }
}
