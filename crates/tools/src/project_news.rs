//! Notes to the model about changes that other sandboxes applied to the project of its sandbox.

use crate::ToolOutcome;
use glovebox_proto::visible;
use glovebox_sandbox::{ProjectChange, Sandbox};
use serde_json::json;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of paths that a note lists.
const SHOWN: usize = 5;

/// Number of the last change that the model knows about.
#[derive(Debug)]
pub(crate) struct ProjectNews(AtomicU64);

impl ProjectNews {
    /// Creates a record in which all changes so far are known: a conversation sees the files as
    /// they are when it begins.
    pub(crate) fn new(sandbox: &Sandbox) -> Self {
        let last = sandbox.project_changes().last().map(|change| change.number);
        Self(AtomicU64::new(last.unwrap_or(0)))
    }

    /// Appends the changes since the previous call to an outcome. Each change is reported in one
    /// outcome.
    pub(crate) fn tell(&self, sandbox: &Sandbox, outcome: &mut ToolOutcome) {
        self.tell_changes(sandbox.project_changes(), outcome);
    }

    fn tell_changes(&self, mut changes: Vec<ProjectChange>, outcome: &mut ToolOutcome) {
        let Some(last) = changes.last().map(|change| change.number) else {
            return;
        };
        // Of two concurrent calls only one gets the lower number, so only one reports the change.
        let known = self.0.fetch_max(last, Ordering::Relaxed);
        changes.retain(|change| change.number > known);
        for change in &changes {
            let _ = write!(outcome.text, "\n[{}]", describe(change));
        }
        if !changes.is_empty() {
            outcome
                .facts
                .insert("project_changed".to_owned(), json!(changes));
        }
    }
}

/// Describes a change in one sentence for the model.
fn describe(change: &ProjectChange) -> String {
    let list = |paths: &[String], count: u64| {
        let shown = paths.iter().take(SHOWN);
        let mut shown: Vec<String> = shown.map(|path| visible::line_of_text(path)).collect();
        if count > shown.len() as u64 {
            shown.push("...".to_owned());
        }
        shown.join(", ")
    };
    let files = match change.count {
        0 => "files of the project".to_owned(),
        1 => format!("1 file of the project ({})", list(&change.paths, 1)),
        count => format!(
            "{count} files of the project ({})",
            list(&change.paths, count)
        ),
    };
    let by = match &change.by {
        Some(name) => format!(" by sandbox {}", visible::line_of_text(name)),
        None => String::new(),
    };
    let mut text = format!(
        "{files} changed{by} while you work: files that you have not changed are new, read them again"
    );
    if !change.still_old.is_empty() {
        let count = change.still_old.len() as u64;
        let _ = write!(
            text,
            "; still as before, because a process here has them open: {}",
            list(&change.still_old, count)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(number: u64, paths: &[&str], still_old: &[&str]) -> ProjectChange {
        let list = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        ProjectChange {
            number,
            by: Some("other".to_owned()),
            count: paths.len() as u64,
            paths: list(paths),
            still_old: list(still_old),
        }
    }

    #[test]
    fn change_of_the_project_is_told_once() {
        let news = ProjectNews(AtomicU64::new(1));
        let mut outcome = ToolOutcome::ok("done", json!({}));
        let changes = vec![change(1, &["old"], &[]), change(2, &["a", "b"], &["b"])];
        news.tell_changes(changes.clone(), &mut outcome);
        assert_eq!(
            outcome.text,
            "done\n[2 files of the project (a, b) changed by sandbox other while you work: files that you have not \
             changed are new, read them again; still as before, because a process here has them open: b]"
        );
        assert_eq!(outcome.facts["project_changed"][0]["number"], 2);
        let mut next = ToolOutcome::ok("done", json!({}));
        news.tell_changes(changes, &mut next);
        assert_eq!(next.text, "done");
        assert!(next.facts.is_empty());
    }
}
