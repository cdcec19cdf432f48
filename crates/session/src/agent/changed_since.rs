//! Finds files of a project that a session worked on and that have changed since it began.

use glovebox_agent::Event;
use glovebox_spec::WORKSPACE;
use std::collections::BTreeSet;
use std::path::{Component, Path};
use std::time::SystemTime;

/// Lists the files named by calls of `events` that were modified after `began` or no longer exist,
/// as paths relative to `project`.
///
/// A file is judged by its modification time, so one that was restored with an older time is not
/// listed.
pub fn find_changed_since(project: &Path, events: &[Event], began: SystemTime) -> Vec<String> {
    read_or_edited_files(events)
        .into_iter()
        .filter(|path| {
            let found = project.join(path).symlink_metadata();
            found.map_or(true, |meta| meta.modified().is_ok_and(|at| at > began))
        })
        .collect()
}

/// Returns the paths below the workspace that a successful call has read or edited. A file that a
/// call has written whole is omitted from then on: it need not have existed.
fn read_or_edited_files(events: &[Event]) -> BTreeSet<String> {
    let failed: BTreeSet<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::CallFinished { id, is_error, .. } if *is_error => Some(id.as_str()),
            _ => None,
        })
        .collect();
    let mut written = BTreeSet::new();
    let mut found = BTreeSet::new();
    for event in events {
        let Event::CallStarted {
            id,
            tool,
            arguments,
            ..
        } = event
        else {
            continue;
        };
        let Some(path) = arguments["path"].as_str().and_then(within_workspace) else {
            continue;
        };
        if failed.contains(id.as_str()) || written.contains(&path) {
            continue;
        }
        match tool.as_str() {
            "Read" | "Edit" => found.insert(path),
            "Write" => written.insert(path),
            _ => false,
        };
    }
    found
}

/// Returns a call's path relative to the workspace; `None` if it leads out of it.
fn within_workspace(path: &str) -> Option<String> {
    let path = Path::new(path);
    let path = path.strip_prefix(WORKSPACE).unwrap_or(path);
    let is_plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    is_plain.then(|| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn call(id: &str, tool: &str, path: &str, is_error: bool) -> [Event; 2] {
        let started = Event::CallStarted {
            id: id.to_owned(),
            tool: tool.to_owned(),
            arguments: json!({ "path": path }),
            server: None,
        };
        let finished: Value = json!({
            "type": "call_finished", "id": id, "tool": tool, "text": "", "is_error": is_error
        });
        [started, serde_json::from_value(finished).unwrap()]
    }

    #[test]
    fn files_that_were_there_and_are_newer_or_gone_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let began = SystemTime::now();
        let minute = Duration::from_mins(1);
        for (name, modified) in [
            ("edited", began + minute),
            ("same", began - minute),
            ("made", began + minute),
            ("missed", began + minute),
        ] {
            let file = std::fs::File::create(dir.path().join(name)).unwrap();
            file.set_modified(modified).unwrap();
        }
        let events = [
            call("1", "Read", "/workspace/edited", false),
            call("2", "Edit", "same", false),
            call("3", "Write", "made", false),
            call("4", "Edit", "made", false),
            call("5", "Edit", "missed", true),
            call("6", "Read", "gone", false),
            call("7", "Read", "../outside", false),
            call("8", "Read", "/etc/hostname", false),
        ];
        let found = find_changed_since(dir.path(), events.as_flattened(), began);
        assert_eq!(found, ["edited", "gone"]);
    }
}
